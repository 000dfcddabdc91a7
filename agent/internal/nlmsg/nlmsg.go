// Package nlmsg reads netlink messages and their attributes (linux/netlink.h), for code
// that reads its own sockets. It allocates nothing, and its results share the memory of
// the input. The content of bodies is left to callers.
package nlmsg

import "encoding/binary"

// HeaderSize and AttrHeaderSize are the sizes of struct nlmsghdr and nlattr in bytes.
const (
	HeaderSize     = 16
	AttrHeaderSize = 4
)

// typeMask removes the flags from an attribute's type (NLA_TYPE_MASK).
const typeMask = 1<<14 - 1

// Header is the header of a message, without its length.
type Header struct {
	Type, Flags uint16
	Seq         uint32
}

// Next returns the first message in b and the rest; ok is false if b does not begin
// with a complete message.
func Next(b []byte) (h Header, body, rest []byte, ok bool) {
	if len(b) < HeaderSize {
		return h, nil, nil, false
	}
	order := binary.NativeEndian
	size := int(order.Uint32(b))
	if size < HeaderSize || size > len(b) {
		return h, nil, nil, false
	}
	h = Header{Type: order.Uint16(b[4:]), Flags: order.Uint16(b[6:]), Seq: order.Uint32(b[8:])}
	return h, b[HeaderSize:size], b[min((size+3)&^3, len(b)):], true
}

// NextAttr returns the type, without flags, and the value of the first attribute in b,
// and the rest; ok is false if b does not begin with a complete attribute.
func NextAttr(b []byte) (typ uint16, value, rest []byte, ok bool) {
	if len(b) < AttrHeaderSize {
		return 0, nil, nil, false
	}
	order := binary.NativeEndian
	size := int(order.Uint16(b))
	if size < AttrHeaderSize || size > len(b) {
		return 0, nil, nil, false
	}
	return order.Uint16(b[2:]) & typeMask, b[AttrHeaderSize:size], b[min((size+3)&^3, len(b)):], true
}

// Attrs yields each attribute in b, up to the first incomplete one.
func Attrs(b []byte, show func(typ uint16, value []byte)) {
	for typ, value, rest, ok := NextAttr(b); ok; typ, value, rest, ok = NextAttr(rest) {
		show(typ, value)
	}
}
