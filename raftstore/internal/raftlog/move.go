package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"rutter/log"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog/checked"
	"rutter/raftstore/internal/raftlog/wal"
)

// chooseLog opens the wanted log store, after it copied the entries from the other one.
// The record in the stable store says where the log is: entries in the other store are a
// copy that was not finished, or not yet removed. Without a record they are in bolt. If
// want is "", they stay where they are; a log without record and entries begins as a WAL.
func chooseLog(bolt *raftboltdb.BoltStore, dir, want string, logger *slog.Logger) (raft.LogStore, *wal.Log, error) {
	have, err := bolt.Get(keyKind)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil, err
	}
	from, err := logKind(have)
	if err != nil {
		return nil, nil, err
	}
	walDir := filepath.Join(dir, WALName)
	if have == nil {
		last, err := bolt.LastIndex()
		if err == nil && last == 0 {
			err = checkOrphan(walDir, logger)
			want = cmp.Or(want, WAL)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	want = cmp.Or(want, from)
	if from == Bolt && want == Bolt {
		return bolt, nil, removeFolder(walDir)
	}
	if from == Bolt {
		if err := removeFolder(walDir); err != nil {
			return nil, nil, err
		}
	}
	w, err := wal.Open(walDir, logger)
	if err != nil {
		return nil, nil, err
	}
	if from == WAL && want == WAL {
		return w, w, orClose(emptyLog(bolt), w)
	}
	begun := time.Now()
	source, target := raft.LogStore(bolt), raft.LogStore(w)
	if from == WAL {
		source, target = w, bolt
		err = emptyLog(bolt)
	}
	var n uint64
	if err == nil {
		n, err = copyLog(checked.Log{LogStore: source}, checked.Log{LogStore: target})
	}
	if err == nil {
		err = bolt.Set(keyKind, checked.Seal(keyKind, []byte(want)))
	}
	if err != nil {
		return nil, nil, orClose(fmt.Errorf("bring raft's log from %s to %s: %w", from, want, err), w)
	}
	if n > 0 {
		logger.Info("raft's log was moved", "from", from, "to", want, "entries", n, "took", time.Since(begun))
	}
	if want == WAL {
		return w, w, orClose(emptyLog(bolt), w)
	}
	return bolt, nil, errors.Join(w.Close(), removeFolder(walDir))
}

// checkOrphan returns an error if there are entries in a raft.wal beside a raft.db that has
// neither entries nor a record: raft.db, with the votes, was lost, and the entries, some of
// which may be nowhere else, must not be.
func checkOrphan(walDir string, logger *slog.Logger) error {
	if _, err := os.Stat(walDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	w, err := wal.Open(walDir, logger)
	if err != nil {
		return err
	}
	last, err := w.LastIndex()
	if err = errors.Join(err, w.Close()); err != nil || last == 0 {
		return err
	}
	return fmt.Errorf("it is new, and %s has entries up to %d: %s was lost. Bring it back; or, if it is gone, remove this server from the cluster, and let it join with an empty folder: %w", walDir, last, FileName, log.ErrCorrupt)
}

// logKind reads the record in the stable store. Without one the log is in raft.db.
func logKind(sealed []byte) (string, error) {
	if sealed == nil {
		return Bolt, nil
	}
	kind, err := checked.Open(keyKind, sealed)
	if err != nil || string(kind) != Bolt && string(kind) != WAL {
		return "", fmt.Errorf("%s: it says that the log is in %q: %w", FileName, kind, log.ErrCorrupt)
	}
	return string(kind), nil
}

func orClose(err error, w *wal.Log) error {
	if err != nil {
		return errors.Join(err, w.Close())
	}
	return nil
}

func removeFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("%s: %w: %w", dir, disk.ErrTrouble, err)
	}
	return nil
}

// emptyLog deletes all entries.
func emptyLog(logs raft.LogStore) error {
	first, err := logs.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	return logs.DeleteRange(first, last)
}

// copyChunk is how many entries are copied with one fsync.
const copyChunk = 256

// copyLog copies the entries from the end back to the first gap. There is a gap only
// before the entries that follow a marker.
func copyLog(from, to raft.LogStore) (n uint64, err error) {
	first, err := from.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := from.LastIndex()
	if err != nil || last == 0 {
		return 0, err
	}
	begin := last
	for begin > first {
		var entry raft.Log
		if err := from.GetLog(begin-1, &entry); errors.Is(err, raft.ErrLogNotFound) {
			break
		} else if err != nil {
			return 0, err
		}
		begin--
	}
	for i := begin; i <= last; i += copyChunk {
		var chunk []*raft.Log
		for j := i; j <= min(last, i+copyChunk-1); j++ {
			entry := new(raft.Log)
			if err := from.GetLog(j, entry); err != nil {
				return 0, err
			}
			chunk = append(chunk, entry)
		}
		if err := to.StoreLogs(chunk); err != nil {
			return 0, err
		}
	}
	return last - begin + 1, nil
}
