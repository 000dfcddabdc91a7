package underlay

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// What a probe sends, and how fast: one packet is under way at a time.
const (
	probeTries = 3                      // packets of one size before it counts as lost
	probeWait  = time.Second            // for the reply to a packet
	probePause = 100 * time.Millisecond // after each packet, whatever its fate: at most 10 in a second
)

// Packets that each path carries, in bytes (RFC 791, RFC 8200 section 5).
const (
	least4 = 576
	least6 = 1280
)

// nonceBytes are the random bytes at the end of a probe's data: its reply repeats them.
const nonceBytes = 16

// echoHeader is what an ICMP echo has before its data, in bytes.
const echoHeader = 8

// Prober finds the largest packet that arrives at another address: it sends ICMP echo
// requests that no router may cut, and waits for replies. It is for one goroutine.
type Prober struct {
	four, six *net.IPConn // nil: not possible here
	id        uint16
	seq       uint16

	wait, pause time.Duration // probeWait and probePause; tests have less
}

// OpenProber opens the sockets. It needs CAP_NET_RAW, and the use of a Prober does not.
// Without IPv4 or IPv6 the Prober has no use for addresses of that family.
func OpenProber() (*Prober, error) {
	p := &Prober{wait: probeWait, pause: probePause}
	var id [2]byte
	_, _ = rand.Read(id[:]) // it does not fail (crypto/rand)
	p.id = binary.NativeEndian.Uint16(id[:])
	var err4, err6 error
	p.four, err4 = listenICMP("ip4:icmp", "0.0.0.0", func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
	p.six, err6 = listenICMP("ip6:ipv6-icmp", "::", func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		return errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
	})
	if p.four == nil && p.six == nil {
		return nil, fmt.Errorf("underlay: ICMP: %w", errors.Join(err4, err6))
	}
	p.filter()
	return p, nil
}

// listenICMP opens a raw socket, and sets options of it.
func listenICMP(network, address string, set func(fd int) error) (*net.IPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = set(int(fd)) })
		return errors.Join(err, failed)
	}}
	conn, err := config.ListenPacket(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.IPConn), nil
}

// filter makes the kernel drop what is no echo reply. Without it more is read for nothing.
func (p *Prober) filter() {
	if p.four != nil {
		var f ipv4.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv4.ICMPTypeEchoReply)
		_ = ipv4.NewPacketConn(p.four).SetICMPFilter(&f)
	}
	if p.six != nil {
		var f ipv6.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv6.ICMPTypeEchoReply)
		_ = ipv6.NewPacketConn(p.six).SetICMPFilter(&f)
	}
}

// Close closes the sockets.
func (p *Prober) Close() error {
	var err error
	for _, conn := range []*net.IPConn{p.four, p.six} {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	return err
}

// Path returns the largest packet, in bytes, up to most, that goes from an address of this
// node to another and back; 0 if the other one does not answer at all, of which nothing
// follows. One size counts as lost after probeTries packets, and a path as narrow only if
// most is lost at the beginning and at the end of the search.
func (p *Prober) Path(ctx context.Context, from, to netip.Addr, most uint32) (uint32, error) {
	return search(to, most, func(size uint32) (bool, error) { return p.arrives(ctx, from, to, size) })
}

// search is Path with any way to try a size.
func search(to netip.Addr, most uint32, try func(size uint32) (bool, error)) (uint32, error) {
	least := uint32(least4)
	if to.Is6() {
		least = least6
	}
	low, high := min(least, most), most
	if ok, err := try(low); !ok || err != nil {
		return 0, err
	}
	if ok, err := try(most); ok || err != nil {
		return most, err
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := try(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	if ok, err := try(most); ok || err != nil {
		return most, err
	}
	if ok, err := try(low); !ok || err != nil {
		return 0, err // it is gone meanwhile
	}
	return low, nil
}

// arrives reports whether a packet of a size arrives, and its reply.
func (p *Prober) arrives(ctx context.Context, from, to netip.Addr, size uint32) (bool, error) {
	for range probeTries {
		ok, err := p.echo(ctx, from, to, int(size))
		if ok || err != nil {
			return ok, err
		}
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}

// echo sends one packet, and waits for its reply.
func (p *Prober) echo(ctx context.Context, from, to netip.Addr, size int) (bool, error) {
	conn, header, oob := p.four, ipv4.HeaderLen, (&ipv4.ControlMessage{Src: net.IP(from.AsSlice())}).Marshal()
	request, answer := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if to.Is6() {
		conn, header, oob = p.six, ipv6.HeaderLen, (&ipv6.ControlMessage{Src: net.IP(from.AsSlice())}).Marshal()
		request, answer = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	if conn == nil {
		return false, fmt.Errorf("underlay: no ICMP socket of the family of %s", to)
	}
	p.seq++
	data := make([]byte, max(size-header-echoHeader, nonceBytes))
	copy(data, "rutter path MTU probe (docs/deploy.md, MTU)")
	_, _ = rand.Read(data[len(data)-nonceBytes:]) // a host that does not see the packet cannot answer it
	sent, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: int(p.id), Seq: int(p.seq), Data: data}}).Marshal(nil)
	if err != nil {
		return false, err
	}
	if _, _, err := conn.WriteMsgIP(sent, oob, &net.IPAddr{IP: to.AsSlice()}); errors.Is(err, unix.EMSGSIZE) {
		return false, nil // the link here carries less by now
	} else if err != nil {
		return false, ctx.Err() // as if it were lost: no route, or no buffer
	}
	deadline := time.Now().Add(p.wait)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buffer := make([]byte, 64<<10)
	for {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		_ = conn.SetReadDeadline(deadline)
		n, at, err := conn.ReadFromIP(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, ctx.Err()
		} else if err != nil {
			return false, fmt.Errorf("underlay: ICMP: %w", err)
		}
		if whence, _ := netip.AddrFromSlice(at.IP); whence.Unmap() != to {
			continue
		}
		m, err := icmp.ParseMessage(protocolOf(to), buffer[:n])
		if err != nil || m.Type != answer {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && body.ID == int(p.id) && body.Seq == int(p.seq) && bytes.Equal(body.Data, data) {
			return true, nil
		}
	}
}

func protocolOf(a netip.Addr) int {
	if a.Is6() {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}
