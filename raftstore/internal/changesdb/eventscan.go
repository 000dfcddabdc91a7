package changesdb

import (
	"fmt"

	"rutter/log"
)

// token reads the head of one msgpack element from the front of b: the length of the
// head, the length of the payload after it, and whether the payload is binary. The
// elements of an array follow as tokens of their own.
func token(b []byte) (head, payload int, bin bool, err error) {
	size := func(n int) (int, int, bool, error) {
		if len(b) < 1+n {
			return 0, 0, false, log.ErrCorrupt
		}
		for _, c := range b[1 : 1+n] {
			payload = payload<<8 | int(c)
		}
		return 1 + n, payload, false, nil
	}
	switch c := b[0]; {
	case c < 0xa0 || c >= 0xe0: // small numbers, small maps and arrays
		return 1, 0, false, nil
	case c < 0xc0:
		return 1, int(c & 0x1f), false, nil
	case c <= 0xc3:
		return 1, 0, false, nil
	case c <= 0xc6:
		head, payload, _, err = size(1 << (c - 0xc4))
		return head, payload, true, err
	case c == 0xca, c == 0xce, c == 0xd2:
		return 1, 4, false, nil
	case c == 0xcb, c == 0xcf, c == 0xd3:
		return 1, 8, false, nil
	case c == 0xcc, c == 0xd0:
		return 1, 1, false, nil
	case c == 0xcd, c == 0xd1:
		return 1, 2, false, nil
	case c >= 0xd9 && c <= 0xdb:
		return size(1 << (c - 0xd9))
	case c == 0xdc, c == 0xde:
		return 3, 0, false, nil
	case c == 0xdd, c == 0xdf:
		return 5, 0, false, nil
	}
	return 0, 0, false, fmt.Errorf("msgpack type %x: %w", b[0], log.ErrFormat)
}

// fixedSize has the size of a msgpack element by its first byte, if that byte determines
// the size and the element contains no value of 16 bytes; else 0.
var fixedSize = func() (sizes [256]uint8) {
	for c := range sizes {
		switch {
		case c >= 0xa0 && c < 0xc0:
			sizes[c] = 1 + uint8(c&0x1f)
		case c < 0xa0, c >= 0xe0, c >= 0xc0 && c <= 0xc3 && c != 0xc1:
			sizes[c] = 1
		case c == 0xcc, c == 0xd0:
			sizes[c] = 2
		case c == 0xcd, c == 0xd1:
			sizes[c] = 3
		case c == 0xca, c == 0xce, c == 0xd2:
			sizes[c] = 5
		case c == 0xcb, c == 0xcf, c == 0xd3:
			sizes[c] = 9
		}
	}
	return sizes
}()

// uuidText is the length of a UUID as text. Old values have UUIDs as text.
const uuidText = 36

// Mentions calls fn with each value that may be a UUID: binary values of 16 bytes, except
// the token skip, and texts of 36 bytes.
func Mentions(b []byte, skip int, fn func(value []byte, bin bool)) error {
	for n := 0; len(b) > 0; n++ {
		if size := int(fixedSize[b[0]]); size > 0 && size <= len(b) {
			b = b[size:]
			continue
		}
		head, payload, bin, err := token(b)
		if err != nil {
			return err
		}
		if head+payload > len(b) {
			return log.ErrCorrupt
		}
		if bin && payload == 16 && n != skip || payload == uuidText && !bin && b[0] == str8 {
			fn(b[head:head+payload], bin)
		}
		b = b[head+payload:]
	}
	return nil
}

// str8 begins a text of 32 to 255 bytes.
const str8 = 0xd9

var errEventHead = fmt.Errorf("the head of an event: %w", log.ErrCorrupt)

// EventObject reads the kind and the id of an encoded event. The id shares its memory.
func EventObject(b []byte) (kind log.Kind, id []byte, err error) {
	if len(b) < 5 || b[0] != log.FormatVersion {
		return 0, nil, errEventHead
	}
	for n := range 4 {
		if n == 0 {
			b = b[1:]
		}
		if len(b) == 0 {
			return 0, nil, errEventHead
		}
		head, payload, _, err := token(b)
		if err != nil || head+payload > len(b) {
			return 0, nil, errEventHead
		}
		switch n {
		case 1:
			if kind = log.Kind(b[0]); payload == 1 {
				kind = log.Kind(b[1])
			}
		case 3:
			id = b[head : head+payload]
		}
		b = b[head+payload:]
	}
	return kind, id, nil
}
