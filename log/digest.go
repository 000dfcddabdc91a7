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
	b := appendObjectKey(make([]byte, 0, digestRoom), kind, id, revision)
	return digest(append(b, object...))
}

// DigestOfBody is DigestOf of an object whose bytes lack the format byte, as
// Encoder.EventAndBody gives them.
func DigestOfBody(kind Kind, id string, revision Revision, body []byte) Digest {
	b := appendObjectKey(make([]byte, 0, digestRoom), kind, id, revision)
	return digest(append(append(b, FormatVersion), body...))
}

// digestRoom is enough for most objects, so that they are hashed from the stack.
const digestRoom = 1024

func appendObjectKey(b []byte, kind Kind, id string, revision Revision) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint64(b, uint64(revision))
	b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
	return append(b, id...)
}

func digest(b []byte) Digest {
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
