// Package wire has the bytes of rtnetlink messages about links and what is on them:
// what package link sends for a [plan.Step], and what it reads of dumps and
// notifications. It owns attributes, headers and the constants that
// golang.org/x/sys/unix lacks. Sockets, batches and namespaces are left to package
// link, and the wanted state of the kernel to package plan. It keeps no state, and its
// functions may be called from any goroutine.
package wire

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// Constants that x/sys/unix lacks.
const (
	// linux/neighbour.h
	ndtaName        = 1
	ndtaParms       = 6
	ndtpaIfindex    = 1
	ndtpaAppProbes  = 9
	ndtpaMcastProbe = 11
	// linux/if_link.h
	macvlanModeBridge    = 4
	ntfSticky            = 1 << 6 // NTF_STICKY, linux/neighbour.h
	operUp               = 6      // IF_OPER_UP, linux/if.h
	vethInfoPeer         = 1      // VETH_INFO_PEER, linux/veth.h
	brStpState           = 5      // IFLA_BR_STP_STATE
	tunOwner             = 1      // IFLA_TUN_OWNER (linux/if_link.h)
	brMcastSnooping      = 23     // IFLA_BR_MCAST_SNOOPING
	brportLearning       = 8      // IFLA_BRPORT_LEARNING
	brportUnicastFlood   = 9      // IFLA_BRPORT_UNICAST_FLOOD
	brportFlush          = 24     // IFLA_BRPORT_FLUSH
	brportMcastFlood     = 27     // IFLA_BRPORT_MCAST_FLOOD
	brportBcastFlood     = 30     // IFLA_BRPORT_BCAST_FLOOD
	inet6AddrGenModeNone = 1
	devconfDisableIPv6   = 26     // DEVCONF_DISABLE_IPV6, linux/ipv6.h
	etherType8021Q       = 0x8100 // ETH_P_8021Q, linux/if_ether.h
	attrHeader           = 4      // struct nlattr: length, type
)

// The same, for code that sends and reads complete messages. Sizes are in bytes.
const (
	RtmGetNeighTbl     = 66     // RTM_GETNEIGHTBL, linux/rtnetlink.h
	ExtFilterSkipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS, linux/rtnetlink.h
	NetnsaNSID         = 1      // NETNSA_NSID, linux/net_namespace.h
	NetnsaFD           = 3      // NETNSA_FD
	SizeofNdMsg        = 12     // struct ndmsg, linux/neighbour.h
	SizeofNdtMsg       = 4      // struct ndtmsg
	SizeofRtGenMsg     = 4      // struct rtgenmsg, aligned
)

var native = binary.NativeEndian

// Encoder appends the bodies of netlink messages to one buffer. The zero value is
// ready. B is what was appended so far; a caller may set it to reuse its memory.
type Encoder struct{ B []byte }

func (e *Encoder) u8(v uint8)   { e.B = append(e.B, v) }
func (e *Encoder) u16(v uint16) { e.B = native.AppendUint16(e.B, v) }

// U32 appends a number in the machine's byte order.
func (e *Encoder) U32(v uint32) { e.B = native.AppendUint32(e.B, v) }

// attr appends one attribute: length (without padding), type, value, and zeros
// up to the next multiple of 4 (NLA_ALIGNTO, linux/netlink.h).
func (e *Encoder) attr(typ uint16, value []byte) {
	e.u16(uint16(attrHeader + len(value)))
	e.u16(typ)
	e.B = append(e.B, value...)
	e.align(len(value))
}

func (e *Encoder) align(n int) {
	for ; n%4 != 0; n++ {
		e.B = append(e.B, 0)
	}
}

func (e *Encoder) attr8(typ uint16, v uint8) { e.attr(typ, []byte{v}) }

// Attr32 appends an attribute that is one 32-bit number.
func (e *Encoder) Attr32(typ uint16, v uint32) {
	var b [4]byte
	native.PutUint32(b[:], v)
	e.attr(typ, b[:])
}

func (e *Encoder) attr16(typ uint16, v uint16) {
	var b [2]byte
	native.PutUint16(b[:], v)
	e.attr(typ, b[:])
}

// attrBE16 appends a number in network byte order, as ports and protocols are.
func (e *Encoder) attrBE16(typ uint16, v uint16) { e.attr(typ, []byte{byte(v >> 8), byte(v)}) }

// AttrText appends an attribute that is text with a zero at its end.
func (e *Encoder) AttrText(typ uint16, text string) { e.attr(typ, append([]byte(text), 0)) }

func (e *Encoder) attrMAC(typ uint16, mac log.MAC) { e.attr(typ, mac[:]) }

// AttrAddr appends an attribute that is an address of 4 or 16 bytes.
func (e *Encoder) AttrAddr(typ uint16, a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		e.attr(typ, b[:])
		return
	}
	b := a.As16()
	e.attr(typ, b[:])
}

// Nest appends an attribute whose value is what body appends.
func (e *Encoder) Nest(typ uint16, body func()) {
	start := len(e.B)
	e.u16(0)
	e.u16(typ | unix.NLA_F_NESTED)
	body()
	native.PutUint16(e.B[start:], uint16(len(e.B)-start))
}

// The readers of values return zero for a value of the wrong length: the kernel does
// not send such values, and a zero is corrected by the next pass.

// AsU32 reads a number of 4 bytes in the machine's byte order.
func AsU32(b []byte) uint32 {
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
