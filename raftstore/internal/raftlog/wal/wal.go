// Package wal is hashicorp/raft-wal 0.4.2 as a log store, with what it lacks: a note of
// where the log ended (tail.go), its meta database closed, and its errors in raft's
// words.
//
// Upstream:
//   - raft-wal takes damage in the file that it writes to for a write that a crash cut
//     short, and drops what follows, which this server acknowledged. No issue of
//     raft-wal's is known to us. Tests: TestDamagedTail; TestTailIsNoFalseAlarm for the
//     opposite. To be taken out when raft-wal keeps its end on disk and compares it.
//   - WAL.Close leaves the meta database open, so that the same process cannot open the
//     log again. No issue is known to us. Test: raftstore.TestRaftLogMoves. To be taken
//     out when Close closes it.
//   - GetLog returns entries that were deleted from the front as long as their file is
//     there, and types.ErrNotFound in place of raft.ErrLogNotFound. Test:
//     raftstore.TestWALCluster. To be taken out when it says raft.ErrLogNotFound.
//
// Before 0.4.1 raft-wal could not read a log again that was cut at its end (issue 31);
// TestTailIsNoFalseAlarm has that case.
package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/hashilog"
)

// Log is a write-ahead log with its meta database, which raft-wal opens and
// never closes: the next to open it in the same process would wait for ever.
type Log struct {
	*raftwal.WAL
	meta *metadb.BoltMetaDB
	tail *tail
}

// Open opens or makes the log in a folder, and fails if the log lacks what was noted
// of it, or if its files are damaged. Errors: disk.ErrTrouble, log.ErrCorrupt.
func Open(dir string, logger *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, disk.ErrTrouble, err)
	}
	if err := boltfile.CheckPages(filepath.Join(dir, metadb.FileName), true); err != nil {
		return nil, err
	}
	w := &Log{meta: new(metadb.BoltMetaDB)}
	err := boltfile.Guard(func() (err error) {
		w.WAL, err = raftwal.Open(dir, raftwal.WithMetaStore(w.meta), raftwal.WithLogger(hashilog.New(logger)))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: open: %w: %w", dir, disk.ErrTrouble, err), w.closeMeta())
	}
	var noted uint64
	if w.tail, noted, err = openTail(dir); err == nil {
		err = w.checkTail(dir, noted)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", disk.ErrTrouble, err), w.Close())
	}
	return w, nil
}

func (w *Log) closeMeta() error {
	if err := w.meta.Close(); err != nil && !errors.Is(err, metadb.ErrUnintialized) {
		return err
	}
	return nil
}

// Close closes the log with its meta database and its note.
func (w *Log) Close() error {
	var noted error
	if w.tail != nil {
		noted = w.tail.close()
	}
	return errors.Join(w.WAL.Close(), w.closeMeta(), noted)
}

// GetLog implements raft.LogStore. What was deleted from the front is gone, also
// if the file that it stood in is still there.
func (w *Log) GetLog(index uint64, entry *raft.Log) error {
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	if index < first {
		return raft.ErrLogNotFound
	}
	err = w.WAL.GetLog(index, entry)
	if errors.Is(err, types.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if errors.Is(err, segment.ErrTooBig) {
		return fmt.Errorf("%w: %w", log.ErrCorrupt, err)
	}
	return err
}
