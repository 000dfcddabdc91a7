package localhttp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The messages of sock_diag(7) about sockets of TCP (linux/inet_diag.h).
const (
	sockDiagByFamily = 20 // the type of a request and of its answer
	diagRequestLen   = 56 // struct inet_diag_req_v2: 8 bytes, then a sockid
	diagAnswerLen    = 72 // struct inet_diag_msg: 4 bytes, a sockid, 20 bytes
	diagSockid       = 4  // where the sockid of an answer begins: ports and addresses, 36 bytes
	diagUID          = diagAnswerLen - 8
	diagInode        = diagAnswerLen - 4
)

// The states of a client's socket that can receive an answer (linux/net/tcp_states.h).
// The latter two are those of a client that has ended its own half.
const (
	tcpEstablished = 1
	tcpFinWait1    = 4
	tcpFinWait2    = 5
)

// tcpPeer returns the owner of the client's end of a TCP connection, if that end is a
// socket of this machine, in the network namespace of this process.
func tcpPeer(client, server net.Addr) (Peer, error) {
	from, err := addrPort(client)
	if err != nil {
		return Peer{}, err
	}
	to, err := addrPort(server)
	if err != nil {
		return Peer{}, err
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return Peer{}, fmt.Errorf("sock_diag: %w", err)
	}
	defer conn.Close()
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request}, Data: diagRequest(from, to),
	})
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", ErrUnknownPeer, err)
	}
	if len(answers) != 1 {
		return Peer{}, fmt.Errorf("%w: %d answers", ErrUnknownPeer, len(answers))
	}
	return diagPeer(answers[0].Data, from, to)
}

// diagRequest asks for the one socket that is connected from one address to another.
func diagRequest(from, to netip.AddrPort) []byte {
	b := make([]byte, diagRequestLen)
	b[0], b[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if from.Addr().Is4() {
		b[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpEstablished|1<<tcpFinWait1|1<<tcpFinWait2)
	putSockid(b[8:], from, to)
	for i := 48; i < diagRequestLen; i++ {
		b[i] = 0xff // no cookie: INET_DIAG_NOCOOKIE
	}
	return b
}

// putSockid writes the ports and addresses of struct inet_diag_sockid.
func putSockid(b []byte, from, to netip.AddrPort) {
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	copy(b[4:20], from.Addr().AsSlice())
	copy(b[20:36], to.Addr().AsSlice())
}

// diagPeer reads the owner of the socket that is connected from one address to another.
// The kernel may answer with another socket, such as one that listens at the port of the
// client. A socket without an inode is closed: its owner is root by default.
func diagPeer(b []byte, from, to netip.AddrPort) (Peer, error) {
	if len(b) < diagAnswerLen {
		return Peer{}, fmt.Errorf("%w: an answer of %d bytes", ErrUnknownPeer, len(b))
	}
	switch state := b[1]; state {
	case tcpEstablished, tcpFinWait1, tcpFinWait2:
	default:
		return Peer{}, fmt.Errorf("%w: its socket is in state %d", ErrUnknownPeer, state)
	}
	got := func(at int) netip.AddrPort {
		addr, size := diagSockid+4+16*at, 4
		if b[0] == unix.AF_INET6 {
			size = 16
		}
		ip, _ := netip.AddrFromSlice(b[addr : addr+size]) // the size is right
		return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[diagSockid+2*at:]))
	}
	if got(0) != from || got(1) != to {
		return Peer{}, fmt.Errorf("%w: the answer is about another socket", ErrUnknownPeer)
	}
	if binary.NativeEndian.Uint32(b[diagInode:]) == 0 {
		return Peer{}, fmt.Errorf("%w: its socket is closed", ErrUnknownPeer)
	}
	return Peer{UID: binary.NativeEndian.Uint32(b[diagUID:])}, nil
}

func addrPort(a net.Addr) (netip.AddrPort, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%w: %T", ErrUnknownPeer, a)
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), nil
}
