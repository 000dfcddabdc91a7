package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
)

// Where raft's log can be. The stable store is raft.db in either case, and says
// under keyRaftLog which of the two holds the log.
const (
	RaftLogBolt = "boltdb" // raft.db: hashicorp/raft-boltdb
	RaftLogWAL  = "wal"    // the folder raft.wal: hashicorp/raft-wal
)

const walName = "raft.wal"

var keyRaftLog = []byte("rutter-raft-log")

// wal is a write-ahead log with its meta database, which raft-wal opens and
// never closes: the next to open it in the same process would wait for ever.
type wal struct {
	*raftwal.WAL
	meta *metadb.BoltMetaDB
	tail *walTail
}

func openWAL(dir string, logger *slog.Logger) (*wal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrDisk, err)
	}
	if err := boltfile.CheckPages(filepath.Join(dir, metadb.FileName), true); err != nil {
		return nil, err
	}
	w := &wal{meta: new(metadb.BoltMetaDB)}
	err := boltfile.Guard(func() (err error) {
		w.WAL, err = raftwal.Open(dir, raftwal.WithMetaStore(w.meta), raftwal.WithLogger(newRaftLogger(logger)))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: open: %w: %w", dir, ErrDisk, err), w.closeMeta())
	}
	var noted uint64
	if w.tail, noted, err = openTail(dir); err == nil {
		err = w.checkTail(dir, noted)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrDisk, err), w.close())
	}
	return w, nil
}

func (w *wal) closeMeta() error {
	if err := w.meta.Close(); err != nil && !errors.Is(err, metadb.ErrUnintialized) {
		return err
	}
	return nil
}

func (w *wal) close() error {
	var tail error
	if w.tail != nil {
		tail = w.tail.close()
	}
	return errors.Join(w.WAL.Close(), w.closeMeta(), tail)
}

// GetLog implements raft.LogStore. What was deleted from the front is gone, also
// if the file that it stood in is still there.
func (w *wal) GetLog(index uint64, entry *raft.Log) error {
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

// chooseLog opens the log store that is asked for, after it brought the entries
// over from the other one. The stable store's word counts: what the other one
// has is a copy that was not finished, or not yet removed.
func chooseLog(bolt *raftboltdb.BoltStore, dir, want string, logger *slog.Logger) (raft.LogStore, *wal, error) {
	have, err := bolt.Get(keyRaftLog)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil, err
	}
	from, err := logPlace(have)
	if err != nil {
		return nil, nil, err
	}
	walDir := filepath.Join(dir, walName)
	if from == RaftLogBolt && want == RaftLogBolt {
		return bolt, nil, removeWAL(walDir)
	}
	if from == RaftLogBolt {
		if err := removeWAL(walDir); err != nil {
			return nil, nil, err
		}
	}
	w, err := openWAL(walDir, logger)
	if err != nil {
		return nil, nil, err
	}
	if from == RaftLogWAL && want == RaftLogWAL {
		return w, w, orClose(emptyLog(bolt), w)
	}
	begun := time.Now()
	source, target := raft.LogStore(bolt), raft.LogStore(w)
	if from == RaftLogWAL {
		source, target = w, bolt
		err = emptyLog(bolt)
	}
	var n uint64
	if err == nil {
		n, err = copyLog(checkedLog{source}, checkedLog{target})
	}
	if err == nil {
		err = bolt.Set(keyRaftLog, sealValue(keyRaftLog, []byte(want)))
	}
	if err != nil {
		return nil, nil, orClose(fmt.Errorf("bring raft's log from %s to %s: %w", from, want, err), w)
	}
	logger.Info("raft's log was moved", "from", from, "to", want, "entries", n, "took", time.Since(begun))
	if want == RaftLogWAL {
		return w, w, orClose(emptyLog(bolt), w)
	}
	return bolt, nil, errors.Join(w.close(), removeWAL(walDir))
}

// logPlace reads the stable store's word; none is for raft.db.
func logPlace(sealed []byte) (string, error) {
	if sealed == nil {
		return RaftLogBolt, nil
	}
	place, err := openValue(keyRaftLog, sealed)
	if err != nil || string(place) != RaftLogBolt && string(place) != RaftLogWAL {
		return "", fmt.Errorf("%s: it says that the log is in %q: %w", changesdb.RaftName, place, log.ErrCorrupt)
	}
	return string(place), nil
}

func orClose(err error, w *wal) error {
	if err != nil {
		return errors.Join(err, w.close())
	}
	return nil
}

func removeWAL(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("%s: %w: %w", dir, ErrDisk, err)
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

// copyLog copies the entries from the end back to the first gap, which only
// stands before what a marker covers.
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
