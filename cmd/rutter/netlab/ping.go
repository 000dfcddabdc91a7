package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// nativeEndian is the byte order of netlink on this machine.
var nativeEndian = binary.NativeEndian

// ICMP types (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// ErrNoReply: no echo reply came in time.
var ErrNoReply = errors.New("netlab: no reply")

// Ping sends one ICMP echo request of size bytes of payload from inside the
// namespace, and waits for its reply. It never sends a second one: a reply says
// that the first packet passed. Errors: ErrNoReply at the timeout, or what the
// kernel said (no route, host unreachable, message too long).
func (n Namespace) Ping(to netip.Addr, size int, timeout time.Duration) (time.Duration, error) {
	var rtt time.Duration
	err := n.Do(func() (err error) {
		rtt, err = ping(to, size, timeout)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ping %s from %s: %w", to, n.Name, err)
	}
	return rtt, nil
}

func ping(to netip.Addr, size int, timeout time.Duration) (time.Duration, error) {
	family, protocol, request, reply := unix.AF_INET, unix.IPPROTO_ICMP, byte(echoRequest4), byte(echoReply4)
	var address unix.Sockaddr
	if to.Is4() {
		address = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		family, protocol, request, reply = unix.AF_INET6, unix.IPPROTO_ICMPV6, echoRequest6, echoReply6
		address = &unix.SockaddrInet6{Addr: to.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	id := uint16(unix.Gettid())
	start := time.Now()
	if err := unix.Sendto(fd, echo(request, id, size), 0, address); err != nil {
		return 0, err
	}
	buf := make([]byte, 65536)
	for {
		left := timeout - time.Since(start)
		if left <= 0 {
			return 0, ErrNoReply
		}
		tv := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return 0, err
		}
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if isEcho(buf[:n], family == unix.AF_INET, reply, id) {
			return time.Since(start), nil
		}
	}
}

// echo is an ICMP message with size bytes of payload. The kernel fills in the
// checksum of ICMPv6; that of ICMPv4 is ours.
func echo(kind byte, id uint16, size int) []byte {
	b := make([]byte, 8+size)
	b[0] = kind
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], 1)
	if kind == echoRequest4 {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// isEcho reports whether a raw socket's packet is the reply with id. IPv4 raw
// sockets deliver the IP header as well (raw(7)), IPv6 ones do not.
func isEcho(b []byte, v4 bool, kind byte, id uint16) bool {
	if v4 {
		if len(b) < 20 {
			return false
		}
		b = b[min(len(b), int(b[0]&15)*4):]
	}
	return len(b) >= 8 && b[0] == kind && binary.BigEndian.Uint16(b[4:]) == id
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
