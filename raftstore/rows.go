package raftstore

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// Rows of changes.db, big endian. Every row ends in what it carries and holds
// a CRC32C (Castagnoli) over its key and everything else in it, so that a
// flipped bit in either is found on reading.
//
//	events   key: seq (8)
//	         | chain hash (32) | crc (4) | more (4) | event bytes |
//	objects  bucket per kind, key: id
//	         | crc (4) | revision (8) | seq (8) | object bytes |
//	changes  key: change id (16)
//	         | crc (4) | value: see Row |
//	lines    key: author (16)
//	         | crc (4) | change id (16) |
//	meta     key: "head", "marker", "digests", "retention", "rows", "leaps", "skips"
//	         | crc (4) | version (1) | fields |
//
// more is how many events of the same change follow: a reader that stops
// between changes need not decode the event to know where that is.
const (
	eventRowHeader  = 40
	objectRowHeader = 20
)

// Names of the buckets and of the rows in meta.
var (
	bucketMeta        = []byte("meta")
	bucketEvents      = []byte("events")
	bucketObjects     = []byte("objects")
	bucketCheckpoints = []byte("checkpoints")
	keyHead           = []byte("head")
	keyMarker         = []byte("marker")
	keySums           = []byte("digests")
	keyRetention      = []byte("retention")
	keySwept          = []byte("rows")
)

// slot is one entry with what a reader of whole changes must know of it.
type slot struct {
	log.Entry
	more uint32
}

func seqKey(seq log.Seq) []byte { return binary.BigEndian.AppendUint64(nil, uint64(seq)) }

// eventRow returns the stored form of s, made in one allocation.
func eventRow(key []byte, s *slot) []byte {
	row := make([]byte, eventRowHeader, eventRowHeader+len(s.Bytes))
	copy(row, s.Hash[:])
	binary.BigEndian.PutUint32(row[36:], s.more)
	row = append(row, s.Bytes...)
	binary.BigEndian.PutUint32(row[32:], disk.Checksum(key, row[:32], row[36:]))
	return row
}

// readEventRow checks the row stored under key, which must be that of want. The
// slot's bytes share the row's memory.
func readEventRow(want log.Seq, key, row []byte) (slot, error) {
	if len(key) != 8 || log.Seq(binary.BigEndian.Uint64(key)) != want {
		return slot{}, fmt.Errorf("changes.db: event row %d is missing, %.16x stands in its place: %w", want, key, log.ErrCorrupt)
	}
	if len(row) <= eventRowHeader {
		return slot{}, fmt.Errorf("changes.db: event row %d has %d bytes: %w", want, len(row), log.ErrCorrupt)
	}
	if binary.BigEndian.Uint32(row[32:]) != disk.Checksum(key, row[:32], row[36:]) {
		return slot{}, fmt.Errorf("changes.db: event row %d: checksum does not fit: %w", want, log.ErrCorrupt)
	}
	s := slot{more: binary.BigEndian.Uint32(row[36:])}
	s.Seq, s.Hash, s.Bytes = want, log.Hash(row[:32]), row[eventRowHeader:]
	return s, nil
}

// objectRow returns the stored form of an object, whose bytes lack the format byte.
func objectRow(kind log.Kind, id string, revision log.Revision, seq log.Seq, object []byte) []byte {
	row := make([]byte, objectRowHeader, objectRowHeader+1+len(object))
	binary.BigEndian.PutUint64(row[4:], uint64(revision))
	binary.BigEndian.PutUint64(row[12:], uint64(seq))
	row = append(append(row, log.FormatVersion), object...)
	binary.BigEndian.PutUint32(row, disk.Checksum([]byte{byte(kind)}, []byte(id), row[4:]))
	return row
}

// readObjectRow checks an object's row and returns what it holds.
func readObjectRow(kind log.Kind, id string, row []byte) (log.Object, log.Revision, log.Seq, error) {
	if len(row) <= objectRowHeader || binary.BigEndian.Uint32(row) != disk.Checksum([]byte{byte(kind)}, []byte(id), row[4:]) {
		return nil, 0, 0, fmt.Errorf("changes.db: row of %s %s: checksum does not fit: %w", kind, id, log.ErrCorrupt)
	}
	object, err := log.DecodeObject(kind, id, row[objectRowHeader:])
	if err != nil {
		return nil, 0, 0, fmt.Errorf("changes.db: row of %s %s: %w", kind, id, err)
	}
	return object, log.Revision(binary.BigEndian.Uint64(row[4:])), log.Seq(binary.BigEndian.Uint64(row[12:])), nil
}
