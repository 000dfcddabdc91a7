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

// packer writes msgpack to the end of a slice, each value in the shortest form:
// the very bytes that the library's Encoder writes with compact integers, which
// goes through an io.Writer and is several times slower. Every server encodes
// every event.
type packer struct{ b []byte }

func (p *packer) null() { p.b = append(p.b, codeNil) }

func (p *packer) bool(x bool) {
	if x {
		p.b = append(p.b, codeTrue)
		return
	}
	p.b = append(p.b, codeFalse)
}

func (p *packer) uint(n uint64) {
	switch {
	case n < codeFixMap:
		p.b = append(p.b, byte(n))
	case n < 1<<8:
		p.b = append(p.b, codeUint8, byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, codeUint16), uint16(n))
	case n < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, codeUint32), uint32(n))
	default:
		p.b = binary.BigEndian.AppendUint64(append(p.b, codeUint64), n)
	}
}

func (p *packer) int(n int64) {
	switch {
	case n >= 0:
		p.uint(uint64(n))
	case n >= -32:
		p.b = append(p.b, byte(n))
	case n >= -1<<7:
		p.b = append(p.b, codeInt8, byte(n))
	case n >= -1<<15:
		p.b = binary.BigEndian.AppendUint16(append(p.b, codeInt16), uint16(n))
	case n >= -1<<31:
		p.b = binary.BigEndian.AppendUint32(append(p.b, codeInt32), uint32(n))
	default:
		p.b = binary.BigEndian.AppendUint64(append(p.b, codeInt64), uint64(n))
	}
}

// length writes the header of what has n bytes or elements: fix plus n if n is
// below fixed, else one of the codes for 8 (if there is one), 16 and 32 bits.
func (p *packer) length(n int, fix byte, fixed int, code8, code16, code32 byte) {
	switch {
	case n < fixed:
		p.b = append(p.b, fix+byte(n))
	case n < 1<<8 && code8 != 0:
		p.b = append(p.b, code8, byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, code16), uint16(n))
	default:
		p.b = binary.BigEndian.AppendUint32(append(p.b, code32), uint32(n))
	}
}

func (p *packer) array(n int)  { p.length(n, codeFixArray, 16, 0, codeArray16, codeArray32) }
func (p *packer) mapLen(n int) { p.length(n, codeFixMap, 16, 0, codeMap16, codeMap32) }

func (p *packer) text(s string) {
	p.length(len(s), codeFixStr, 32, codeStr8, codeStr16, codeStr32)
	p.b = append(p.b, s...)
}

func (p *packer) bin(b []byte) {
	p.length(len(b), 0, 0, codeBin8, codeBin16, codeBin32)
	p.b = append(p.b, b...)
}
