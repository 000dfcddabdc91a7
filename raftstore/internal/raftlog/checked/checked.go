// Package checked puts a CRC32C into each entry on its way to a log store and checks it
// on the way back (Log), does the same for the values of the stable store (Seal, Open),
// and reads a whole log before raft does (Verify).
//
// Upstream: raft-boltdb 2.3.1 stores entries, terms and votes without checksums, so that
// a flipped bit is applied or voted with; and raft 1.7.3 panics at a start about entries
// that it cannot read. We know of no issue of either about it.
//
// Tests that fail without it: TestDamagedEntries, TestSealedValues, TestVerify; all files
// together: raftstore.TestBitsFlippedAnywhere with RUTTER_LONG=1.
//
// To be taken out: Log when each log store in use checks entries itself;
// Seal when the stable store does; Verify when raft returns an error for an entry that
// it cannot read. What was written with checksums must stay readable.
package checked

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
)

// Log is a raft.LogStore on top of another one. The checksum of an entry is in
// raft.Log.Extensions, which is meant for layers like this one: version (1), checksum
// (4). An entry without a checksum is of an older program, and is accepted.
type Log struct{ raft.LogStore }

const entryChecksum = 5

func entrySum(entry *raft.Log) []byte {
	var numbers [17]byte
	binary.BigEndian.PutUint64(numbers[:], entry.Index)
	binary.BigEndian.PutUint64(numbers[8:], entry.Term)
	numbers[16] = byte(entry.Type)
	return binary.BigEndian.AppendUint32([]byte{1}, disk.Checksum(numbers[:], entry.Data))
}

// StoreLogs implements raft.LogStore. It does not change the entries, because raft's
// other goroutines read them.
func (c Log) StoreLogs(entries []*raft.Log) error {
	stored := make([]*raft.Log, len(entries))
	copies := make([]raft.Log, len(entries))
	for i, entry := range entries {
		copies[i] = *entry
		copies[i].Extensions = entrySum(entry)
		stored[i] = &copies[i]
	}
	return boltfile.Guard(func() error { return c.LogStore.StoreLogs(stored) })
}

// StoreLog implements raft.LogStore.
func (c Log) StoreLog(entry *raft.Log) error { return c.StoreLogs([]*raft.Log{entry}) }

// DeleteRange implements raft.LogStore.
func (c Log) DeleteRange(lo, hi uint64) error {
	return boltfile.Guard(func() error { return c.LogStore.DeleteRange(lo, hi) })
}

// GetLog implements raft.LogStore.
func (c Log) GetLog(index uint64, entry *raft.Log) error {
	err := boltfile.Guard(func() error { return c.LogStore.GetLog(index, entry) })
	if err != nil {
		return err
	}
	if entry.Index != index {
		return fmt.Errorf("entry %d stands in the place of %d: %w", entry.Index, index, log.ErrCorrupt)
	}
	if len(entry.Extensions) == 0 {
		return nil
	}
	if len(entry.Extensions) != entryChecksum || string(entry.Extensions) != string(entrySum(entry)) {
		return fmt.Errorf("entry %d: checksum does not fit: %w", index, log.ErrCorrupt)
	}
	entry.Extensions = nil
	return nil
}

// Verify reads the whole log once. The entries after the marker must be there without a
// gap.
func Verify(logs raft.LogStore, marker uint64) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	if first > marker+1 || first > last {
		return fmt.Errorf("it begins at entry %d and ends at %d, and changes.db needs what follows %d: %w", first, last, marker, log.ErrCorrupt)
	}
	for i := first; i <= last; i++ {
		var entry raft.Log
		err := logs.GetLog(i, &entry)
		if errors.Is(err, raft.ErrLogNotFound) && i <= marker {
			continue
		}
		if err != nil {
			return fmt.Errorf("read entry %d: %w", i, err)
		}
	}
	return nil
}

// A value of the stable store ends in a zero byte and a CRC32C over key and value. A
// value without these is of an older program. The two can be told apart: a vote is an
// address, which has no zero byte, and a number has eight bytes.

// Seal returns a value with a checksum.
func Seal(key, value []byte) []byte {
	sealed := append(append(make([]byte, 0, len(value)+entryChecksum), value...), 0)
	return binary.BigEndian.AppendUint32(sealed, disk.Checksum(key, value))
}

// Open returns a value of the stable store without its checksum. Errors: log.ErrCorrupt.
func Open(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - entryChecksum
	if n < 0 || sealed[n] != 0 {
		return sealed, nil
	}
	if binary.BigEndian.Uint32(sealed[n+1:]) != disk.Checksum(key, sealed[:n]) {
		if len(sealed) == 8 { // a number without a checksum may look like one with it
			return sealed, nil
		}
		return nil, fmt.Errorf("checksum does not fit: %w", log.ErrCorrupt)
	}
	return sealed[:n:n], nil
}
