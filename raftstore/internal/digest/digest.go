// Package digest sums hashes, so that servers can compare their data without sending it.
// A sum does not depend on the order in which things were added, nor on things that were
// added and removed again.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
)

// Sum is a sum of hashes. It does not depend on order, nor on what was added and removed
// again. Its two parts wrap around.
type Sum [2]uint64

// Add adds the things whose sum is t.
func (s *Sum) Add(t Sum) { s[0] += t[0]; s[1] += t[1] }

// Sub removes the things whose sum is t.
func (s *Sum) Sub(t Sum) { s[0] -= t[0]; s[1] -= t[1] }

// Of returns the first 128 bits of SHA-256 over the parts, each preceded by its length.
func Of(parts ...[]byte) Sum {
	b := make([]byte, 0, 512) // most calls fit and need no heap
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
