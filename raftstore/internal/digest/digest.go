// Package digest sums hashes, so that servers can compare what they hold without
// sending it: the order in which things were added, and what was taken away again,
// leave no trace in a sum.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
)

// Sum is a sum of hashes, in which neither order nor history shows: what was
// added and taken away again leaves no trace. Lanes wrap.
type Sum [2]uint64

// Add adds what t is the sum of.
func (s *Sum) Add(t Sum) { s[0] += t[0]; s[1] += t[1] }

// Sub takes away what t is the sum of.
func (s *Sum) Sub(t Sum) { s[0] -= t[0]; s[1] -= t[1] }

// Of is the first 128 bits of SHA-256 over the parts, each after its length.
func Of(parts ...[]byte) Sum {
	b := make([]byte, 0, 512) // most fit: nothing on the heap
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	out := sha256.Sum256(b)
	return Sum{binary.BigEndian.Uint64(out[:]), binary.BigEndian.Uint64(out[8:])}
}

// Bytes returns the sum as 16 bytes, big endian.
func (s Sum) Bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s[0]), s[1])
}
