package serviceaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// segment is a packet socket on a link. It sends probes and announcements of addresses,
// and receives who answers: ARP, and neighbour advertisements.
type segment struct {
	fd   int
	link link
}

// Ethernet, ARP (RFC 826) and ND (RFC 4861).
const (
	ethernetBytes = 14
	arpBytes      = 28
	arpRequest    = 1
	arpReply      = 2
	ipv6Bytes     = 40
	hopLimit      = 255
	solicitation  = 135
	advertisement = 136
	optionTarget  = 2
	flagOverride  = 1 << 29
	// frameBytes holds what is received; options of advertisements beyond it are cut off.
	frameBytes = 256
	// maxDrain bounds the frames that one call of receive reads.
	maxDrain = 512
)

// Results of a filter: bytes to take.
const (
	takeAll  = math.MaxUint32
	takeNone = 0
)

var (
	allNodes     = netip.MustParseAddr("ff02::1")
	broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// openSegment opens the socket. It needs CAP_NET_RAW.
func openSegment(l link) (*segment, error) {
	raw, err := bpf.Assemble([]bpf.Instruction{
		0:  bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, // tagged frames belong to another link
		1:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 8},
		2:  bpf.LoadAbsolute{Off: 12, Size: 2},
		3:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 5},
		4:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipFalse: 5},
		5:  bpf.LoadAbsolute{Off: ethernetBytes + 6, Size: 1},
		6:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMPV6, SkipFalse: 3},
		7:  bpf.LoadAbsolute{Off: ethernetBytes + ipv6Bytes, Size: 1},
		8:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: advertisement, SkipFalse: 1},
		9:  bpf.RetConstant{Val: takeAll},
		10: bpf.RetConstant{Val: takeNone},
	})
	if err != nil {
		return nil, fmt.Errorf("filter of answers: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, one := range raw {
		filter[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	// Of no protocol: it receives nothing until the filter is set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w; the server needs CAP_NET_RAW", err)
	}
	var order [2]byte
	binary.BigEndian.PutUint16(order[:], unix.ETH_P_ALL)
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(order[:]), Ifindex: l.index}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: %w", err), unix.Close(fd))
	}
	return &segment{fd, l}, nil
}

func (s *segment) close() error { return unix.Close(s.fd) }

// send sends a frame. A full queue of the link loses it.
func (s *segment) send(frame []byte) error {
	_, err := unix.Write(s.fd, frame)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

// probe asks who has an address, as one that no machine has yet may be asked for: with no
// sender's address (ARP probe of RFC 5227, duplicate address detection of RFC 4862).
func (s *segment) probe(ip netip.Addr) error {
	if ip.Is4() {
		return s.send(arpFrame(broadcastMAC, s.link.mac, arpRequest, netip.IPv4Unspecified(), nil, ip))
	}
	a := ip.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}) // solicited-node
	message := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, a[:]...)
	return s.send(icmpFrame(s.link.mac, netip.IPv6Unspecified(), group, message))
}

// announce makes the machines of the link send to this server: a gratuitous ARP request
// and reply (some systems take only one of them), or an unsolicited advertisement.
func (s *segment) announce(ip netip.Addr) error {
	if ip.Is4() {
		return errors.Join(
			s.send(arpFrame(broadcastMAC, s.link.mac, arpRequest, ip, nil, ip)),
			s.send(arpFrame(broadcastMAC, s.link.mac, arpReply, ip, broadcastMAC, ip)),
		)
	}
	message := binary.BigEndian.AppendUint32([]byte{advertisement, 0, 0, 0}, flagOverride)
	message = append(append(message, ip.AsSlice()...), optionTarget, 1)
	return s.send(icmpFrame(s.link.mac, ip, allNodes, append(message, s.link.mac...)))
}

// receive reads what came, without waiting, and calls claimed with each address that
// another machine says to have, and that machine's MAC.
func (s *segment) receive(claimed func(ip netip.Addr, mac net.HardwareAddr)) error {
	var b [frameBytes]byte
	for range maxDrain {
		n, _, err := unix.Recvfrom(s.fd, b[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		if ip, mac, ok := claim(b[:n]); ok && mac.String() != s.link.mac.String() {
			claimed(ip, mac)
		}
	}
	return nil
}

// claim returns the address that the sender of a frame says to have.
func claim(b []byte) (ip netip.Addr, mac net.HardwareAddr, ok bool) {
	if len(b) < ethernetBytes {
		return ip, nil, false
	}
	kind, p := binary.BigEndian.Uint16(b[12:]), b[ethernetBytes:]
	switch {
	case kind == unix.ETH_P_ARP && len(p) >= arpBytes && [6]byte(p[:6]) == arpHeader:
		ip, mac = netip.AddrFrom4([4]byte(p[14:18])), p[8:14]
		return ip, net.HardwareAddr(append([]byte(nil), mac...)), !ip.IsUnspecified()
	case kind == unix.ETH_P_IPV6 && len(p) >= ipv6Bytes+24 && p[6] == unix.IPPROTO_ICMPV6 && p[7] == hopLimit && p[ipv6Bytes] == advertisement:
		ip = netip.AddrFrom16([16]byte(p[ipv6Bytes+8 : ipv6Bytes+24]))
		return ip, net.HardwareAddr(append([]byte(nil), b[6:12]...)), true
	}
	return ip, nil, false
}

// arpHeader is the beginning of each message: Ethernet, IPv4, and their lengths.
var arpHeader = [6]byte{0, 1, 8, 0, 6, 4}

// arpFrame is an ARP message of a machine. A nil target is not known.
func arpFrame(to, from net.HardwareAddr, operation uint16, sender netip.Addr, target net.HardwareAddr, ip netip.Addr) []byte {
	b := make([]byte, 0, ethernetBytes+arpBytes)
	b = binary.BigEndian.AppendUint16(append(append(b, to...), from...), unix.ETH_P_ARP)
	b = binary.BigEndian.AppendUint16(append(b, arpHeader[:]...), operation)
	b = append(append(b, from...), sender.AsSlice()...)
	if target == nil {
		target = make(net.HardwareAddr, 6)
	}
	return append(append(b, target...), ip.AsSlice()...)
}

// icmpFrame is a frame with a message of ICMPv6 to a multicast address.
func icmpFrame(mac net.HardwareAddr, from, to netip.Addr, message []byte) []byte {
	group := to.As16()
	b := append([]byte{0x33, 0x33}, group[12:]...)
	b = binary.BigEndian.AppendUint16(append(b, mac...), unix.ETH_P_IPV6)
	b = binary.BigEndian.AppendUint16(append(b, 6<<4, 0, 0, 0), uint16(len(message)))
	b = append(b, unix.IPPROTO_ICMPV6, hopLimit)
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	pseudo := append(append(append([]byte(nil), from.AsSlice()...), to.AsSlice()...), 0, 0, byte(len(message)>>8), byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	sum := checksum(append(pseudo, message...))
	b = append(b, message...)
	binary.BigEndian.PutUint16(b[ethernetBytes+ipv6Bytes+2:], sum)
	return b
}

// checksum is the Internet checksum (RFC 1071) of data whose own checksum is 0.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > math.MaxUint16 {
		sum = sum>>16 + sum&math.MaxUint16
	}
	return ^uint16(sum)
}
