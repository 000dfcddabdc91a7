package log

import "encoding/binary"

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
