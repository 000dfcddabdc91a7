package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
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

func (s sum) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s[0]), s[1])
}
