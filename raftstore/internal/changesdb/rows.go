package changesdb

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// Rows of changes.db, big endian. Every row has a CRC32C (Castagnoli) over its key and
// all other bytes of it, so that a read finds a flipped bit in either. Its content comes
// last.
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
// more is how many events of the same change follow. So a reader that stops between two
// changes need not decode the event.
const (
	EventRowHeader  = 40
	ObjectRowHeader = 20
)

// Names of the buckets and of the rows in meta.
var (
	BucketMeta        = []byte("meta")
	BucketEvents      = []byte("events")
	BucketObjects     = []byte("objects")
	BucketCheckpoints = []byte("checkpoints")
	KeyHead           = []byte("head")
	KeyMarker         = []byte("marker")
	keySums           = []byte("digests")
	keyRetention      = []byte("retention")
	keySwept          = []byte("rows")
)

// Slot is one entry, with what a reader of whole changes needs.
type Slot struct {
	log.Entry
	More uint32
}

// SeqKey returns the key of an event's row, and the name of a checkpoint.
func SeqKey(seq log.Seq) []byte { return binary.BigEndian.AppendUint64(nil, uint64(seq)) }

// EventRow returns the stored form of s, in one allocation.
func EventRow(key []byte, s *Slot) []byte { return eventRow(new(log.Room), key, s) }

// eventRow is EventRow in given room.
func eventRow(room *log.Room, key []byte, s *Slot) []byte {
	row := room.Take(EventRowHeader + len(s.Bytes))[:EventRowHeader]
	copy(row, s.Hash[:])
	binary.BigEndian.PutUint32(row[36:], s.More)
	row = append(row, s.Bytes...)
	binary.BigEndian.PutUint32(row[32:], disk.Checksum(key, row[:32], row[36:]))
	return row
}

// ReadEvent checks and decodes the row stored under key, which must be that of the seq
// want. The slot's bytes share the row's memory.
func ReadEvent(want log.Seq, key, row []byte) (Slot, error) {
	if len(key) != 8 || log.Seq(binary.BigEndian.Uint64(key)) != want {
		return Slot{}, fmt.Errorf("changes.db: event row %d is missing, %.16x stands in its place: %w", want, key, log.ErrCorrupt)
	}
	if len(row) <= EventRowHeader {
		return Slot{}, fmt.Errorf("changes.db: event row %d has %d bytes: %w", want, len(row), log.ErrCorrupt)
	}
	if binary.BigEndian.Uint32(row[32:]) != disk.Checksum(key, row[:32], row[36:]) {
		return Slot{}, fmt.Errorf("changes.db: event row %d: checksum does not fit: %w", want, log.ErrCorrupt)
	}
	s := Slot{More: binary.BigEndian.Uint32(row[36:])}
	s.Seq, s.Hash, s.Bytes = want, log.Hash(row[:32]), row[EventRowHeader:]
	return s, nil
}

// ObjectRow returns the stored form of an object. Its bytes are without the format byte.
func ObjectRow(kind log.Kind, id string, revision log.Revision, seq log.Seq, object []byte) []byte {
	row := make([]byte, ObjectRowHeader, ObjectRowHeader+1+len(object))
	binary.BigEndian.PutUint64(row[4:], uint64(revision))
	binary.BigEndian.PutUint64(row[12:], uint64(seq))
	row = append(append(row, log.FormatVersion), object...)
	binary.BigEndian.PutUint32(row, disk.Checksum([]byte{byte(kind)}, []byte(id), row[4:]))
	return row
}

// ReadObject checks an object's row and returns its content.
func ReadObject(kind log.Kind, id string, row []byte) (log.Object, log.Revision, log.Seq, error) {
	if len(row) <= ObjectRowHeader || binary.BigEndian.Uint32(row) != disk.Checksum([]byte{byte(kind)}, []byte(id), row[4:]) {
		return nil, 0, 0, fmt.Errorf("changes.db: row of %s %s: checksum does not fit: %w", kind, id, log.ErrCorrupt)
	}
	object, err := log.DecodeObject(kind, id, row[ObjectRowHeader:])
	if err != nil {
		return nil, 0, 0, fmt.Errorf("changes.db: row of %s %s: %w", kind, id, err)
	}
	return object, log.Revision(binary.BigEndian.Uint64(row[4:])), log.Seq(binary.BigEndian.Uint64(row[12:])), nil
}
