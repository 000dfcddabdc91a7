package raftstore

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/projections"
)

// stateSum is the digest of the objects. A start computes it from the stored
// rows, so that it compares what the file has with what was written.
func stateSum(state *projections.State) sum {
	d := state.Sum()
	return sum{d.Hi, d.Lo}
}

// digest is a hash over everything that servers must agree on at one raft index.
func (h *head) digest() sum {
	r := h.retention.encode()
	numbers := make([]byte, 0, 64)
	for _, n := range [...]uint64{uint64(h.seq), uint64(h.time), uint64(h.feature), uint64(h.floor)} {
		numbers = binary.BigEndian.AppendUint64(numbers, n)
	}
	parts := [][]byte{numbers, h.hash[:], h.cluster[:], h.floorHash[:], h.trimmed[:], h.stateSum.bytes(), h.windowSum.bytes(), r}
	if skipped := h.skips.digest(); skipped != nil {
		parts = append(parts, skipped) // without any the digest is what it was before there were skips
	}
	return hashOf(parts...)
}

// The row of the sums belongs to the head's row that it names by its checksum:
// a program that knows of no sums leaves a row behind that is no longer of the
// head, and is not looked at.
//
//	| crc (4) | version (1) | checksum of the head's row (4) | command (8) | state (16) | window (16) |
const sumsRow = 4 + 1 + 4 + 8 + 16 + 16

func (h *head) encodeSums(headRow []byte) []byte {
	b := newMeta(sumsRow)
	b = append(b, headRow[:4]...)
	b = binary.BigEndian.AppendUint64(b, h.command)
	b = append(b, h.stateSum.bytes()...)
	b = append(b, h.windowSum.bytes()...)
	return sealMeta(keySums, b)
}

// decodeSums adds the sums to a head that was read from headRow, and reports
// whether there are any.
func (h *head) decodeSums(row, headRow []byte) (bool, error) {
	h.command = h.applied
	if row == nil || len(headRow) < 4 {
		return false, nil
	}
	r, err := openMeta(keySums, row)
	if err != nil {
		return false, err
	}
	if len(r.b) < sumsRow-5 {
		return false, fmt.Errorf("changes.db: sums of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	if string(r.take(4)) != string(headRow[:4]) {
		return false, nil
	}
	h.command = r.u64()
	h.stateSum, h.windowSum, h.summed = sum{r.u64(), r.u64()}, sum{r.u64(), r.u64()}, true
	return true, nil
}
