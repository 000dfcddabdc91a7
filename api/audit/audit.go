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
	// DefaultBytes is when a file is put aside. Two of them hold some 100,000 records.
	DefaultBytes = 8 << 20
	// maxField bounds each text of a record: paths are chosen by strangers.
	maxField = 512
	// PerSecond bounds the records of one second. What a flood is made of is seen
	// from the first ones, and the count of the rest is kept.
	PerSecond = 100

	fileMode   = 0o600
	folderMode = 0o700
	// Name is the file's name in a data folder; the one before it ends in .1.
	Name = "audit.ndjson"
)

// Event is what a record tells of.
type Event string

// The events.
const (
	Refused       Event = "refused"       // by the matrix
	Accepted      Event = "accepted"      // a removal on a compute node, by an operator
	Limited       Event = "limited"       // by a limit on what one identity may have
	Authenticated Event = "authenticated" // a connection with a certificate
	Handshake     Event = "handshake"     // one that did not get so far
	Disbelieved   Event = "disbelieved"   // what a compute node said of itself cannot be
	Missed        Event = "missed"        // Count records of a second had no place
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

// Config says where and how much.
type Config struct {
	Folder string // made with mode 0700 if it is not there
	Bytes  int64  // of one file; default DefaultBytes
	Now    func() time.Time
}

// Log is the file. A nil Log takes records and keeps none.
type Log struct {
	cfg Config

	mu      sync.Mutex // protects what follows
	file    *os.File
	size    int64
	second  int64
	written int // in that second
	missed  int
	failed  error // the last failure to write, until one succeeds
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
	return l, l.openLocked()
}

func (l *Log) path() string { return filepath.Join(l.cfg.Folder, Name) }

func (l *Log) openLocked() error {
	file, err := os.OpenFile(l.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Chmod(fileMode) // of a file that was there before
	}
	if err != nil {
		return fmt.Errorf("audit: %w", errors.Join(err, file.Close()))
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Note writes a record, unless this second has had its share; what was left out
// is counted in the first record of a later second.
func (l *Log) Note(r Record) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	if l.file == nil {
		return
	}
	if second := now.Unix(); second != l.second {
		missed := l.missed
		l.second, l.written, l.missed = second, 0, 0
		if missed > 0 {
			l.writeLocked(Record{Time: now, Event: Missed, Count: missed})
		}
	}
	if l.written++; l.written > PerSecond {
		l.missed++
		return
	}
	r.Time = now
	l.writeLocked(r)
}

func (l *Log) writeLocked(r Record) {
	for _, text := range []*string{&r.Actor, &r.Serial, &r.Remote, &r.Asked, &r.Why} {
		if len(*text) > maxField {
			*text = strings.ToValidUTF8((*text)[:maxField], "")
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		l.failed = err
		return
	}
	line = append(line, '\n')
	if l.size > 0 && l.size+int64(len(line)) > l.cfg.Bytes {
		if l.failed = l.turnLocked(); l.failed != nil {
			return
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	l.failed = err
}

// turnLocked puts the file aside, over the one before it.
func (l *Log) turnLocked() error {
	file := l.file
	l.file = nil
	if err := errors.Join(file.Close(), os.Rename(l.path(), l.path()+".1")); err != nil {
		return errors.Join(err, l.openLocked())
	}
	return l.openLocked()
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

// Close closes the file; records after it are dropped.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.file
	l.file = nil
	if file == nil {
		return nil
	}
	return file.Close()
}
