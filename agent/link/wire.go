package link

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// What x/sys/unix does not name.
const (
	// linux/neighbour.h
	ndtaName        = 1
	ndtaParms       = 6
	ndtpaIfindex    = 1
	ndtpaAppProbes  = 9
	ndtpaMcastProbe = 11
	rtmGetNeighTbl  = 66 // linux/rtnetlink.h
	// linux/net_namespace.h
	netnsaNSID = 1
	netnsaFD   = 3
	// linux/if_link.h
	macvlanModeBridge    = 4
	inet6AddrGenModeNone = 1
	extFilterSkipStats   = 1 << 3 // RTEXT_FILTER_SKIP_STATS, linux/rtnetlink.h
	devconfDisableIPv6   = 26     // DEVCONF_DISABLE_IPV6, linux/ipv6.h
	etherType8021Q       = 0x8100 // ETH_P_8021Q, linux/if_ether.h
	sizeofNdMsg          = 12     // struct ndmsg
	sizeofNdtMsg         = 4      // struct ndtmsg
	sizeofRtGenMsg       = 4      // struct rtgenmsg, aligned
	attrHeader           = 4      // struct nlattr: length, type
	nestedOrOrder        = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
)

var native = binary.NativeEndian

// encoder appends the bodies of netlink messages to one buffer.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = native.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = native.AppendUint32(e.b, v) }

// attr appends one attribute: length (without padding), type, value, and zeros
// up to the next multiple of 4 (NLA_ALIGNTO, linux/netlink.h).
func (e *encoder) attr(typ uint16, value []byte) {
	e.u16(uint16(attrHeader + len(value)))
	e.u16(typ)
	e.b = append(e.b, value...)
	e.align(len(value))
}

func (e *encoder) align(n int) {
	for ; n%4 != 0; n++ {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) attr8(typ uint16, v uint8) { e.attr(typ, []byte{v}) }

func (e *encoder) attr32(typ uint16, v uint32) {
	var b [4]byte
	native.PutUint32(b[:], v)
	e.attr(typ, b[:])
}

func (e *encoder) attr16(typ uint16, v uint16) {
	var b [2]byte
	native.PutUint16(b[:], v)
	e.attr(typ, b[:])
}

// attrBE16 appends a number in network byte order, as ports and protocols are.
func (e *encoder) attrBE16(typ uint16, v uint16) { e.attr(typ, []byte{byte(v >> 8), byte(v)}) }

func (e *encoder) attrText(typ uint16, text string) { e.attr(typ, append([]byte(text), 0)) }

func (e *encoder) attrMAC(typ uint16, mac log.MAC) { e.attr(typ, mac[:]) }

func (e *encoder) attrAddr(typ uint16, a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		e.attr(typ, b[:])
		return
	}
	b := a.As16()
	e.attr(typ, b[:])
}

// nest appends an attribute whose value is what body appends.
func (e *encoder) nest(typ uint16, body func()) {
	start := len(e.b)
	e.u16(0)
	e.u16(typ | unix.NLA_F_NESTED)
	body()
	native.PutUint16(e.b[start:], uint16(len(e.b)-start))
}

// attrs walks the attributes in b, and stops at the first that does not fit.
// value shares b's memory.
func attrs(b []byte, each func(typ uint16, value []byte)) {
	for len(b) >= attrHeader {
		size := int(native.Uint16(b))
		if size < attrHeader || size > len(b) {
			return
		}
		each(native.Uint16(b[2:])&^nestedOrOrder, b[attrHeader:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}

// The readers of values return zero for a value of the wrong length: the kernel
// does not send such, and what is zero is then put right.

func asU32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return native.Uint32(b)
}

func asU16(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return native.Uint16(b)
}

func asBE16(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func asBool(b []byte) bool { return len(b) == 1 && b[0] != 0 }

func asText(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func asMAC(b []byte) (mac log.MAC) {
	if len(b) == len(mac) {
		copy(mac[:], b)
	}
	return mac
}

func asAddr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// family is the address family of a.
func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
