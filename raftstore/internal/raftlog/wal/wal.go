// Package wal is hashicorp/raft-wal 0.4.2 as a log store, with five additions: a note of
// the end of the log (tail.go), closing the meta database after a failed open, hiding
// deleted entries, taking entries after a gap (closeGap), and syncing without the times of
// files (files.go).
//
// Upstream:
//   - raft-wal takes damage in the file that it writes to for a write that a crash cut
//     short, and drops what follows, which this server acknowledged. No issue of
//     raft-wal's is known to us. Tests: TestDamagedTail; TestTailIsNoFalseAlarm for the
//     opposite. To be taken out when raft-wal keeps its end on disk and compares it.
//   - A raftwal.Open that fails leaves the meta database open, and the next one in the
//     same process waits for its lock without end. No issue is known to us (WAL.Close closes
//     it since pull request 28). Test: TestFailedOpenLetsGo. To be taken out when an Open that fails closes what it opened.
//   - WAL.GetLog returns entries that were deleted from the front as long as their file
//     is there. No issue is known to us. Test: TestDeletedEntriesAreGone. To be taken out
//     when it returns raft.ErrLogNotFound.
//   - It takes no entries after a gap, such as a snapshot leaves. Raft 1.7.3 therefore
//     deletes the whole log of a raft.MonotonicLogStore when it installs a snapshot, also
//     entries after the snapshot that this server has acknowledged, and assumes that it
//     still has them: then it panics at the next commit (raft issue 697, pull request
//     704, both open). So this log is no MonotonicLogStore, and closes gaps itself. Test:
//     raftlog.TestSnapshotBehindLog. To be taken out when raft keeps these entries.
//
// Before 0.4.1 raft-wal could not read a log that was cut at its end (issue 31);
// TestTailIsNoFalseAlarm has that case.
package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/hashilog"
)

// SegmentBytes is the size of each file of the log, allocated in advance. The library's
// default, 64 MiB, is much for a server that is idle.
const SegmentBytes = 16 << 20

// Log is a write-ahead log.
type Log struct {
	*raftwal.WAL
	tail *tail
}

// Open opens or makes the log in a folder. It fails if the log ends before the noted
// index, or if its files are damaged. Errors: disk.ErrTrouble, log.ErrCorrupt.
func Open(dir string, logger *slog.Logger) (*Log, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, disk.ErrTrouble, err)
	}
	if err := boltfile.CheckPages(filepath.Join(dir, metadb.FileName), true); err != nil {
		return nil, err
	}
	w, meta := new(Log), new(metadb.BoltMetaDB)
	err := boltfile.Guard(func() (err error) {
		w.WAL, err = raftwal.Open(dir, raftwal.WithMetaStore(meta), raftwal.WithSegmentSize(SegmentBytes),
			raftwal.WithSegmentFiler(segment.NewFiler(dir, files{walfs.New()})), raftwal.WithLogger(hashilog.New(logger)))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: open: %w: %w", dir, disk.ErrTrouble, err), meta.Close())
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

// makeDir makes the folder of a log, if it is not there, and its name durable: raft-wal syncs
// the names in the folder, and not the folder's own.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return disk.SyncDir(filepath.Dir(dir))
}

// Close closes the log and its note.
func (w *Log) Close() error {
	var noted error
	if w.tail != nil {
		noted = w.tail.close()
	}
	return errors.Join(w.WAL.Close(), noted)
}

// GetLog implements raft.LogStore. Entries that were deleted from the front are not
// found, also if their file still exists.
func (w *Log) GetLog(index uint64, entry *raft.Log) error {
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	if index < first {
		return raft.ErrLogNotFound
	}
	err = w.WAL.GetLog(index, entry)
	if errors.Is(err, segment.ErrTooBig) {
		return fmt.Errorf("%w: %w", log.ErrCorrupt, err)
	}
	return err
}
