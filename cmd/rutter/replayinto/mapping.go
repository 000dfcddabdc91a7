package replayinto

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"syscall"

	"rutter/log"
)

// mapping says which change of the target repeats which change of the source.
type mapping struct {
	Source mappedChange `json:"source"`
	Target mappedChange `json:"target"`
	// Skipped says why the target does not have the change.
	Skipped string `json:"skipped,omitempty"`
	// Refused says why the target refused it. The next replay tries it again.
	Refused string `json:"refused,omitempty"`
}

// mappedChange is a change in a log. For an object that the source's log begins with,
// ID is zero, and Object is that object.
type mappedChange struct {
	Cluster log.UUID `json:"cluster"`
	First   log.Seq  `json:"first"`
	Last    log.Seq  `json:"last"`
	ID      log.UUID `json:"change_id,omitzero"`
	Object  string   `json:"object,omitempty"`
}

// name is the text for messages.
func (m mappedChange) name() string {
	if m.Object != "" {
		return fmt.Sprintf("%s, as of #%d", m.Object, m.First)
	}
	return fmt.Sprintf("the change of #%d", m.First)
}

// mapFile is the record of a replay into a cluster. One process at a time has it.
type mapFile struct {
	name    string
	file    *os.File
	out     *bufio.Writer
	changes spans              // seqs of the source whose changes are settled
	objects map[changeTag]bool // those of the objects that the source begins with
	lines   int
}

// maxLine bounds a line of a map file: a refusal may be long.
const maxLine = 256 << 10

// openMap reads a map file, or makes it. It refuses a file of other clusters, and one
// that another replay writes. It removes a line that was cut off, because the target's
// log has the same fact.
func openMap(name string, source, target log.UUID) (m *mapFile, err error) {
	if name == "" {
		name = fmt.Sprintf("replay-%.8s-%.8s.ndjson", source, target)
	}
	m = &mapFile{name: name, objects: map[changeTag]bool{}}
	if m.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	m.out = bufio.NewWriterSize(m.file, 1<<16)
	if err = syscall.Flock(int(m.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("%s: another replay writes it: wait for it, or end it (%w)", name, err)
	} else {
		err = m.read(source, target)
	}
	if err != nil {
		return nil, errors.Join(err, m.file.Close())
	}
	return m, nil
}

// read reads the lines.
func (m *mapFile) read(source, target log.UUID) error {
	in, whole := bufio.NewReaderSize(m.file, maxLine), int64(0)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var one mapping
		if err == nil {
			err = json.Unmarshal(line, &one)
		}
		if err == nil && (one.Source.Cluster != source || one.Target.Cluster != target) {
			err = fmt.Errorf("it maps cluster %s to %s, and this is from %s to %s: name another file with --map", one.Source.Cluster, one.Target.Cluster, source, target)
		}
		if err == nil && one.Source.Object == "" && one.Source.First > one.Source.Last {
			err = fmt.Errorf("it maps #%d to #%d: name another file with --map", one.Source.First, one.Source.Last)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", m.name, m.lines+1, err)
		}
		m.note(one)
		whole += int64(len(line))
	}
	err := m.file.Truncate(whole)
	if err == nil {
		_, err = m.file.Seek(whole, io.SeekStart)
	}
	return err
}

// note remembers a mapping, unless it says that the target refused the change.
func (m *mapFile) note(one mapping) {
	m.lines++
	switch {
	case one.Refused != "":
	case one.Source.Object != "":
		m.objects[tagOf(one.Source)] = true
	default:
		m.changes.add(one.Source.First, one.Source.Last)
	}
}

// has reports whether a change of the source is settled.
func (m *mapFile) has(source mappedChange) bool {
	if source.Object != "" {
		return m.objects[tagOf(source)]
	}
	return m.changes.has(source.First)
}

func (m *mapFile) add(one mapping) error {
	b, err := json.Marshal(one)
	if err == nil {
		_, err = m.out.Write(append(b, '\n'))
	}
	m.note(one)
	return err
}

// sync makes all lines durable.
func (m *mapFile) sync() error {
	if err := m.out.Flush(); err != nil {
		return err
	}
	return m.file.Sync()
}

// close ends the writing, and removes a file without lines.
func (m *mapFile) close() error {
	err := errors.Join(m.out.Flush(), m.file.Close())
	if err == nil && m.lines == 0 {
		if err = os.Remove(m.name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// spans is a set of seqs, as ranges that neither overlap nor touch, sorted. The changes
// of a log are few ranges, in whatever order they are added.
type spans []struct{ first, last log.Seq }

// find returns the first range that ends at seq-1 or behind.
func (s spans) find(seq log.Seq) int {
	return sort.Search(len(s), func(i int) bool { return s[i].last >= max(seq, 1)-1 })
}

func (s *spans) add(first, last log.Seq) {
	at := s.find(first)
	end := at
	for end < len(*s) && (*s)[end].first <= last+1 {
		first, last = min(first, (*s)[end].first), max(last, (*s)[end].last)
		end++
	}
	*s = slices.Replace(*s, at, end, struct{ first, last log.Seq }{first, last})
}

func (s spans) has(seq log.Seq) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].last >= seq })
	return i < len(s) && s[i].first <= seq
}
