package demo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// What the frames of a VM that lies are made of.
const (
	etherIPv4, etherARP, etherIPv6, etherVLAN = 0x0800, 0x0806, 0x86dd, 0x8100

	portDiscard           = 9 // RFC 863
	dhcpServer, dhcpGuest = 67, 68
	routerAdvertisement   = 134 // ICMPv6, RFC 4861
	neighbourAdvertise    = 136
	fabricVLAN            = 4 // of input.json, where the kernel has 802.1Q
	vxlanPort             = 4789
)

func be16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

func ether(to, from log.MAC, protocol int, payload []byte) []byte {
	return slices.Concat(to[:], from[:], be16(protocol), payload)
}

// udp4 is a UDP datagram in IPv4, without the UDP checksum, which IPv4 leaves open.
func udp4(from, to netip.Addr, source, target int, text string) []byte {
	h := slices.Concat([]byte{0x45, 0}, be16(28+len(text)), []byte{0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, from.AsSlice(), to.AsSlice())
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
	return slices.Concat(h, be16(source), be16(target), be16(8+len(text)), be16(0), []byte(text))
}

// icmp6 is an ICMPv6 message without a checksum: the receiver looks at the frame only.
func icmp6(from, to netip.Addr, kind byte, body []byte) []byte {
	return slices.Concat([]byte{0x60, 0, 0, 0}, be16(4+len(body)), []byte{unix.IPPROTO_ICMPV6, 255}, from.AsSlice(), to.AsSlice(), []byte{kind, 0, 0, 0}, body)
}

// arpReply says that an address is at a MAC.
func arpReply(mac log.MAC, ip netip.Addr, to log.MAC, target netip.Addr) []byte {
	return slices.Concat(be16(1), be16(etherIPv4), []byte{6, 4}, be16(2), mac[:], ip.AsSlice(), to[:], target.AsSlice())
}

// tap is a packet socket on one link of a VM: it sends any frame, and receives all that come.
type tap struct{ fd int }

// openTap opens the tap of a VM's NIC of a family.
func (v *vm) openTap(v6 bool) (t tap, err error) {
	err = v.ns.Do(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		mac := v.mac(v6)
		at := slices.IndexFunc(links, func(l net.Interface) bool { return bytes.Equal(l.HardwareAddr, mac[:]) })
		if at < 0 {
			return fmt.Errorf("%s has no link with the MAC %s", v.alias, mac)
		}
		all := binary.NativeEndian.Uint16(be16(unix.ETH_P_ALL))
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		return unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: links[at].Index})
	})
	return t, err
}

func (t tap) close() { _ = unix.Close(t.fd) }

func (t tap) send(frame []byte) error {
	_, err := unix.Write(t.fd, frame)
	return err
}

// count reads all frames that have come, and counts those that are one of some.
func (t tap) count(frames [][]byte) (n int, err error) {
	buf := make([]byte, 65536)
	for {
		got, err := unix.Read(t.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if slices.ContainsFunc(frames, func(f []byte) bool { return bytes.Equal(f, buf[:got]) }) {
			n++
		}
	}
}

// sendVXLAN sends a frame as a node of a vnet does, from a namespace's own address.
func sendVXLAN(ns netlab.Namespace, to netip.Addr, vnet uint32, tagged bool, frame []byte) error {
	if tagged {
		frame = slices.Concat(frame[:12], be16(etherVLAN), be16(fabricVLAN), frame[12:])
	}
	header := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vnet<<8) // RFC 7348
	return ns.Do(func() error {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteToUDPAddrPort(slices.Concat(header, frame), netip.AddrPortFrom(to, vxlanPort))
		return err
	})
}
