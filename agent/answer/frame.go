package answer

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// Sizes of headers in bytes.
const (
	ethernetHeader = 14
	ipv4Header     = 20 // without options
	ipv6Header     = 40
	udpHeader      = 8
)

// hopLimit is what all of ND must have, so that it is known to come from the link
// (RFC 4861, section 3.1). DHCP gets it too.
const hopLimit = 255

var (
	toAll      = log.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes   = netip.MustParseAddr("ff02::1")
	broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

var order = binary.BigEndian

// frame is an Ethernet frame.
type frame struct {
	dst, src log.MAC
	kind     uint16 // EtherType
	payload  []byte
}

// parseFrame reads a frame without a VLAN tag.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < ethernetHeader {
		return f, false
	}
	return frame{log.MAC(b[:6]), log.MAC(b[6:12]), order.Uint16(b[12:]), b[ethernetHeader:]}, true
}

func (f frame) bytes() []byte {
	b := make([]byte, 0, ethernetHeader+len(f.payload))
	b = append(append(b, f.dst[:]...), f.src[:]...)
	return append(order.AppendUint16(b, f.kind), f.payload...)
}

// packet is what an IP packet carries, IPv4 or IPv6, and from where to where.
type packet struct {
	src, dst netip.Addr
	protocol byte
	hops     byte
	payload  []byte
}

// parseIPv4 reads a packet that is no fragment.
func parseIPv4(b []byte) (p packet, ok bool) {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return p, false
	}
	header, total := int(b[0]&15)*4, int(order.Uint16(b[2:]))
	if header < ipv4Header || total < header || total > len(b) || order.Uint16(b[6:])&0x3fff != 0 || checksum(0, b[:header]) != 0 {
		return p, false
	}
	return packet{netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9], b[8], b[header:total]}, true
}

// parseIPv6 reads a packet. One with extension headers has their number as protocol.
func parseIPv6(b []byte) (p packet, ok bool) {
	if len(b) < ipv6Header || b[0]>>4 != 6 {
		return p, false
	}
	end := ipv6Header + int(order.Uint16(b[4:]))
	if end > len(b) {
		return p, false
	}
	return packet{netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], b[7], b[ipv6Header:end]}, true
}

// bytes encodes the packet, with the header of its addresses' family.
func (p packet) bytes() []byte {
	src, dst := p.src.AsSlice(), p.dst.AsSlice()
	var b []byte
	if p.src.Is4() {
		b = make([]byte, ipv4Header, ipv4Header+len(p.payload))
		b[0] = 0x45
		order.PutUint16(b[2:], uint16(ipv4Header+len(p.payload)))
		b[8], b[9] = p.hops, p.protocol
		copy(b[12:], src)
		copy(b[16:], dst)
		order.PutUint16(b[10:], checksum(0, b))
	} else {
		b = make([]byte, ipv6Header, ipv6Header+len(p.payload))
		b[0] = 6 << 4
		order.PutUint16(b[4:], uint16(len(p.payload)))
		b[6], b[7] = p.protocol, p.hops
		copy(b[8:], src)
		copy(b[24:], dst)
	}
	return append(b, p.payload...)
}

// etherType is the frame's type for the packet.
func (p packet) etherType() uint16 {
	if p.src.Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// pseudo is the sum of the pseudo header that UDP and ICMPv6 have in their checksums.
func (p packet) pseudo() uint32 {
	return sum(sum(sum(0, p.src.AsSlice()), p.dst.AsSlice()), []byte{0, p.protocol, byte(len(p.payload) >> 8), byte(len(p.payload))})
}

// datagram is a UDP datagram.
type datagram struct {
	from, to uint16 // ports
	payload  []byte
}

// parseUDP reads a datagram. The checksum is not looked at: a guest's kernel leaves it to
// the network card, which there is not between a guest and its node.
func parseUDP(b []byte) (d datagram, ok bool) {
	if len(b) < udpHeader {
		return d, false
	}
	length := int(order.Uint16(b[4:]))
	if length < udpHeader || length > len(b) {
		return d, false
	}
	return datagram{order.Uint16(b), order.Uint16(b[2:]), b[udpHeader:length]}, true
}

// udpFrame is a frame with a datagram.
func udpFrame(dst, src log.MAC, from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, udpHeader, udpHeader+len(payload))
	order.PutUint16(b, from.Port())
	order.PutUint16(b[2:], to.Port())
	order.PutUint16(b[4:], uint16(udpHeader+len(payload)))
	p := packet{src: from.Addr(), dst: to.Addr(), protocol: unix.IPPROTO_UDP, hops: hopLimit, payload: append(b, payload...)}
	c := checksum(p.pseudo(), p.payload)
	if c == 0 {
		c = 0xffff // zero says that there is none (RFC 768)
	}
	order.PutUint16(p.payload[6:], c)
	return frame{dst, src, p.etherType(), p.bytes()}.bytes()
}

// icmpFrame is a frame with a message of ICMPv6, whose checksum it computes.
func icmpFrame(dst, src log.MAC, from, to netip.Addr, message []byte) []byte {
	p := packet{src: from, dst: to, protocol: unix.IPPROTO_ICMPV6, hops: hopLimit, payload: message}
	order.PutUint16(message[2:], 0)
	order.PutUint16(message[2:], checksum(p.pseudo(), message))
	return frame{dst, src, unix.ETH_P_IPV6, p.bytes()}.bytes()
}

// sum adds to the sum of RFC 1071.
func sum(so uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		so += uint32(order.Uint16(b))
	}
	if len(b) == 1 {
		so += uint32(b[0]) << 8
	}
	return so
}

// checksum is the Internet checksum (RFC 1071), 0 for data that has a correct one.
func checksum(so uint32, b []byte) uint16 {
	so = sum(so, b)
	for so > 0xffff {
		so = so>>16 + so&0xffff
	}
	return ^uint16(so)
}

// multicastMAC is the MAC of an IPv6 multicast address (RFC 2464, section 7).
func multicastMAC(ip netip.Addr) log.MAC {
	a := ip.As16()
	return log.MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// linkLocal is the link-local address that follows from a MAC (RFC 4291, appendix A).
func linkLocal(mac log.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
