package answer

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"rutter/log"
)

const (
	// bufferBytes is the receive buffer of a socket: some 5,000 requests, half a second of
	// 10,000 a second. It takes memory only while requests wait.
	bufferBytes = 4 << 20
	// frameBytes holds the largest request. What a guest sends above it is cut, and so
	// breaks its protocol.
	frameBytes = 2 << 10
	// maxBatch is how many requests one read takes.
	maxBatch = 64
)

// socket is a packet socket on a bridge. It may be used by two goroutines, one that reads
// and others that send.
type socket struct {
	file *os.File
}

// listen opens a socket for the requests that come to a bridge.
func listen(bridge uint32) (*socket, error) {
	filter, err := requests()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // of no protocol: it receives nothing yet
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w (the agent needs CAP_NET_RAW)", err)
	}
	fail := func(what string, err error) (*socket, error) {
		return nil, errors.Join(fmt.Errorf("packet socket: %s: %w", what, err), unix.Close(fd))
	}
	// The filter is set first, so that nothing else is in the buffer.
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fail("attach filter", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes) // with a smaller one bursts lose more
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fail("ignore outgoing frames", err)
	}
	// All protocols: such sockets see a frame before the filter that drops it on the bridge
	// (packet(7), linux/net/core/dev.c: ptype_all before the ingress hook).
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: int(bridge)}); err != nil {
		return fail("bind", err)
	}
	return &socket{os.NewFile(uintptr(fd), "packet")}, nil
}

// networkOrder is htons(3).
func networkOrder(n uint16) uint16 {
	var b [2]byte
	order.PutUint16(b[:], n)
	return native.Uint16(b[:])
}

// Results of a filter: bytes to take.
const (
	takeAll  = math.MaxUint32
	takeNone = 0
)

// requests is the filter that accepts what is answered: requests of ARP, solicitations of
// neighbours and routers, and what clients send to a DHCP server.
func requests() ([]unix.SockFilter, error) {
	const (
		take = 23 // places of the two ends
		drop = 24
	)
	at := func(from, to int) uint8 { return uint8(to - from - 1) }
	load := func(offset uint32, size int) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: size} }
	only := func(place int, value uint32) bpf.Instruction { // else drop
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipFalse: at(place, drop)}
	}
	program := []bpf.Instruction{
		0: bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, // a segment has no tags
		1: only(1, 0),
		2: load(12, 2),
		3: bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipFalse: at(3, 6)},
		4: load(20, 2), // the operation
		5: bpf.JumpIf{Cond: bpf.JumpEqual, Val: arpRequest, SkipTrue: at(5, take), SkipFalse: at(5, drop)},

		6:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: at(6, 14)},
		7:  load(23, 1),
		8:  only(8, unix.IPPROTO_UDP),
		9:  load(20, 2), // fragments
		10: bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: at(10, drop)},
		11: bpf.LoadMemShift{Off: ethernetHeader}, // the IPv4 header's length
		12: bpf.LoadIndirect{Off: ethernetHeader + 2, Size: 2},
		13: bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcpServerPort, SkipTrue: at(13, take), SkipFalse: at(13, drop)},

		14: only(14, unix.ETH_P_IPV6),
		15: load(20, 1),
		16: bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMPV6, SkipFalse: at(16, 20)},
		17: load(ethernetHeader+ipv6Header, 1),
		18: bpf.JumpIf{Cond: bpf.JumpEqual, Val: routerSolicitation, SkipTrue: at(18, take)},
		19: bpf.JumpIf{Cond: bpf.JumpEqual, Val: neighbourSolicitation, SkipTrue: at(19, take), SkipFalse: at(19, drop)},

		20: only(20, unix.IPPROTO_UDP),
		21: load(ethernetHeader+ipv6Header+2, 2),
		22: only(22, dhcp6ServerPort),

		take: bpf.RetConstant{Val: takeAll},
		drop: bpf.RetConstant{Val: takeNone},
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("filter of requests: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, one := range raw {
		filter[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	return filter, nil
}

// receive waits for frames, and calls each for some of them. The slice is reused.
func (s *socket) receive(buffer []byte, each func(frame []byte)) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for n := range maxBatch {
			size, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return n > 0
			case err != nil:
				failed = err
				return true
			}
			each(buffer[:size])
		}
		return true
	})
	return errors.Join(err, failed)
}

// send sends a frame by a link. It does not wait: without room in the link's queue it fails.
func (s *socket) send(link uint32, frame []byte) error {
	return s.control(func(fd int) error {
		return unix.Sendto(fd, frame, unix.MSG_DONTWAIT, &unix.SockaddrLinklayer{Protocol: networkOrder(order.Uint16(frame[12:])), Ifindex: int(link)})
	})
}

// mac is the bridge's MAC of now.
func (s *socket) mac() (mac log.MAC, err error) {
	err = s.control(func(fd int) error {
		name, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		if ll, ok := name.(*unix.SockaddrLinklayer); ok {
			copy(mac[:], ll.Addr[:6])
		}
		return nil
	})
	return mac, err
}

// lost returns how many requests had no room since the last call.
func (s *socket) lost() (n uint64) {
	_ = s.control(func(fd int) error {
		stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil {
			n = uint64(stats.Drops)
		}
		return err
	})
	return n
}

func (s *socket) control(fn func(fd int) error) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (s *socket) close() error { return s.file.Close() }
