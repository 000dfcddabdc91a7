package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Codes of msgpack (github.com/msgpack/msgpack/blob/master/spec.md).
const (
	codeFixMap   = 0x80 // to 0x8f
	codeFixArray = 0x90 // to 0x9f
	codeFixStr   = 0xa0 // to 0xbf
	codeNil      = 0xc0
	codeFalse    = 0xc2
	codeTrue     = 0xc3
	codeBin8     = 0xc4
	codeBin16    = 0xc5
	codeBin32    = 0xc6
	codeExt8     = 0xc7
	codeExt16    = 0xc8
	codeExt32    = 0xc9
	codeFloat    = 0xca
	codeDouble   = 0xcb
	codeUint8    = 0xcc
	codeUint16   = 0xcd
	codeUint32   = 0xce
	codeUint64   = 0xcf
	codeInt8     = 0xd0
	codeInt16    = 0xd1
	codeInt32    = 0xd2
	codeInt64    = 0xd3
	codeFixExt1  = 0xd4
	codeFixExt16 = 0xd8
	codeStr8     = 0xd9
	codeStr16    = 0xda
	codeStr32    = 0xdb
	codeArray16  = 0xdc
	codeArray32  = 0xdd
	codeMap16    = 0xde
	codeMap32    = 0xdf
	codeNegFix   = 0xe0 // to 0xff
)

// unpacker reads msgpack from bytes in memory. It takes what the library's
// Decoder takes, which reads through an io.Reader and is several times slower:
// every server decodes every change, and every follower every event.
type unpacker struct{ b []byte }

var errShort = errors.New("msgpack ends inside a value")

func errCode(what string, code byte) error {
	return fmt.Errorf("msgpack code %#x is no %s", code, what)
}

// take returns the next n bytes, which share the input's memory.
func (u *unpacker) take(n uint64) ([]byte, error) {
	if n > uint64(len(u.b)) {
		return nil, errShort
	}
	b := u.b[:n:n]
	u.b = u.b[n:]
	return b, nil
}

func (u *unpacker) code() (byte, error) {
	if len(u.b) == 0 {
		return 0, errShort
	}
	c := u.b[0]
	u.b = u.b[1:]
	return c, nil
}

// number reads a big-endian number of size bytes: 1, 2, 4 or 8.
func (u *unpacker) number(size uint64) (uint64, error) {
	b, err := u.take(size)
	if err != nil {
		return 0, err
	}
	switch size {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	default:
		return binary.BigEndian.Uint64(b), nil
	}
}

// uint64 reads any integer, a negative one as its two's complement; nil is 0.
func (u *unpacker) uint64() (uint64, error) {
	c, err := u.code()
	if err != nil {
		return 0, err
	}
	switch {
	case c < codeFixMap || c >= codeNegFix:
		return uint64(int8(c)), nil
	case c == codeNil:
		return 0, nil
	case c >= codeUint8 && c <= codeUint64:
		return u.number(1 << (c - codeUint8))
	case c < codeInt8 || c > codeInt64:
		return 0, errCode("integer", c)
	}
	n, err := u.number(1 << (c - codeInt8))
	switch c {
	case codeInt8:
		n = uint64(int8(n))
	case codeInt16:
		n = uint64(int16(n))
	case codeInt32:
		n = uint64(int32(n))
	}
	return n, err
}

func (u *unpacker) uint8() (uint8, error) {
	n, err := u.uint64()
	return uint8(n), err
}

func (u *unpacker) int64() (int64, error) {
	n, err := u.uint64()
	return int64(n), err
}

func (u *unpacker) bool() (bool, error) {
	c, err := u.code()
	if err != nil {
		return false, err
	}
	if c != codeNil && c != codeFalse && c != codeTrue {
		return false, errCode("boolean", c)
	}
	return c == codeTrue, nil
}

// shared reads a string or binary; nil is none. The bytes share the input's memory.
func (u *unpacker) shared() ([]byte, error) {
	c, err := u.code()
	if err != nil {
		return nil, err
	}
	var n uint64
	switch {
	case c >= codeFixStr && c < codeNil:
		n = uint64(c - codeFixStr)
	case c == codeNil:
		return nil, nil
	case c >= codeBin8 && c <= codeBin32:
		n, err = u.number(1 << (c - codeBin8))
	case c >= codeStr8 && c <= codeStr32:
		n, err = u.number(1 << (c - codeStr8))
	default:
		err = errCode("string or binary", c)
	}
	if err != nil {
		return nil, err
	}
	return u.take(n)
}

func (u *unpacker) string() (string, error) {
	b, err := u.shared()
	return string(b), err
}

// arrayLen reads an array's header; nil is -1.
func (u *unpacker) arrayLen() (int, error) {
	c, err := u.code()
	if err != nil {
		return 0, err
	}
	var n uint64
	switch {
	case c >= codeFixArray && c < codeFixStr:
		n = uint64(c - codeFixArray)
	case c == codeNil:
		return -1, nil
	case c == codeArray16 || c == codeArray32:
		n, err = u.number(2 << (c - codeArray16))
	default:
		err = errCode("array", c)
	}
	return int(n), err
}

// skip passes one value, with all that is in it, and returns its bytes.
func (u *unpacker) skip() ([]byte, error) {
	whole := u.b
	for left := uint64(1); left > 0; left-- {
		inside, err := u.skipOne()
		if err != nil {
			return nil, err
		}
		if left += inside; left > math.MaxUint32*4 {
			return nil, errShort // more than any input holds
		}
	}
	n := len(whole) - len(u.b)
	return whole[:n:n], nil
}

// skipOne passes one value without what is in it, and returns how many values
// that is.
func (u *unpacker) skipOne() (inside uint64, err error) {
	c, err := u.code()
	if err != nil {
		return 0, err
	}
	size := uint64(0) // of what follows the code
	switch {
	case c < codeFixMap || c >= codeNegFix:
	case c < codeFixArray:
		return 2 * uint64(c-codeFixMap), nil
	case c < codeFixStr:
		return uint64(c - codeFixArray), nil
	case c < codeNil:
		size = uint64(c - codeFixStr)
	case c == codeNil || c == codeFalse || c == codeTrue:
	case c >= codeBin8 && c <= codeBin32:
		size, err = u.number(1 << (c - codeBin8))
	case c >= codeExt8 && c <= codeExt32:
		size, err = u.number(1 << (c - codeExt8))
		size++ // its type
	case c == codeFloat:
		size = 4
	case c == codeDouble:
		size = 8
	case c >= codeUint8 && c <= codeUint64:
		size = 1 << (c - codeUint8)
	case c >= codeInt8 && c <= codeInt64:
		size = 1 << (c - codeInt8)
	case c >= codeFixExt1 && c <= codeFixExt16:
		size = 1 + 1<<(c-codeFixExt1)
	case c >= codeStr8 && c <= codeStr32:
		size, err = u.number(1 << (c - codeStr8))
	case c == codeArray16 || c == codeArray32:
		return u.number(2 << (c - codeArray16))
	case c == codeMap16 || c == codeMap32:
		inside, err = u.number(2 << (c - codeMap16))
		return 2 * inside, err
	default:
		err = errCode("value", c)
	}
	if err == nil {
		_, err = u.take(size)
	}
	return 0, err
}
