package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of the file, and why.
const (
	// DefaultBytes is the size at which a file is rotated. Two files hold some 100,000
	// records.
	DefaultBytes = 8 << 20
	// maxField bounds each text of a record, in bytes: unknown clients choose the
	// paths.
	maxField = 512
	// PerSecond bounds the records of one second. The first records show what a flood
	// consists of; the others are only counted.
	PerSecond = 100

	// writeWait is how long a caller of Note waits until its record is in the file:
	// many times what a healthy disk takes. maxPending bounds the records that wait for
	// a slow disk; more are only counted.
	writeWait  = 100 * time.Millisecond
	maxPending = 10 * PerSecond
	// closeWait is how long Close waits for the disk.
	closeWait = time.Second

	fileMode   = 0o600
	folderMode = 0o700
	// Name is the file's name in a data folder. The previous file has the suffix .1.
	Name = "audit.ndjson"
)

// Event is the type of a record.
type Event string

// The events.
const (
	Refused       Event = "refused"       // by the matrix
	Accepted      Event = "accepted"      // a removal on a compute node, by an operator
	Limited       Event = "limited"       // by a limit on what one identity may have
	Authenticated Event = "authenticated" // a connection with a certificate
	Handshake     Event = "handshake"     // one that did not get so far
	Disbelieved   Event = "disbelieved"   // a compute node's report about itself that cannot be true
	Inspected     Event = "inspected"     // a part of a support bundle was asked for
	Missed        Event = "missed"        // Count records of one second were left out
)

// Record is one line.
type Record struct {
	Time   time.Time `json:"time"`
	Event  Event     `json:"event"`
	Actor  string    `json:"actor,omitempty"`
	Serial string    `json:"serial,omitempty"` // of the certificate
	Remote string    `json:"remote,omitempty"` // address
	Asked  string    `json:"asked,omitempty"`  // METHOD /path without its query, a frame, or a limit
	Why    string    `json:"why,omitempty"`
	Count  int       `json:"count,omitempty"`
}

// Config says where the file is and how large it may become.
type Config struct {
	Folder string // created with mode 0700 if it does not exist
	Bytes  int64  // of one file; default DefaultBytes
	Now    func() time.Time
}

// Log is the file. A nil Log accepts records and keeps none.
//
// A goroutine writes while there are records. A caller of Note waits for it for at most
// writeWait: a disk that hangs must not delay a client of the server.
type Log struct {
	cfg Config

	mu      sync.Mutex // protects what follows; not held while writing
	pending []Record
	flushed chan struct{} // closed when the pending records are written; nil: no goroutine writes
	closed  bool
	second  int64
	written int // in that second
	missed  int
	failed  error // the last failure to write; nil after a success

	// file and size are used by the writing goroutine, and by Close after it.
	file *os.File
	size int64
}

// Open opens the file for appending. Close must be called.
func Open(cfg Config) (*Log, error) {
	if cfg.Folder == "" {
		return nil, errors.New("audit: Config.Folder is missing")
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = DefaultBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Folder, folderMode); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	l := &Log{cfg: cfg}
	return l, l.open()
}

func (l *Log) path() string { return filepath.Join(l.cfg.Folder, Name) }

func (l *Log) open() error {
	file, err := os.OpenFile(l.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Chmod(fileMode) // of a file that existed before
	}
	if err != nil {
		return fmt.Errorf("audit: %w", errors.Join(err, file.Close()))
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Note writes a record, unless the bound of this second is reached. The first record of
// a later second has the count of those left out.
func (l *Log) Note(r Record) {
	if l == nil {
		return
	}
	flushed := l.take(r)
	if flushed == nil {
		return
	}
	timer := time.NewTimer(writeWait)
	defer timer.Stop()
	select {
	case <-flushed:
	case <-timer.C:
	}
}

// take appends a record to the pending ones if there is room, and returns a channel
// that is closed when it is written.
func (l *Log) take(r Record) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	now := l.cfg.Now()
	if second := now.Unix(); second != l.second {
		missed := l.missed
		l.second, l.written, l.missed = second, 0, 0
		if missed > 0 {
			l.pending = append(l.pending, Record{Time: now, Event: Missed, Count: missed})
		}
	}
	if l.written++; l.written > PerSecond || len(l.pending) >= maxPending {
		l.missed++
		return nil
	}
	r.Time = now
	l.pending = append(l.pending, r)
	if l.flushed == nil {
		l.flushed = make(chan struct{})
		go l.flush()
	}
	return l.flushed
}

// flush writes the pending records until there are none.
func (l *Log) flush() {
	for {
		l.mu.Lock()
		records := l.pending
		l.pending = nil
		if len(records) == 0 {
			close(l.flushed)
			l.flushed = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, r := range records {
			err := l.write(r)
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
		}
	}
}

func (l *Log) write(r Record) error {
	for _, text := range []*string{&r.Actor, &r.Serial, &r.Remote, &r.Asked, &r.Why} {
		if len(*text) > maxField {
			*text = strings.ToValidUTF8((*text)[:maxField], "")
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if l.file == nil || l.size > 0 && l.size+int64(len(line)) > l.cfg.Bytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	return err
}

// rotate rotates: it renames the file over the previous one and opens a new one.
func (l *Log) rotate() error {
	file := l.file
	l.file = nil
	if file == nil { // the last rotation could not open a new one
		return l.open()
	}
	if err := errors.Join(file.Close(), os.Rename(l.path(), l.path()+".1")); err != nil {
		return errors.Join(err, l.open())
	}
	return l.open()
}

// Err returns why the last record could not be written, or nil.
func (l *Log) Err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Close closes the file. Later records are dropped. It waits at most closeWait for the
// disk.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	again := l.closed
	l.closed = true
	flushed := l.flushed
	l.mu.Unlock()
	if flushed != nil {
		timer := time.NewTimer(closeWait)
		defer timer.Stop()
		select {
		case <-flushed:
		case <-timer.C:
			return errors.New("audit: the disk hangs: what was noted last is not in the file")
		}
	}
	if again || l.file == nil {
		return nil
	}
	return l.file.Close()
}
