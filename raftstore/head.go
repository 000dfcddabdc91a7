package raftstore

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
)

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

// meta is how raft names the snapshot that the marker stands for.
func (m *marker) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: 1, ID: m.id(), Index: m.index, Term: m.term,
		Configuration: m.conf, ConfigurationIndex: m.confIndex,
	}
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

// putSkips writes the row of the skips; a file without any never had one.
func putSkips(meta *bbolt.Bucket, k skips) error {
	if len(k) == 0 {
		if meta.Get(keySkips) == nil {
			return nil
		}
		return meta.Delete(keySkips)
	}
	row, err := k.row()
	if err != nil {
		return err
	}
	return meta.Put(keySkips, row)
}

// stateSum is the digest of the objects. A start computes it from the stored
// rows, so that it compares what the file has with what was written.
func stateSum(state *projections.State) digest.Sum {
	d := state.Sum()
	return digest.Sum{d.Hi, d.Lo}
}

// digest is a hash over everything that servers must agree on at one raft index.
func (h *head) digest() digest.Sum {
	r := h.retention.encode()
	numbers := make([]byte, 0, 64)
	for _, n := range [...]uint64{uint64(h.seq), uint64(h.time), uint64(h.feature), uint64(h.floor)} {
		numbers = binary.BigEndian.AppendUint64(numbers, n)
	}
	parts := [][]byte{numbers, h.hash[:], h.cluster[:], h.floorHash[:], h.trimmed[:], h.stateSum.Bytes(), h.windowSum.Bytes(), r}
	if skipped := h.skips.digest(); skipped != nil {
		parts = append(parts, skipped) // without any the digest is what it was before there were skips
	}
	return digest.Of(parts...)
}

// The row of the sums belongs to the head's row that it names by its checksum:
// a program that knows of no sums leaves a row behind that is no longer of the
// head, and is not looked at.
//
//	| crc (4) | version (1) | checksum of the head's row (4) | command (8) | state (16) | window (16) |
const sumsRow = 4 + 1 + 4 + 8 + 16 + 16

func (h *head) encodeSums(headRow []byte) []byte {
	b := metarow.New(sumsRow)
	b = append(b, headRow[:4]...)
	b = binary.BigEndian.AppendUint64(b, h.command)
	b = append(b, h.stateSum.Bytes()...)
	b = append(b, h.windowSum.Bytes()...)
	return metarow.Seal(keySums, b)
}

// decodeSums adds the sums to a head that was read from headRow, and reports
// whether there are any.
func (h *head) decodeSums(row, headRow []byte) (bool, error) {
	h.command = h.applied
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
	h.command = r.U64()
	h.stateSum, h.windowSum, h.summed = digest.Sum{r.U64(), r.U64()}, digest.Sum{r.U64(), r.U64()}, true
	return true, nil
}
