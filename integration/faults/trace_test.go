package faults

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// traced are the system calls by which a store changes what is on a disk, and
// those that say where.
const traced = "openat,write,pwrite64,lseek,ftruncate,fallocate,fsync,fdatasync,renameat,renameat2,unlinkat,mkdirat,splice,sendfile,copy_file_range"

// call is one system call of a trace, in the order in which they ended.
type call struct {
	name   string
	began  int // calls that had ended when it began
	fd     int
	path   string // of fd, or the first argument that is a path
	to     string // of a rename
	data   []byte
	offset int64 // also a size
	result int64
	flags  string
}

var (
	callLine   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)$`)
	beginLine  = regexp.MustCompile(`^(\d+) +(\w+\(.*) <unfinished \.\.\.>$`)
	resumeLine = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)$`)
	fdArgument = regexp.MustCompile(`^(\d+)<(.*)>$`)
)

// maxTraceLine bounds a line of a trace: a write of 4 MiB in hexadecimal.
const maxTraceLine = 32 << 20

// readTrace reads what strace -f -y -xx wrote.
func readTrace(path string) ([]call, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type begun struct {
		text string
		at   int
	}
	var calls []call
	open := make(map[string]begun) // by thread
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxTraceLine)
	for lines.Scan() {
		line, began := lines.Text(), len(calls)
		if m := beginLine.FindStringSubmatch(line); m != nil {
			open[m[1]] = begun{m[2], began}
			continue
		}
		if m := resumeLine.FindStringSubmatch(line); m != nil {
			line, began = m[1]+" "+open[m[1]].text+m[2], open[m[1]].at
		}
		m := callLine.FindStringSubmatch(line)
		if m == nil {
			continue // a call that the end of the process cut short, or its end
		}
		c, err := parseCall(m[2], m[3], m[4]+m[5])
		if err != nil {
			return nil, fmt.Errorf("%.200s: %w", line, err)
		}
		c.began = began
		calls = append(calls, c)
	}
	return calls, lines.Err()
}

func parseCall(name, arguments, result string) (c call, err error) {
	c.name = name
	number, at, _ := strings.Cut(result, "<")
	if c.result, err = strconv.ParseInt(strings.Fields(number)[0], 10, 64); err != nil || c.result < 0 {
		return c, err
	}
	var paths []string
	for i, argument := range strings.Split(arguments, ", ") {
		if m := fdArgument.FindStringSubmatch(argument); m != nil && i == 0 {
			c.path = unescape(m[2])
			if c.fd, err = strconv.Atoi(m[1]); err != nil {
				return c, err
			}
		} else if strings.HasPrefix(argument, `"`) {
			text := unescape(strings.Trim(argument, `"`))
			paths, c.data = append(paths, text), []byte(text)
		} else if strings.HasPrefix(argument, "O_") {
			c.flags = argument
		} else if n, err := strconv.ParseInt(argument, 10, 64); err == nil {
			c.offset = n
		}
	}
	switch name {
	case "openat":
		c.path, c.fd = unescape(strings.TrimSuffix(at, ">")), int(c.result)
	case "unlinkat", "mkdirat":
		c.path = paths[0]
	case "renameat", "renameat2":
		c.path, c.to = paths[0], paths[1]
	}
	return c, nil
}

// unescape undoes strace's \x41.
func unescape(text string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		return text
	}
	return string(b)
}

// disk is what a disk may hold while the calls of a trace are made, as POSIX
// has it: what was not synced may be there or not, in any order and in part.
type disk struct {
	dir   string
	calls int
	names map[string]*inode // now
	// synced are the names when their folder was last synced.
	synced  map[string]*inode
	offsets map[int]int64 // of open files
	acks    []string      // lines that the program printed
}

type inode struct {
	kept    []byte // synced
	pending []change
}

// change is a write or a cut that was not synced.
type change struct {
	at     int // calls made before it
	offset int64
	data   []byte // nil: the size becomes offset
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, names: make(map[string]*inode), synced: make(map[string]*inode), offsets: make(map[int]int64)}
}

// apply makes one call, and reports whether it changed what a crash leaves.
func (d *disk) apply(c call) (bool, error) {
	d.calls++
	if c.result < 0 {
		return false, nil
	}
	if c.fd == 1 && c.name == "write" {
		d.acks = append(d.acks, strings.Fields(strings.TrimSpace(string(c.data)))...)
		return true, nil
	}
	if !strings.HasPrefix(c.path, d.dir+"/") && c.path != d.dir {
		return false, nil
	}
	file := d.names[c.path]
	switch c.name {
	case "openat":
		d.offsets[c.fd] = 0
		if file == nil && strings.Contains(c.flags, "O_CREAT") {
			d.names[c.path] = &inode{}
			return true, nil
		}
		if file != nil && strings.Contains(c.flags, "O_TRUNC") {
			file.pending = append(file.pending, change{d.calls, 0, nil})
		}
	case "write":
		file.pending = append(file.pending, change{d.calls, d.offsets[c.fd], c.data})
		d.offsets[c.fd] += int64(len(c.data))
	case "lseek":
		d.offsets[c.fd] = c.result
		return false, nil
	case "pwrite64":
		file.pending = append(file.pending, change{d.calls, c.offset, c.data})
	case "ftruncate", "fallocate": // raft-wal allocates new files, from their beginning
		file.pending = append(file.pending, change{d.calls, c.offset, nil})
	case "fsync", "fdatasync":
		d.sync(file, c)
	case "renameat", "renameat2":
		d.names[c.to] = file
		delete(d.names, c.path)
	case "unlinkat":
		delete(d.names, c.path)
	case "mkdirat":
	default:
		return false, fmt.Errorf("%s of %s is not understood here", c.name, c.path)
	}
	return c.name != "openat", nil
}

// sync keeps what was there when the call began.
func (d *disk) sync(file *inode, c call) {
	if file == nil { // a folder
		for name := range d.synced {
			if filepath.Dir(name) == c.path {
				delete(d.synced, name)
			}
		}
		for name, file := range d.names {
			if filepath.Dir(name) == c.path {
				d.synced[name] = file
			}
		}
		return
	}
	n := 0
	for n < len(file.pending) && file.pending[n].at <= c.began {
		file.kept = file.pending[n].on(file.kept)
		n++
	}
	file.pending = slices.Clone(file.pending[n:])
}

// on returns b with the change made, which may be b.
func (c change) on(b []byte) []byte {
	if end := c.offset + int64(len(c.data)); int64(len(b)) < end {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	if c.data == nil {
		return b[:c.offset]
	}
	copy(b[c.offset:], c.data)
	return b
}

// fortune is what becomes of what was not synced.
type fortune int

const (
	allKept fortune = iota // the process died, the machine did not
	noneKept
	someKept // each page or not, a few torn at a sector
	fortunes
)

func (f fortune) String() string {
	return [...]string{"all kept", "nothing kept", "some kept"}[f]
}

// page and sector are what a disk writes whole.
const page, sector = 4096, 512

// image writes what is on the disk after a crash now into a folder.
func (d *disk) image(to string, f fortune, rng *rand.Rand) error {
	names := d.names
	if f == noneKept || f == someKept && rng.IntN(2) == 0 {
		names = d.synced
	}
	for name, file := range names {
		b := slices.Clone(file.kept)
		for _, c := range file.pending {
			if f == allKept {
				b = c.on(b)
			} else if f == someKept {
				b = c.partly(b, rng)
			}
		}
		path := filepath.Join(to, strings.TrimPrefix(name, d.dir))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// partly returns b with some pages of the change made.
func (c change) partly(b []byte, rng *rand.Rand) []byte {
	if c.data == nil {
		if rng.IntN(2) == 0 {
			return b
		}
		return c.on(b)
	}
	for from := 0; from < len(c.data); from += page {
		part := c.data[from:min(from+page, len(c.data))]
		switch rng.IntN(5) {
		case 0, 1:
			continue
		case 2:
			part = part[:min(len(part), sector*(1+rng.IntN(page/sector-1)))]
		}
		b = change{offset: c.offset + int64(from), data: part}.on(b)
	}
	return b
}
