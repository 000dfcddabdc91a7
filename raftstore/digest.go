package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/disk"
)

// sum is a sum of hashes, in which neither order nor history shows: what was
// added and taken away again leaves no trace. Lanes wrap.
type sum [2]uint64

func (s *sum) add(t sum) { s[0] += t[0]; s[1] += t[1] }
func (s *sum) sub(t sum) { s[0] -= t[0]; s[1] -= t[1] }

// hashOf is the first 128 bits of SHA-256 over the parts, each after its length.
func hashOf(parts ...[]byte) sum {
	b := make([]byte, 0, 512) // most fit: nothing on the heap
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	out := sha256.Sum256(b)
	return sum{binary.BigEndian.Uint64(out[:]), binary.BigEndian.Uint64(out[8:])}
}

// stateSum is the digest of the objects. A start computes it from the stored
// rows, so that it compares what the file has with what was written.
func stateSum(state *projections.State) sum {
	d := state.Sum()
	return sum{d.Hi, d.Lo}
}

func (s sum) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s[0]), s[1])
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
	b := make([]byte, 4, sumsRow)
	b = append(b, metaVersion)
	b = append(b, headRow[:4]...)
	b = binary.BigEndian.AppendUint64(b, h.command)
	b = append(b, h.stateSum.bytes()...)
	b = append(b, h.windowSum.bytes()...)
	binary.BigEndian.PutUint32(b, disk.Checksum(keySums, b[4:]))
	return b
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

// pointsKept is how many of the newest points a server remembers: more raft
// entries than a follower that is well lies behind.
const pointsKept = 4096

// point is the digest after the raft entry of an index.
type point struct {
	index  uint64
	seq    log.Seq
	digest sum
}

// points remembers the digests after the newest raft entries, for the
// comparison with other servers at equal indexes.
type points struct {
	mu   sync.Mutex
	ring [pointsKept]point
	n    uint64 // points ever pushed since the last reset
}

func (p *points) push(h *head) {
	at := point{h.command, h.seq, h.digest()}
	p.mu.Lock()
	p.ring[p.n%pointsKept] = at
	p.n++
	p.mu.Unlock()
}

// reset forgets what was, and begins with the digest of h.
func (p *points) reset(h *head) {
	p.mu.Lock()
	p.n = 0
	p.mu.Unlock()
	if h.command > 0 {
		p.push(h)
	}
}

// upTo returns the newest point at or below index; the zero point if there is none.
func (p *points) upTo(index uint64) point {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := uint64(1); i <= min(p.n, pointsKept); i++ {
		if at := p.ring[(p.n-i)%pointsKept]; at.index <= index {
			return at
		}
	}
	return point{}
}
