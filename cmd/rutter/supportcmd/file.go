package supportcmd

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"rutter/api/support"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// maxBytes bounds the parts of one bundle together: a cluster of five with fifty nodes has
// some 100 MiB at most.
const maxBytes = 512 << 20

// manifestName is the last file of a bundle. A bundle without it was cut off.
const manifestName = "manifest.json"

// Manifest says what is in a bundle, and what could not be had.
type Manifest struct {
	Version  string    `json:"version"` // of the program that made it
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Parts    []Part    `json:"parts"`
	Missing  []Missing `json:"missing"`
	Removed  int       `json:"secrets_removed"` // by this command; servers and agents removed theirs before
	Complete bool      `json:"complete"`        // nothing is missing
}

// Part is one file.
type Part struct {
	Name   string `json:"name"`
	From   string `json:"from"` // URL, node or socket
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Took   int64  `json:"took_ms"`
}

// Missing is what could not be had.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// file is a bundle that is being written. Its methods may be called concurrently.
type file struct {
	path    string
	root    string // folder in the archive
	secrets []string

	mu       sync.Mutex // protects what follows
	out      *os.File
	packed   *gzip.Writer
	archive  *tar.Writer
	manifest Manifest
	bytes    int
	failed   error // of writing
}

// create makes the file, for its owner only. A file of that name is not overwritten.
func create(name, version string, began time.Time, secrets []string) (*file, error) {
	out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, term.Usagef("%s is there already: name another file with --file", name)
	}
	if err != nil {
		return nil, fmt.Errorf("the bundle cannot be written: %w; name another folder with --file", err)
	}
	f := &file{path: name, root: strings.TrimSuffix(path.Base(name), ".tar.gz"), secrets: secrets, out: out, packed: gzip.NewWriter(out)}
	f.archive = tar.NewWriter(f.packed)
	f.manifest = Manifest{Version: version, Began: began, Parts: []Part{}, Missing: []Missing{}}
	return f, nil
}

// binary reports whether a part is no text.
func binary(name string) bool { return strings.HasSuffix(name, ".pb.gz") }

// add writes a part, without secrets.
func (f *file) add(name, from string, text []byte, took time.Duration) {
	removed := 0
	if !binary(name) {
		text, removed = support.Scrub(text, f.secrets...)
	}
	sum := sha256.Sum256(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+len(text) > maxBytes {
		f.manifest.Missing = append(f.manifest.Missing, Missing{name, fmt.Sprintf("the bundle has %d bytes already, and at most %d: ask for fewer nodes", f.bytes, maxBytes)})
		return
	}
	f.bytes += len(text)
	f.manifest.Removed += removed
	f.manifest.Parts = append(f.manifest.Parts, Part{Name: name, From: from, Bytes: len(text), SHA256: hex.EncodeToString(sum[:]), Took: took.Milliseconds()})
	f.write(name, text)
}

// write writes a file of the archive. The caller holds the lock.
func (f *file) write(name string, text []byte) {
	if f.failed != nil {
		return
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.root + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: f.manifest.Began, Format: tar.FormatPAX}
	if f.failed = f.archive.WriteHeader(header); f.failed == nil {
		_, f.failed = f.archive.Write(text)
	}
}

// miss notes what could not be had.
func (f *file) miss(what, why string) {
	clean, _ := support.Scrub([]byte(support.Printable(why)), f.secrets...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manifest.Missing = append(f.manifest.Missing, Missing{what, string(clean)})
}

// close writes the manifest and ends the file. If that fails, it removes the file.
func (f *file) close() (Manifest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manifest.Ended, f.manifest.Complete = time.Now().UTC(), len(f.manifest.Missing) == 0
	text, err := json.MarshalIndent(f.manifest, "", "  ")
	if err != nil {
		f.failed = errors.Join(f.failed, err)
	}
	f.write(manifestName, append(text, '\n'))
	err = f.failed
	for _, end := range []func() error{f.archive.Close, f.packed.Close, f.out.Sync, f.out.Close} {
		if failed := end(); err == nil {
			err = failed
		}
	}
	if err == nil {
		return f.manifest, nil
	}
	err = errors.Join(fmt.Errorf("the bundle could not be written: %w", err), os.Remove(f.path))
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; there is no room: name a folder of another file system with --file", err)
	}
	return f.manifest, err
}

// drop removes a file that is not wanted.
func (f *file) drop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.out.Close(), os.Remove(f.path))
}

// safeName is a name of another machine as it may stand in a path of the archive.
func safeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@", r) {
			return r
		}
		return '_'
	}, output.Visible(name))
	name = strings.Trim(name[:min(len(name), 64)], ".")
	if name == "" {
		return "_"
	}
	return name
}

// firstMissing is the first thing that could not be had, and why.
func (f *file) firstMissing() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.manifest.Missing) == 0 {
		return "there is nothing to ask"
	}
	return f.manifest.Missing[0].What + ": " + f.manifest.Missing[0].Why
}
