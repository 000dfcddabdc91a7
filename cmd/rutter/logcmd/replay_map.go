package logcmd

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/log"
)

func mapFlag() cli.Flag {
	return &cli.StringFlag{Name: "map", Usage: "into a cluster: record in this `FILE` which change and seq there stand for which of the log; a line of JSON each (default: replay-SOURCE-TARGET.ndjson)"}
}

// mapping says which change of the target repeats which change of the source.
type mapping struct {
	Source mappedChange `json:"source"`
	Target mappedChange `json:"target"`
	// Skipped says why the target does not have the change.
	Skipped string `json:"skipped,omitempty"`
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

// key identifies a change of a source.
func (m mappedChange) key() string { return fmt.Sprintf("%s/%d/%s", m.Cluster, m.First, m.Object) }

// name is the text for messages.
func (m mappedChange) name() string {
	if m.Object != "" {
		return fmt.Sprintf("%s, as of #%d", m.Object, m.First)
	}
	return fmt.Sprintf("the change of #%d", m.First)
}

// changeTag is the random part of a change's id in the target. It is computed from the
// change of the source, so the target's log shows which changes it has already. The
// rest of the id is the time, from which servers know for how long to remember it.
type changeTag [10]byte

func tagOf(source mappedChange) (t changeTag) {
	h := sha256.New()
	h.Write([]byte("rutter replay"))
	h.Write(source.Cluster[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(source.First)))
	h.Write([]byte(source.Object))
	copy(t[:], h.Sum(nil))
	t[0] &= 0x0f // without the version (RFC 9562 section 5.7)
	t[2] &= 0x3f // without the variant
	return t
}

// id returns a fresh change id with the tag.
func (t changeTag) id() log.UUID {
	id := client.NewChangeID()
	id[6] = id[6]&0xf0 | t[0]
	id[7] = t[1]
	id[8] = id[8]&0xc0 | t[2]
	copy(id[9:], t[3:])
	return id
}

func tagIn(id log.UUID) (t changeTag) {
	copy(t[:], id[6:])
	t[0] &= 0x0f
	t[2] &= 0x3f
	return t
}

// mapFile is the record of a replay into a cluster.
type mapFile struct {
	name string
	file *os.File
	done map[string]bool // by key
	last log.Seq         // last seq of the target in the file
}

// openMap reads a map file, or makes it. It refuses a file of other clusters. It
// removes a line that was cut off, because the target's log has the same fact.
func openMap(name string, source, target log.UUID) (m *mapFile, err error) {
	if name == "" {
		name = fmt.Sprintf("replay-%.8s-%.8s.ndjson", source, target)
	}
	m = &mapFile{name: name, done: map[string]bool{}}
	if m.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	in, whole := bufio.NewReader(m.file), int64(0)
	for n := 1; err == nil; n++ {
		var line []byte
		if line, err = in.ReadBytes('\n'); err != nil {
			break
		}
		var one mapping
		if err = json.Unmarshal(line, &one); err == nil && (one.Source.Cluster != source || one.Target.Cluster != target) {
			err = fmt.Errorf("it maps cluster %s to %s, and this is from %s to %s: name another file with --map", one.Source.Cluster, one.Target.Cluster, source, target)
		}
		if err != nil {
			err = fmt.Errorf("%s:%d: %w", name, n, err)
			break
		}
		m.done[one.Source.key()] = true
		m.last = max(m.last, one.Target.Last)
		whole += int64(len(line))
	}
	if errors.Is(err, io.EOF) {
		err = m.file.Truncate(whole)
	}
	if err == nil {
		_, err = m.file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, m.file.Close())
	}
	return m, nil
}

func (m *mapFile) add(one mapping) error {
	b, err := json.Marshal(one)
	if err == nil {
		_, err = m.file.Write(append(b, '\n'))
	}
	m.done[one.Source.key()] = true
	return err
}

func (m *mapFile) close() error {
	err := m.file.Close()
	if info, statErr := os.Stat(m.name); statErr == nil && info.Size() == 0 {
		if removeErr := os.Remove(m.name); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
