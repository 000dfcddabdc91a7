package raftstore

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

const metaVersion = 1

// newMeta begins a row that has room for so many bytes of fields, which are appended.
func newMeta(size int) []byte {
	return append(make([]byte, 4, 5+size), metaVersion)
}

// sealMeta puts the checksum into a row that is stored under key, and returns it.
func sealMeta(key, row []byte) []byte {
	binary.BigEndian.PutUint32(row, disk.Checksum(key, row[4:]))
	return row
}

// openMeta checks a row's checksum and version.
func openMeta(key, row []byte) (*reader, error) {
	if len(row) < 5 || binary.BigEndian.Uint32(row) != disk.Checksum(key, row[4:]) {
		return nil, fmt.Errorf("changes.db: %s: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	if row[4] != metaVersion {
		return nil, fmt.Errorf("changes.db: %s of version %d, and this program knows %d: %w", key, row[4], metaVersion, log.ErrFormat)
	}
	return &reader{row[5:]}, nil
}

// reader takes fields from the front of b, which its caller knows to be long enough.
type reader struct{ b []byte }

// take takes n bytes, which share the row's memory.
func (r *reader) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// u64 takes a number of 8 bytes, big endian.
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
