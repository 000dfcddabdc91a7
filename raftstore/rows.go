package raftstore

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/metarow"
	"rutter/raftstore/internal/window"
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

// head is how far the data in the same transaction is: its place in raft's log,
// in ours, and what else every server must agree on.
type head struct {
	applied, term uint64 // of raft's log: everything up to here is in
	confIndex     uint64
	conf          raft.Configuration // the last committed one, which stands at confIndex
	seq           log.Seq
	hash          log.Hash
	time          log.Time // of the last change; never goes back
	cluster       log.UUID // zero until the first leader gave one
	feature       uint32
	floor         log.Seq  // the last seq that is not kept any more
	floorHash     log.Hash // the chain hash there
	trimmed       log.UUID // of the dedupe window

	// What follows stands in rows of its own (digest.go, retention.go, skip.go).
	command             uint64     // the last raft entry that was for the FSM; applied may be a barrier's
	stateSum, windowSum digest.Sum // digests of the objects and of the dedupe window
	summed              bool       // the two are known
	retention           Retention
	leaps               []window.Leap // of the dedupe window; never altered
	skips               skips         // what operators had skipped (skip.go)
	// rows is the seq whose state the object rows are, but for the objects of
	// later events; it belongs to the file, not to the cluster (sweep.go).
	rows log.Seq
}

// cursor is the head's place in the log.
func (h *head) cursor() log.Cursor {
	c := log.Cursor{Cluster: h.cluster, Seq: h.seq}
	if h.seq > 0 {
		c.Chain = h.hash.Prefix()
	}
	return c
}

// ofWindow is what the head says of the window that is stored with it.
func (h *head) ofWindow() *window.Head {
	return &window.Head{Feature: h.feature, Time: h.time, Trimmed: h.trimmed, Leaps: h.leaps}
}

const headFixed = 1 + 3*8 + 8 + 32 + 8 + 16 + 4 + 8 + 32 + 16

// encode returns the row of the head.
func (h *head) encode() []byte {
	b := metarow.New(headFixed + 128)
	for _, n := range [...]uint64{h.applied, h.term, h.confIndex, uint64(h.seq)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, h.hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.time))
	b = append(b, h.cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, h.feature)
	b = binary.BigEndian.AppendUint64(b, uint64(h.floor))
	b = append(b, h.floorHash[:]...)
	b = append(b, h.trimmed[:]...)
	b = append(b, encodeConf(h.conf)...)
	return metarow.Seal(keyHead, b)
}

// decodeHead reads a head's row; none is the head of an empty log.
func decodeHead(row []byte) (head, error) {
	var h head
	if row == nil {
		return h, nil
	}
	r, err := metarow.Open(keyHead, row)
	if err != nil {
		return h, err
	}
	if len(r.Rest) < headFixed-1 {
		return h, fmt.Errorf("changes.db: head of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	h.applied, h.term, h.confIndex, h.seq = r.U64(), r.U64(), r.U64(), log.Seq(r.U64())
	copy(h.hash[:], r.Take(32))
	h.time = log.Time(r.U64())
	copy(h.cluster[:], r.Take(16))
	h.feature = binary.BigEndian.Uint32(r.Take(4))
	h.floor = log.Seq(r.U64())
	copy(h.floorHash[:], r.Take(32))
	copy(h.trimmed[:], r.Take(16))
	h.conf, err = decodeConf(r.Rest)
	return h, err
}

// marker stands for a raft snapshot: raft may trim its log up to index, since
// the data beside the marker has all of it.
type marker struct {
	index, term uint64
	confIndex   uint64
	conf        raft.Configuration
}

// id names the snapshot to raft; "" if there is none.
func (m *marker) id() string {
	if m.index == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", m.term, m.index)
}

func (m *marker) encode() []byte {
	b := metarow.New(128)
	for _, n := range [...]uint64{m.index, m.term, m.confIndex} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, encodeConf(m.conf)...)
	return metarow.Seal(keyMarker, b)
}

// decodeMarker reads a marker's row; none is the zero marker.
func decodeMarker(row []byte) (marker, error) {
	var m marker
	if row == nil {
		return m, nil
	}
	r, err := metarow.Open(keyMarker, row)
	if err != nil {
		return m, err
	}
	if len(r.Rest) < 24 {
		return m, fmt.Errorf("changes.db: marker of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	m.index, m.term, m.confIndex = r.U64(), r.U64(), r.U64()
	m.conf, err = decodeConf(r.Rest)
	return m, err
}

// A configuration in a row: number of servers (2), then for each: suffrage (1),
// length and text of the id, length and text of the address (2 each).
func encodeConf(c raft.Configuration) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(c.Servers)))
	for _, s := range c.Servers {
		b = append(b, byte(s.Suffrage))
		for _, text := range [...]string{string(s.ID), string(s.Address)} {
			b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
			b = append(b, text...)
		}
	}
	return b
}

func decodeConf(b []byte) (raft.Configuration, error) {
	bad := fmt.Errorf("changes.db: configuration: %w", log.ErrCorrupt)
	var c raft.Configuration
	if len(b) < 2 {
		return c, bad
	}
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	for range n {
		if len(b) < 1 {
			return c, bad
		}
		s := raft.Server{Suffrage: raft.ServerSuffrage(b[0])}
		b = b[1:]
		var texts [2]string
		for i := range texts {
			if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
				return c, bad
			}
			end := 2 + int(binary.BigEndian.Uint16(b))
			texts[i] = string(b[2:end])
			b = b[end:]
		}
		s.ID, s.Address = raft.ServerID(texts[0]), raft.ServerAddress(texts[1])
		c.Servers = append(c.Servers, s)
	}
	if len(b) > 0 {
		return c, bad
	}
	return c, nil
}
