package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
)

// logCacheEntries is how many raft entries stay in memory for the replication
// to followers, which else would be read back from the file and decoded.
const logCacheEntries = 64

// raftLog is raft's log and its stable store: raft-boltdb, tuned, with every
// I/O error reported. Raft panics when it cannot save a term or a vote, or read
// an entry that it must apply; the report comes before, and the goroutine that
// would panic ends instead, so that the server can stop in order (SAFETY P4).
type raftLog struct {
	raft.LogStore // early, above the cache above the checksums above bolt or wal
	early         *earlyLog
	terms         terms
	bolt          *raftboltdb.BoltStore
	wal           *wal // nil if bolt holds the log
	path          string
	ops           *disk.Ops // notes what is under way; may be nil
	report        func(error)
	live          atomic.Bool // raft's goroutines use it

	room   *atomic.Pointer[error] // why not even little is written now; nil: it is
	ending <-chan struct{}        // closed when the store ends
}

func openRaftLog(cfg *Config, leads func() bool, report func(error)) (*raftLog, error) {
	path := filepath.Join(cfg.Dir, changesdb.RaftName)
	if err := boltfile.CheckPages(path, true); err != nil {
		return nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:         boltfile.LockWait,
			NoFreelistSync:  true,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: cfg.MapBytes,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w: %w", path, ErrDisk, err)
	}
	logs, w, err := chooseLog(bolt, cfg.Dir, cfg.RaftLog, cfg.Logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %w", path, ErrDisk, err), bolt.Close())
	}
	l := &raftLog{bolt: bolt, wal: w, path: path, report: report}
	if w != nil {
		l.path = filepath.Join(cfg.Dir, walName)
	}
	cache, err := raft.NewLogCache(logCacheEntries, checkedLog{logs})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.early = newEarlyLog(cache, leads, func(err error) { _ = l.note("write entries", err) })
	l.LogStore = l.early
	return l, nil
}

// verify reads the log before raft does.
func (l *raftLog) verify(marker uint64) error {
	if err := verifyLog(l.LogStore, marker); err != nil {
		return fmt.Errorf("%s: %w: %w", l.path, ErrDisk, err)
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore: raft-wal takes no gaps.
func (l *raftLog) IsMonotonic() bool { return l.wal != nil }

// bytes is the size of the log's files.
func (l *raftLog) bytes() int64 {
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

func (l *raftLog) note(what string, err error) error {
	if err == nil || errors.Is(err, ErrNoRoom) || errors.Is(err, changesdb.ErrLagging) || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	err = fmt.Errorf("%s: %s: %w: %w", l.path, what, ErrDisk, err)
	l.report(err)
	return err
}

// GetLog implements raft.LogStore.
func (l *raftLog) GetLog(index uint64, entry *raft.Log) error {
	err := l.LogStore.GetLog(index, entry)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return l.orExit(l.note(fmt.Sprintf("read entry %d", index), err))
}

// StoreLog implements raft.LogStore.
func (l *raftLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. After an error the entries may be on disk
// or not, and may yet be committed (SAFETY P3).
func (l *raftLog) StoreLogs(entries []*raft.Log) error {
	return l.note("write entries", l.LogStore.StoreLogs(entries))
}

// trimAtOnce is how many old entries one transaction deletes. New ones wait for
// it: 400 entries of 130 KB took 104 ms on a busy machine.
const trimAtOnce = 64

// DeleteRange implements raft.LogStore. Old entries go in steps, the oldest first,
// so that what is left is whole after each; new ones that another leader's replace
// go at once.
func (l *raftLog) DeleteRange(lo, hi uint64) error {
	first, err := l.FirstIndex()
	for ; err == nil && l.wal == nil && lo <= first && hi-lo >= trimAtOnce; lo, first = lo+trimAtOnce, lo+trimAtOnce {
		err = l.LogStore.DeleteRange(lo, lo+trimAtOnce-1)
	}
	if err == nil {
		err = l.LogStore.DeleteRange(lo, hi)
	}
	return l.note("trim", err)
}

// Set implements raft.StableStore.
func (l *raftLog) Set(key, value []byte) error {
	if err := l.awaitRoom(); err != nil {
		return l.orExit(err)
	}
	op := l.ops.Begin("saving a term or vote in raft.db", 1)
	err := boltfile.Guard(func() error { return l.bolt.Set(key, sealValue(key, value)) })
	l.ops.End(op)
	return l.orExit(l.note("save "+string(key), err))
}

// awaitRoom waits until there is room for a term or a vote. Raft panics where it
// cannot save one, and a server that ended for that would find no room either when it
// starts again.
func (l *raftLog) awaitRoom() error {
	look := time.NewTicker(roomLook)
	defer look.Stop()
	for err := errorIn(l.room); err != nil; err = errorIn(l.room) {
		select {
		case <-look.C:
		case <-l.ending:
			return err
		}
	}
	return nil
}

// Get implements raft.StableStore.
func (l *raftLog) Get(key []byte) ([]byte, error) {
	var value []byte
	err := boltfile.Guard(func() (err error) {
		if value, err = l.bolt.Get(key); err == nil {
			value, err = openValue(key, value)
		}
		return err
	})
	return value, l.note("read "+string(key), err)
}

// SetUint64 implements raft.StableStore.
func (l *raftLog) SetUint64(key []byte, value uint64) error {
	set := func() error { return l.Set(key, binary.BigEndian.AppendUint64(nil, value)) }
	if bytes.Equal(key, keyCurrentTerm) {
		return l.terms.save(value, set)
	}
	return set()
}

// GetUint64 implements raft.StableStore.
func (l *raftLog) GetUint64(key []byte) (uint64, error) {
	value, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, l.note("read "+string(key), fmt.Errorf("a number of %d bytes: %w", len(value), log.ErrCorrupt))
	}
	number := binary.BigEndian.Uint64(value)
	if bytes.Equal(key, keyCurrentTerm) {
		l.terms.saved.Store(number)
	}
	return number, nil
}

// orExit ends the calling goroutine, one of raft's, after an error: to go on
// would break raft's promises, to return it would make raft panic.
func (l *raftLog) orExit(err error) error {
	if err != nil && l.live.Load() {
		runtime.Goexit()
	}
	return err
}

func (l *raftLog) close() error {
	var err error
	if l.wal != nil {
		err = l.wal.close()
	}
	return errors.Join(err, l.bolt.Close())
}

// raftConfig is raft's configuration for ours.
func raftConfig(cfg *Config, logger *slog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = cfg.Heartbeat, cfg.Election
	c.LeaderLeaseTimeout, c.CommitTimeout = cfg.LeaderLease, cfg.CommitTimeout
	c.MaxAppendEntries = maxAppendEntries
	c.TrailingLogs = cfg.TrailingLogs
	c.SnapshotInterval, c.SnapshotThreshold = cfg.MarkerEvery, cfg.MarkerEntries
	c.NoSnapshotRestoreOnStart = true // changes.db is what a snapshot would restore
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = newRaftLogger(logger)
	return c
}

// maxAppendEntries bounds what raft sends a follower at once; our entries are
// batches already.
const maxAppendEntries = 64

// raftLogger hands raft's messages to slog. What it does not override comes
// from hclog's own null logger.
type raftLogger struct {
	hclog.Logger
	logger *slog.Logger
}

func newRaftLogger(logger *slog.Logger) hclog.Logger {
	return raftLogger{hclog.NewNullLogger(), logger.With("part", "raft")}
}

// Raft tells of each snapshot and trim; ours are markers, set every few
// seconds, and nothing to tell. Its Info is our Debug.

func (l raftLogger) Trace(string, ...any)           {}
func (l raftLogger) Debug(msg string, args ...any)  { l.logger.Debug(msg, plain(args)...) }
func (l raftLogger) Info(msg string, args ...any)   { l.logger.Debug(msg, plain(args)...) }
func (l raftLogger) Warn(msg string, args ...any)   { l.tell(msg, args) }
func (l raftLogger) Error(msg string, args ...any)  { l.tell(msg, args) }
func (l raftLogger) Named(string) hclog.Logger      { return l }
func (l raftLogger) ResetNamed(string) hclog.Logger { return l }

func (l raftLogger) With(args ...any) hclog.Logger {
	return raftLogger{l.Logger, l.logger.With(plain(args)...)}
}

// Log implements hclog.Logger.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	switch level {
	case hclog.Info, hclog.Debug:
		l.Debug(msg, args...)
	case hclog.Warn, hclog.Error:
		l.Warn(msg, args...)
	}
}

// tell says what raft holds for trouble; not that a connection ended, which is
// what they do when a server stops.
func (l raftLogger) tell(msg string, args []any) {
	level := slog.LevelWarn
	for _, arg := range args {
		if err, ok := arg.(error); ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, raft.ErrTransportShutdown)) {
			level = slog.LevelDebug
		}
	}
	l.logger.Log(context.Background(), level, msg, plain(args)...)
}

// plain turns hclog's lazy formats into text.
func plain(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		if format, ok := arg.(hclog.Format); ok && len(format) > 0 {
			if text, ok := format[0].(string); ok {
				out[i] = fmt.Sprintf(text, format[1:]...)
			}
		}
	}
	return out
}

// enqueueTimeout bounds how long raft may take to pick an entry up.
const enqueueTimeout = time.Second
