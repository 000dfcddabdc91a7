package log

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Seq is the position of an entry in the log: dense, from 1, never reused.
// 0 means "before the first entry".
type Seq uint64

// String returns s in decimal, as ParseSeq accepts it.
func (s Seq) String() string { return strconv.FormatUint(uint64(s), 10) }

// ParseSeq accepts exactly what Seq.String prints.
func ParseSeq(text string) (Seq, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("seq %q: want a decimal number from 0 to 18446744073709551615", text)
	}
	return Seq(n), nil
}

// Revision counts the events of one object, from 1. It restarts when an object
// is deleted and made again. 0 means "no revision".
type Revision uint64

// String returns r in decimal.
func (r Revision) String() string { return strconv.FormatUint(uint64(r), 10) }

// Time is a moment in nanoseconds since 1970-01-01T00:00:00Z, as the servers' clocks
// had it when the change was proposed. 0 means "not set".
type Time int64

// TimeOf returns t as a Time.
func TimeOf(t time.Time) Time { return Time(t.UnixNano()) }

// Std returns t as the standard library's type, in UTC.
func (t Time) Std() time.Time { return time.Unix(0, int64(t)).UTC() }

// timeLayout is ISO 8601 with milliseconds, as NAPI and VMAPI print it.
const timeLayout = "2006-01-02T15:04:05.000Z"

// String returns t as ISO 8601 with milliseconds, or "" if it is not set. The
// log keeps nanoseconds; the text form is for people and for Triton's clients.
func (t Time) String() string {
	if t == 0 {
		return ""
	}
	return t.Std().Format(timeLayout)
}

// ParseTime accepts RFC 3339 with any precision; "" gives 0.
func ParseTime(text string) (Time, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("time %q: want RFC 3339, as in 2026-11-21T09:00:00.123Z", text)
	}
	return TimeOf(t), nil
}

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTime(string(text))
	return err
}

// UUID is an RFC 9562 identifier. The zero value means "none". Change ids are
// of version 7, whose first 48 bits are the Unix time in milliseconds.
type UUID [16]byte

// String returns the usual form: 36 characters, lower case.
func (u UUID) String() string {
	b := u.text()
	return string(b[:])
}

func (u *UUID) text() (b [36]byte) {
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], u[10:16])
	return b
}

// Is reports whether s is what String returns, without making that.
func (u UUID) Is(s string) bool {
	b := u.text()
	return string(b[:]) == s
}

// ParseUUID accepts what UUID.String prints, in either case.
func ParseUUID(text string) (UUID, error) {
	var digits [32]byte // not as a text of its own: no memory for what is read often
	whole := len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-'
	if whole {
		copy(digits[:8], text[:8])
		copy(digits[8:12], text[9:13])
		copy(digits[12:16], text[14:18])
		copy(digits[16:20], text[19:23])
		copy(digits[20:], text[24:])
	}
	var u UUID
	if _, err := hex.Decode(u[:], digits[:]); !whole || err != nil {
		return UUID{}, &FormError{"uuid", text, "36 characters, as in 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31"}
	}
	return u, nil
}

// Compare orders UUIDs by their bytes, as their texts are ordered: -1, 0 or 1.
//
// It compares them as two numbers: it is called for each step of the lookups and sorts
// of many rows.
func (u UUID) Compare(v UUID) int {
	if c := cmp.Compare(binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(v[:8])); c != 0 {
		return c
	}
	return cmp.Compare(binary.BigEndian.Uint64(u[8:]), binary.BigEndian.Uint64(v[8:]))
}

// IsZero reports whether u is the zero value, "none".
func (u UUID) IsZero() bool { return u == UUID{} }

// UnixMilli returns the time of a version 7 UUID in milliseconds since 1970,
// and whether u is of that version.
func (u UUID) UnixMilli() (int64, bool) {
	if u[6]>>4 != 7 {
		return 0, false
	}
	return int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5]), true
}

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(text []byte) (err error) {
	*u, err = ParseUUID(string(text))
	return err
}

// MAC is an Ethernet address. The zero value means "none".
type MAC [6]byte

// String returns the colon form, as in 90:b8:d0:01:02:03.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, octet := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[octet>>4], digits[octet&15])
	}
	return string(b)
}

// ParseMAC accepts twelve hexadecimal digits bare, or in pairs parted by
// colons or dashes: the three forms that NAPI's paths take.
func ParseMAC(text string) (MAC, error) {
	var m MAC
	bare := text
	if len(text) == 17 {
		sep := text[2:3]
		if (sep == ":" || sep == "-") && strings.Count(text, sep) == 5 {
			bare = text[0:2] + text[3:5] + text[6:8] + text[9:11] + text[12:14] + text[15:17]
		}
	}
	if len(bare) != 12 {
		return MAC{}, &FormError{"mac", text, "12 hexadecimal digits, as in 90:b8:d0:01:02:03"}
	}
	if _, err := hex.Decode(m[:], []byte(bare)); err != nil {
		return MAC{}, &FormError{"mac", text, "12 hexadecimal digits, as in 90:b8:d0:01:02:03"}
	}
	return m, nil
}

// Compare orders MACs by their bytes, as their texts are ordered: -1, 0 or 1.
func (m MAC) Compare(n MAC) int { return bytes.Compare(m[:], n[:]) }

// IsZero reports whether m is the zero value, "none".
func (m MAC) IsZero() bool { return m == MAC{} }

// IsUnicast reports whether m may belong to a NIC: not multicast, not zero.
func (m MAC) IsUnicast() bool { return m[0]&1 == 0 && !m.IsZero() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}

// MaxVNet is the highest VXLAN network id: 24 bits (RFC 7348, section 5).
const MaxVNet = 1<<24 - 1
