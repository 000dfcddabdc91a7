package raftstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"rutter/log"
)

const metaVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC32C over the parts.
func checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// reader takes fields from the front of b, which its caller knows to be long enough.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// openMeta checks a meta row's checksum and version.
func openMeta(key, row []byte) (*reader, error) {
	if len(row) < 5 || binary.BigEndian.Uint32(row) != checksum(key, row[4:]) {
		return nil, fmt.Errorf("changes.db: %s: checksum does not fit: %w", key, log.ErrCorrupt)
	}
	if row[4] != metaVersion {
		return nil, fmt.Errorf("changes.db: %s of version %d, and this program knows %d: %w", key, row[4], metaVersion, log.ErrFormat)
	}
	return &reader{row[5:]}, nil
}
