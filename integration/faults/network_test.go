package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// servers is the number of servers of a cluster, as large as a small one is.
const servers = 3

// network is a bridge with a namespace for each server on a port of its own;
// the clients sit on the bridge itself. Addresses are not resolved: each host knows
// the others' Ethernet addresses. A cut gives one host a wrong address of a peer, so
// that what it sends to that peer is dropped in silence, and only that.
type network struct {
	number int // of 10.number.0.0/24
	bridge string
	hosts  [servers]netlab.Namespace
}

// networks counts those made, for their addresses.
var networks atomic.Int32

func (n *network) addr(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n.number), 0, byte(host + 1)})
}

// clients is the address of the bridge.
func (n *network) clients() netip.Addr { return n.addr(200) }

func (n *network) port(host int) string { return fmt.Sprintf("p%d_%d", n.number, host) }

func mac(host int) [6]byte { return [6]byte{2, 0, 0, 0, 0, byte(host + 1)} }

// An Ethernet address that no port has.
var nobody = [6]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff}

// eth is the name of a server's link in its namespace.
const eth = "eth0"

// newNetwork builds one; it goes away with the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{number: int(networks.Add(1) % 250)}
	n.bridge = fmt.Sprintf("br%d", n.number)
	err := errors.Join(netlab.AddBridge(n.bridge), netlab.SetMAC(n.bridge, mac(200)), netlab.AddAddress(n.bridge, netip.PrefixFrom(n.clients(), 24)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlab.DeleteLink(n.bridge); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	for i := range n.hosts {
		host, err := netlab.Create(dir, fmt.Sprintf("n%d", i))
		if err != nil {
			t.Fatal(err)
		}
		n.hosts[i] = host
		t.Cleanup(func() {
			// The kernel ends a namespace some time after its last process; the
			// names of its links are wanted again only by another run.
			if err := errors.Join(netlab.DeleteLink(n.port(i)), host.Delete()); err != nil {
				t.Error(err)
			}
		})
		err = errors.Join(netlab.AddVeth(n.port(i), eth, host, 1500), netlab.SetMaster(n.port(i), n.bridge), netlab.SetUp(n.port(i), true),
			host.Do(func() error {
				return errors.Join(netlab.SetMAC(eth, mac(i)), netlab.SetUp(eth, true), netlab.AddAddress(eth, netip.PrefixFrom(n.addr(i), 24)),
					setNeighbour(eth, n.clients(), mac(200)))
			}),
			setNeighbour(n.bridge, n.addr(i), mac(i)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := n.cut(0); err != nil {
		t.Fatal(err)
	}
	return n
}

// links is a set of directed links between servers: bit from*servers+to.
type links uint16

func link(from, to int) links { return 1 << (from*servers + to) }

// String lists the links, as in 1>2 3>2.
func (l links) String() string {
	text := ""
	for from := range servers {
		for to := range servers {
			if l&link(from, to) != 0 {
				text += fmt.Sprintf(" %d>%d", from+1, to+1)
			}
		}
	}
	return text
}

// cut drops what goes over the links named, and heals all others.
func (n *network) cut(cuts links) error {
	var errs []error
	for from, host := range n.hosts {
		errs = append(errs, host.Do(func() error {
			var errs []error
			for to := range n.hosts {
				if to == from {
					continue
				}
				at := mac(to)
				if cuts&link(from, to) != 0 {
					at = nobody
				}
				errs = append(errs, setNeighbour(eth, n.addr(to), at))
			}
			return errors.Join(errs...)
		}))
	}
	return errors.Join(errs...)
}

// plug sets the bridge's port of a server up or down. If it is down, no server and
// no client reaches that server.
func (n *network) plug(host int, up bool) error { return netlab.SetUp(n.port(host), up) }

// setNeighbour says in the namespace of the calling thread which Ethernet
// address an IPv4 address has.
func setNeighbour(name string, ip netip.Addr, at [6]byte) error {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("neighbour %s on %s: %w", ip, name, err)
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", ip, err)
	}
	defer conn.Close()
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.NDA_DST, ip.AsSlice())
	ae.Bytes(unix.NDA_LLADDR, at[:])
	attributes, err := ae.Encode()
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", ip, err)
	}
	header := make([]byte, unix.SizeofNdMsg) // struct ndmsg, linux/neighbour.h
	header[0] = unix.AF_INET
	binary.NativeEndian.PutUint32(header[4:], uint32(ifi.Index))
	binary.NativeEndian.PutUint16(header[8:], unix.NUD_PERMANENT)
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWNEIGH, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Replace},
		Data:   append(header, attributes...),
	})
	if err != nil {
		return fmt.Errorf("neighbour %s on %s: %w", ip, name, err)
	}
	return nil
}

// A cut is one-way, drops in silence, and heals.
func TestCut(t *testing.T) {
	needNetwork(t)
	n := newNetwork(t)
	var conns [servers]*net.UDPConn
	for i, host := range n.hosts {
		err := host.Do(func() (err error) {
			conns[i], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.addr(i), 7)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	number := uint64(0) // of the packet: one that was sent before may come late
	passes := func(from, to int, wait time.Duration) bool {
		number++
		if _, err := conns[from].WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, number), netip.AddrPortFrom(n.addr(to), 7)); err != nil {
			t.Fatal(err)
		}
		if err := conns[to].SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		for packet := make([]byte, 8); ; {
			if _, _, err := conns[to].ReadFromUDPAddrPort(packet); err != nil {
				return false
			}
			if binary.BigEndian.Uint64(packet) == number {
				return true
			}
		}
	}
	for _, cuts := range []links{0, link(0, 1), link(1, 0) | link(2, 0) | link(1, 2), 0} {
		if err := n.cut(cuts); err != nil {
			t.Fatal(err)
		}
		for from := range servers {
			for to := range servers {
				want := cuts&link(from, to) == 0
				got := from != to && passes(from, to, 50*time.Millisecond)
				// A bridge's new port may take a moment before it forwards.
				for end := time.Now().Add(patience); from != to && want && !got && time.Now().Before(end); {
					got = passes(from, to, 50*time.Millisecond)
				}
				if from != to && got != want {
					t.Errorf("cuts%s: a packet passes %d>%d: %t, want %t", cuts, from+1, to+1, !want, want)
				}
			}
		}
	}
}
