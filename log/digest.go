package log

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Digest is a sum over a set of objects, modulo 2 to the 128th: of each the
// first 16 bytes of SHA-256 over kind (1 byte), revision (8, big endian), length
// of the id (2), id and encoded object. Adding and removing an object each costs
// the same, however large the set. Zero is the empty set's.
type Digest struct{ Hi, Lo uint64 }

// DigestOf returns what an object adds to the digest of its scopes. object are
// the bytes that Encoder.Object gives.
func DigestOf(kind Kind, id string, revision Revision, object []byte) Digest {
	var room [512]byte
	b := append(room[:0], byte(kind))
	b = binary.BigEndian.AppendUint64(b, uint64(revision))
	b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
	b = append(b, id...)
	b = append(b, object...)
	sum := sha256.Sum256(b)
	return Digest{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// Add returns d + e.
func (d Digest) Add(e Digest) Digest {
	lo, carry := bits.Add64(d.Lo, e.Lo, 0)
	hi, _ := bits.Add64(d.Hi, e.Hi, carry)
	return Digest{hi, lo}
}

// Sub returns d - e.
func (d Digest) Sub(e Digest) Digest {
	lo, borrow := bits.Sub64(d.Lo, e.Lo, 0)
	hi, _ := bits.Sub64(d.Hi, e.Hi, borrow)
	return Digest{hi, lo}
}

// String returns 32 hexadecimal digits.
func (d Digest) String() string { return fmt.Sprintf("%016x%016x", d.Hi, d.Lo) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
