package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog/checked"
	"rutter/raftstore/internal/raftlog/early"
	"rutter/raftstore/internal/raftlog/wal"
)

// logCacheEntries is how many raft entries stay in memory for the replication to
// followers. Other entries are read from the file and decoded.
const logCacheEntries = 64

// Log is raft's log and its stable store: raft-boltdb, tuned, with every I/O error
// reported. Raft panics when it cannot save a term or a vote, or read an entry that it
// must apply. Log reports the error first, and the goroutine that would panic ends
// instead, so that the server can stop in order (SAFETY P4).
//
// Each entry passes early, a cache, checked, and then bolt or wal.
type Log struct {
	*early.Log
	bolt *raftboltdb.BoltStore
	wal  *wal.Log // nil if bolt has the log
	path string   // of the entries
	opts Options
	live atomic.Bool // raft's goroutines use the log
}

// Options are the options of a Log.
type Options struct {
	Dir      string // the data folder
	Kind     string // Bolt or WAL: a log of the other kind is moved; "": see Open
	MapBytes int    // address space for raft.db
	Logger   *slog.Logger
	// Leads reports whether raft leads. Raft's main goroutine calls it when it stores.
	Leads func() bool
	// Changes reports whether a command is a batch of changes. A leader sends these
	// without waiting for its own disk.
	Changes func(command []byte) bool
	// Report is called with every error of the disk, before that is returned.
	Report func(error)
	// Admit returns why entries must not be stored now, or nil. A nil Admit admits all.
	Admit func([]*raft.Log) error
	// Ops watches the operations under way; may be nil.
	Ops *disk.Ops
	// Full returns why not even a term or a vote may be written now, or nil. A nil Full
	// allows all.
	Full func() error
	// Ending is closed when the server ends: then no write waits for free space.
	Ending <-chan struct{}
}

// Open opens or makes the log. The caller must call Verify next. Without a kind of the
// options, a log that has entries stays where it is, and one that has none yet is a WAL.
// Errors: disk.ErrTrouble, log.ErrCorrupt.
func Open(opts Options) (*Log, error) {
	path := filepath.Join(opts.Dir, FileName)
	if err := boltfile.CheckPages(path, true); err != nil {
		return nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:         boltfile.LockWait,
			NoFreelistSync:  true,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: opts.MapBytes,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w: %w", path, disk.ErrTrouble, err)
	}
	logs, w, err := chooseLog(bolt, opts.Dir, opts.Kind, opts.Logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err), bolt.Close())
	}
	l := &Log{bolt: bolt, wal: w, path: path, opts: opts}
	if w != nil {
		l.path = filepath.Join(opts.Dir, WALName)
	}
	cache, err := raft.NewLogCache(logCacheEntries, checked.Log{LogStore: logs})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.Log = early.New(cache, early.Options{
		Leads: opts.Leads, Changes: opts.Changes, Admit: opts.Admit, Ops: opts.Ops,
		Report: func(err error) { _ = l.note("write entries", err) },
	})
	return l, nil
}

// Verify reads the whole log before raft does. The entries after marker, a raft index,
// must be there. Errors: disk.ErrTrouble, log.ErrCorrupt.
func (l *Log) Verify(marker uint64) error {
	if err := checked.Verify(l.Log, marker); err != nil {
		return fmt.Errorf("%s: %w: %w", l.path, disk.ErrTrouble, err)
	}
	return nil
}

// Kind returns where the log is: Bolt or WAL.
func (l *Log) Kind() string {
	if l.wal != nil {
		return WAL
	}
	return Bolt
}

// FreeBytes returns how many bytes the log can grow by within its file.
func (l *Log) FreeBytes() int64 {
	if l.wal != nil {
		return 0
	}
	return boltfile.FreeBytes(l.bolt.Stats())
}

// Bytes returns the size of the log's files.
func (l *Log) Bytes() int64 {
	if l.wal == nil {
		return disk.FileSize(l.path)
	}
	files, err := os.ReadDir(l.path)
	if err != nil {
		return 0
	}
	var total int64
	for _, f := range files {
		total += disk.FileSize(filepath.Join(l.path, f.Name()))
	}
	return total
}

// note reports an error of the entries' file, with the operation.
func (l *Log) note(what string, err error) error { return l.noteOf(l.path, what, err) }

// noteStable is note of raft.db, which has terms and votes.
func (l *Log) noteStable(what string, err error) error {
	return l.noteOf(filepath.Join(l.opts.Dir, FileName), what, err)
}

func (l *Log) noteOf(path, what string, err error) error {
	var refusal early.Refusal
	if err == nil || errors.As(err, &refusal) || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	err = fmt.Errorf("%s: %s: %w: %w", path, what, disk.ErrTrouble, err)
	l.opts.Report(err)
	return err
}

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, entry *raft.Log) error {
	err := l.Log.GetLog(index, entry)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return l.orExit(l.note(fmt.Sprintf("read entry %d", index), err))
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. After an error the entries may be on disk or not,
// and may be committed later (SAFETY P3).
func (l *Log) StoreLogs(entries []*raft.Log) error {
	return l.note("write entries", l.Log.StoreLogs(entries))
}

// trimAtOnce is how many old entries one transaction deletes. New entries wait for that
// transaction: 400 entries of 130 KB took 104 ms on a busy machine.
const trimAtOnce = 64

// DeleteRange implements raft.LogStore. Old entries are deleted in steps, the oldest
// first, so that the rest has no gap after each step. The last old entry stays: it may be
// that of the snapshot, whose term a follower is asked for. New entries that another
// leader's entries replace are deleted at once.
func (l *Log) DeleteRange(lo, hi uint64) error {
	first, err := l.FirstIndex()
	if err != nil {
		return l.note("trim", err)
	}
	if last, err := l.LastIndex(); err != nil {
		return l.note("trim", err)
	} else if lo <= first && hi < last {
		hi--
	}
	if hi < lo {
		return nil
	}
	for ; err == nil && l.wal == nil && lo <= first && hi-lo >= trimAtOnce; lo, first = lo+trimAtOnce, lo+trimAtOnce {
		err = l.Log.DeleteRange(lo, lo+trimAtOnce-1)
	}
	if err == nil {
		err = l.Log.DeleteRange(lo, hi)
	}
	return l.note("trim", err)
}

// Set implements raft.StableStore.
func (l *Log) Set(key, value []byte) error {
	if err := l.awaitSpace(); err != nil {
		return l.orExit(err)
	}
	l.opts.Ops.Before("saving a term or vote in raft.db", 1)
	op := l.opts.Ops.Begin("saving a term or vote in raft.db", 1)
	err := boltfile.Guard(func() error { return l.bolt.Set(key, checked.Seal(key, value)) })
	l.opts.Ops.End(op)
	return l.orExit(l.noteStable("save "+string(key), err))
}

// spaceEvery is the time between two checks for the space for a term or a vote.
const spaceEvery = 50 * time.Millisecond

// awaitSpace waits until there is space for a term or a vote. Raft panics if it cannot
// save one, and a server that ended for that reason would not find space at its next
// start either.
func (l *Log) awaitSpace() error {
	if l.opts.Full == nil {
		return nil
	}
	look := time.NewTicker(spaceEvery)
	defer look.Stop()
	for err := l.opts.Full(); err != nil; err = l.opts.Full() {
		select {
		case <-look.C:
		case <-l.opts.Ending:
			return err
		}
	}
	return nil
}

// Get implements raft.StableStore.
func (l *Log) Get(key []byte) ([]byte, error) {
	var value []byte
	err := boltfile.Guard(func() (err error) {
		if value, err = l.bolt.Get(key); err == nil {
			value, err = checked.Open(key, value)
		}
		return err
	})
	return value, l.noteStable("read "+string(key), err)
}

// SetUint64 implements raft.StableStore.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	value, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, l.noteStable("read "+string(key), fmt.Errorf("a number of %d bytes: %w", len(value), log.ErrCorrupt))
	}
	return binary.BigEndian.Uint64(value), nil
}

// SetLive sets whether raft's goroutines use the log. If so, a goroutine ends where raft
// would panic about an error.
func (l *Log) SetLive(live bool) { l.live.Store(live) }

// orExit ends the calling goroutine, one of raft's, after an error. Going on would break
// raft's promises, and returning the error would make raft panic.
func (l *Log) orExit(err error) error {
	if err != nil && l.live.Load() {
		runtime.Goexit()
	}
	return err
}

// Close closes the files.
func (l *Log) Close() error {
	var err error
	if l.wal != nil {
		err = l.wal.Close()
	}
	return errors.Join(err, l.bolt.Close())
}
