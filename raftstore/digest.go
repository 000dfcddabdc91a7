package raftstore

import (
	"encoding/binary"
	"fmt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/metarow"
)

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
