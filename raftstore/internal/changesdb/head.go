package changesdb

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/metarow"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/skipped"
)

// Head describes the data in the same transaction: its position in raft's log and in
// ours, and everything else that all servers must agree on.
type Head struct {
	Applied, Term uint64 // of raft's log: everything up to here is in the data
	ConfIndex     uint64
	Conf          raft.Configuration // the last committed configuration; its entry is at ConfIndex
	Seq           log.Seq
	Hash          log.Hash
	Time          log.Time // of the last change
	Cluster       log.UUID // zero until the first leader set it
	Feature       uint32
	Floor         log.Seq  // the last seq that is no longer kept
	FloorHash     log.Hash // the chain hash there
	Trimmed       log.UUID // of the dedupe window

	// The fields below have rows of their own.
	Command             uint64     // the last raft entry that the FSM got; Applied may be that of a barrier
	StateSum, WindowSum digest.Sum // digests of the objects and of the dedupe window
	Summed              bool       // StateSum and WindowSum are known
	Retention           Retention
	Leaps               []window.Leap // of the dedupe window; never altered
	Skips               skipped.List  // skips that operators planted (skip.go)
	// Rows is the seq whose state the object rows have, except for objects of later
	// events. It belongs to the file, not to the cluster.
	Rows log.Seq
}

// Cursor returns the head as a cursor of the log.
func (h *Head) Cursor() log.Cursor {
	c := log.Cursor{Cluster: h.Cluster, Seq: h.Seq}
	if h.Seq > 0 {
		c.Chain = h.Hash.Prefix()
	}
	return c
}

// ForWindow returns the fields of the head that belong to the window stored with it.
func (h *Head) ForWindow() *window.Head {
	return &window.Head{Feature: h.Feature, Time: h.Time, Trimmed: h.Trimmed, Leaps: h.Leaps}
}

const headFixed = 1 + 3*8 + 8 + 32 + 8 + 16 + 4 + 8 + 32 + 16

// encode returns the row of the head.
func (h *Head) encode() []byte {
	b := metarow.New(headFixed + 128)
	for _, n := range [...]uint64{h.Applied, h.Term, h.ConfIndex, uint64(h.Seq)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, h.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Time))
	b = append(b, h.Cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Feature)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Floor))
	b = append(b, h.FloorHash[:]...)
	b = append(b, h.Trimmed[:]...)
	b = append(b, encodeConf(h.Conf)...)
	return metarow.Seal(KeyHead, b)
}

// DecodeHead reads a head's row. Without a row it returns the head of an empty log.
func DecodeHead(row []byte) (Head, error) {
	var h Head
	if row == nil {
		return h, nil
	}
	r, err := metarow.Open(KeyHead, row)
	if err != nil {
		return h, err
	}
	if len(r.Rest) < headFixed-1 {
		return h, fmt.Errorf("changes.db: head of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	h.Applied, h.Term, h.ConfIndex, h.Seq = r.U64(), r.U64(), r.U64(), log.Seq(r.U64())
	copy(h.Hash[:], r.Take(32))
	h.Time = log.Time(r.U64())
	copy(h.Cluster[:], r.Take(16))
	h.Feature = binary.BigEndian.Uint32(r.Take(4))
	h.Floor = log.Seq(r.U64())
	copy(h.FloorHash[:], r.Take(32))
	copy(h.Trimmed[:], r.Take(16))
	h.Conf, err = decodeConf(r.Rest)
	return h, err
}

// Marker stands for a raft snapshot: raft may trim its log up to Index, because the data
// beside the marker contains all of it.
type Marker struct {
	Index, Term uint64
	ConfIndex   uint64
	Conf        raft.Configuration
}

// ID returns raft's name of the snapshot; "" if there is none.
func (m *Marker) ID() string {
	if m.Index == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", m.Term, m.Index)
}

// Meta returns raft's metadata of the snapshot that the marker stands for.
func (m *Marker) Meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: 1, ID: m.ID(), Index: m.Index, Term: m.Term,
		Configuration: m.Conf, ConfigurationIndex: m.ConfIndex,
	}
}

// Encode returns the row of the marker.
func (m *Marker) Encode() []byte {
	b := metarow.New(128)
	for _, n := range [...]uint64{m.Index, m.Term, m.ConfIndex} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, encodeConf(m.Conf)...)
	return metarow.Seal(KeyMarker, b)
}

// decodeMarker reads a marker's row. Without a row it returns the zero marker.
func decodeMarker(row []byte) (Marker, error) {
	var m Marker
	if row == nil {
		return m, nil
	}
	r, err := metarow.Open(KeyMarker, row)
	if err != nil {
		return m, err
	}
	if len(r.Rest) < 24 {
		return m, fmt.Errorf("changes.db: marker of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	m.Index, m.Term, m.ConfIndex = r.U64(), r.U64(), r.U64()
	m.Conf, err = decodeConf(r.Rest)
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

// PutSkips writes the row of the skips. A file that never had skips has no such row.
func PutSkips(meta *bbolt.Bucket, k skipped.List) error {
	if len(k) == 0 {
		if meta.Get(skipped.Key) == nil {
			return nil
		}
		return meta.Delete(skipped.Key)
	}
	row, err := k.Row()
	if err != nil {
		return err
	}
	return meta.Put(skipped.Key, row)
}

// StateSum returns the digest of the objects. A start computes it from the stored rows,
// and so compares the content of the file with what was written.
func StateSum(state *projections.State) digest.Sum {
	d := state.Sum()
	return digest.Sum{d.Hi, d.Lo}
}

// Digest returns a hash over everything that servers must agree on at one raft index.
func (h *Head) Digest() digest.Sum {
	r := h.Retention.Encode()
	numbers := make([]byte, 0, 64)
	for _, n := range [...]uint64{uint64(h.Seq), uint64(h.Time), uint64(h.Feature), uint64(h.Floor)} {
		numbers = binary.BigEndian.AppendUint64(numbers, n)
	}
	parts := [][]byte{numbers, h.Hash[:], h.Cluster[:], h.FloorHash[:], h.Trimmed[:], h.StateSum.Bytes(), h.WindowSum.Bytes(), r}
	if skipped := h.Skips.Digest(); skipped != nil {
		parts = append(parts, skipped) // without skips the digest is the same as in programs before there were skips
	}
	return digest.Of(parts...)
}

// The row of the sums names the head's row to which it belongs by its checksum. An older
// program, which does not know sums, writes a new head and leaves this row: then the
// checksum no longer fits, and the row is ignored.
//
//	| crc (4) | version (1) | checksum of the head's row (4) | command (8) | state (16) | window (16) |
const sumsRow = 4 + 1 + 4 + 8 + 16 + 16

func (h *Head) encodeSums(headRow []byte) []byte {
	b := metarow.New(sumsRow)
	b = append(b, headRow[:4]...)
	b = binary.BigEndian.AppendUint64(b, h.Command)
	b = append(b, h.StateSum.Bytes()...)
	b = append(b, h.WindowSum.Bytes()...)
	return metarow.Seal(keySums, b)
}

// decodeSums adds the sums to a head that was read from headRow, and reports whether the
// row belongs to it.
func (h *Head) decodeSums(row, headRow []byte) (bool, error) {
	h.Command = h.Applied
	if row == nil || len(headRow) < 4 {
		return false, nil
	}
	r, err := metarow.Open(keySums, row)
	if err != nil {
		return false, err
	}
	if len(r.Rest) < sumsRow-5 {
		return false, fmt.Errorf("changes.db: sums of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	if string(r.Take(4)) != string(headRow[:4]) {
		return false, nil
	}
	h.Command = r.U64()
	h.StateSum, h.WindowSum, h.Summed = digest.Sum{r.U64(), r.U64()}, digest.Sum{r.U64(), r.U64()}, true
	return true, nil
}
