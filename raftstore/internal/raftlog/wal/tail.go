package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// raft-wal takes damage in the file that it writes to for a write that a crash cut short,
// and drops what follows: entries that this server acknowledged. So tail notes the end of
// the log after each sync of it. The note itself is not synced: after a power cut it may
// be older, but it never names an entry that was not synced. Only when the log is cut at
// its end, the note must be on disk first.
//
// The file has one note in one sector: | last index (8) | CRC32C of it (4) |. A note
// whose checksum does not fit is ignored.
type tail struct {
	file *os.File // nil: no note was written yet
	path string
}

const (
	tailName  = "last"
	tailBytes = 12
)

var tailKey = []byte("raft.wal/last")

// openTail returns the tail of a folder, and the noted index, or 0.
func openTail(dir string) (t *tail, noted uint64, err error) {
	t = &tail{path: filepath.Join(dir, tailName)}
	t.file, err = os.OpenFile(t.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return t, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var b [tailBytes]byte
	if _, err := t.file.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, errors.Join(err, t.file.Close())
	}
	if binary.BigEndian.Uint32(b[8:]) == disk.Checksum(tailKey, b[:8]) {
		noted = binary.BigEndian.Uint64(b[:])
	}
	return t, noted, nil
}

// note notes that the log, synced, ends at last.
func (t *tail) note(last uint64) (err error) {
	if t.file == nil {
		if t.file, err = os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, tailBytes), last)
	_, err = t.file.WriteAt(binary.BigEndian.AppendUint32(b, disk.Checksum(tailKey, b)), 0)
	return err
}

func (t *tail) close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil // a log that failed may be closed twice
	return err
}

// checkTail returns an error unless the log reaches the noted index.
func (w *Log) checkTail(dir string, noted uint64) error {
	last, err := w.LastIndex()
	if err != nil || last >= noted {
		return err
	}
	return fmt.Errorf("%s: it ends at entry %d, and had entry %d on disk: its end is damaged: %w", dir, last, noted, log.ErrCorrupt)
}

// StoreLogs implements raft.LogStore. If there is a gap before the entries, all older ones
// are deleted first.
func (w *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	if err := w.closeGap(entries[0].Index); err != nil {
		return err
	}
	if err := w.WAL.StoreLogs(entries); err != nil {
		return err
	}
	return w.tail.note(entries[len(entries)-1].Index)
}

// StoreLog implements raft.LogStore.
func (w *Log) StoreLog(entry *raft.Log) error { return w.StoreLogs([]*raft.Log{entry}) }

// closeGap deletes all entries if they end before next-1. Raft stores entries after a gap
// only if a snapshot, which is on disk, reaches to next-1.
func (w *Log) closeGap(next uint64) error {
	last, err := w.LastIndex()
	if err != nil || last == 0 || next <= last+1 {
		return err
	}
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	return w.DeleteRange(first, last)
}

// DeleteRange implements raft.LogStore.
func (w *Log) DeleteRange(lo, hi uint64) error {
	last, err := w.LastIndex()
	if err != nil {
		return err
	}
	if hi < last {
		return w.WAL.DeleteRange(lo, hi)
	}
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	left := uint64(0) // all entries are deleted
	if lo > first {
		left = lo - 1
	}
	if err := w.tail.note(min(left, last)); err != nil {
		return err
	}
	if err := w.tail.file.Sync(); err != nil {
		return err
	}
	return w.WAL.DeleteRange(lo, hi)
}
