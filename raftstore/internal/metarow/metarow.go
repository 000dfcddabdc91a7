// Package metarow has the format of a row in the bucket meta of changes.db: a CRC32C over
// the row's key and the rest of the row, a version, and fields of fixed size, big endian.
//
//	| crc (4) | version (1) | fields |
package metarow

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

const version = 1

// New begins a row with capacity for size bytes of fields, which the caller appends.
func New(size int) []byte {
	return append(make([]byte, 4, 5+size), version)
}

// Seal puts the checksum into a row that will be stored under key, and returns the row.
func Seal(key, row []byte) []byte {
	binary.BigEndian.PutUint32(row, disk.Checksum(key, row[4:]))
	return row
}

// Open checks a row's checksum and version, and returns a Reader of its fields.
func Open(key, row []byte) (*Reader, error) {
	if len(row) < 5 || binary.BigEndian.Uint32(row) != disk.Checksum(key, row[4:]) {
		return nil, fmt.Errorf("changes.db: %s: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	if row[4] != version {
		return nil, fmt.Errorf("changes.db: %s of version %d, and this program knows %d: %w", key, row[4], version, log.ErrFormat)
	}
	return &Reader{row[5:]}, nil
}

// Reader reads fields from the front of Rest. The caller must know that Rest is long
// enough.
type Reader struct{ Rest []byte }

// Take reads n bytes, which share the row's memory.
func (r *Reader) Take(n int) []byte {
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// U64 reads a number of 8 bytes, big endian.
func (r *Reader) U64() uint64 { return binary.BigEndian.Uint64(r.Take(8)) }
