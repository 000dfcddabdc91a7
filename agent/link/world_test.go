package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"rutter/projections/desired"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// world is two compute nodes as network namespaces, joined by a veth pair, and
// the VM namespaces beside them.
type world struct {
	t   testing.TB
	dir string // namespaces by name
	etc string
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

const vethPeer = 1 // VETH_INFO_PEER, linux/veth.h

// underlays are the nodes' addresses, by node.
var underlays = map[string][]netip.Prefix{
	"cn1": {netip.MustParsePrefix("10.99.0.1/24"), netip.MustParsePrefix("fd99::1/64")},
	"cn2": {netip.MustParsePrefix("10.99.0.2/24"), netip.MustParsePrefix("fd99::2/64")},
	"cn3": {netip.MustParsePrefix("10.99.0.3/24"), netip.MustParsePrefix("fd99::3/64")},
}

func newWorld(t testing.TB) *world {
	t.Helper()
	needNamespaces(t)
	w := &world{t: t, dir: t.TempDir(), etc: t.TempDir()}
	w.namespace("cn1")
	w.namespace("cn2")
	w.join()
	return w
}

// namespace makes a network namespace, named as ip-netns(8) does it.
func (w *world) namespace(name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(ownNamespace(), path, "", unix.MS_BIND, "")
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		w.t.Fatalf("namespace %s: %v", name, err)
	}
	w.t.Cleanup(func() { w.drop(name) })
	w.raw(name, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(1, unix.IFF_UP, unix.IFF_UP) })
}

// drop removes a namespace.
func (w *world) drop(name string) {
	path := filepath.Join(w.dir, name)
	if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("drop namespace %s: %v", name, err)
	}
}

// raw sends one request in a namespace and wants it to succeed.
func (w *world) raw(namespace string, typ netlink.HeaderType, flags netlink.HeaderFlags, body func(e *wire.Encoder)) {
	w.t.Helper()
	sp, err := openNamespaceConn(namespace, filepath.Join(w.dir, namespace))
	if err != nil {
		w.t.Fatal(err)
	}
	defer sp.close()
	var e wire.Encoder
	body(&e)
	message := netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: e.B}
	if _, err := sp.conn.Execute(message); err != nil {
		w.t.Fatalf("request %d in %s: %v", typ, namespace, err)
	}
}

// join makes the underlay.
func (w *world) join() {
	w.t.Helper()
	other, err := os.Open(filepath.Join(w.dir, "cn2"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer other.Close()
	const index = underlayIndex
	w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.LinkHeader(index, unix.IFF_UP, unix.IFF_UP)
		e.AttrText(unix.IFLA_IFNAME, "net0")
		e.Nest(unix.IFLA_LINKINFO, func() {
			e.AttrText(unix.IFLA_INFO_KIND, "veth")
			e.Nest(unix.IFLA_INFO_DATA, func() {
				e.Nest(vethPeer, func() {
					e.LinkHeader(index, 0, 0)
					e.AttrText(unix.IFLA_IFNAME, "net0")
					e.Attr32(unix.IFLA_NET_NS_FD, uint32(other.Fd()))
				})
			})
		})
	})
	w.raw("cn2", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index, unix.IFF_UP, unix.IFF_UP) })
	w.number("cn1", "cn2")
}

// underlayIndex is the ifindex of each node's underlay link.
const underlayIndex = 100

// number gives nodes their underlay addresses.
func (w *world) number(nodes ...string) {
	w.t.Helper()
	for _, node := range nodes {
		for _, p := range underlays[node] {
			w.raw(node, unix.RTM_NEWADDR, flagsReplace, func(e *wire.Encoder) { e.Address(plan.Step{Prefix: p}, underlayIndex) })
		}
	}
}

// open opens a node's kernel.
func (w *world) open(node string) *Netlink {
	w.t.Helper()
	// On a busy machine the kernel may take longer than the agent waits.
	h, err := Open(Config{OwnNamespace: filepath.Join(w.dir, node), NetNSDir: w.dir, EtcNetNSDir: w.etc, localWait: patience})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := h.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return h
}

// within runs f on a thread inside a namespace.
func (w *world) within(namespace string, f func() error) error {
	file, err := os.Open(filepath.Join(w.dir, namespace))
	if err != nil {
		return err
	}
	defer file.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// ping sends one echo request, once, from a namespace, and waits for the reply.
func (w *world) ping(from string, to netip.Addr, size int) error {
	return w.pingFor(patience, from, to, size)
}

// pingFor waits for the reply so long.
func (w *world) pingFor(limit time.Duration, from string, to netip.Addr, size int) error {
	return w.within(from, func() error {
		domain, protocol, request, reply := unix.AF_INET, unix.IPPROTO_ICMP, byte(8), byte(0)
		if to.Is6() {
			domain, protocol, request, reply = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, 129
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		timeout := unix.NsecToTimeval(int64(limit))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return err
		}
		packet := make([]byte, 8+size)
		packet[0], packet[4], packet[5], packet[7] = request, 0x52, 0x75, 1 // type, id, sequence
		var address unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16()}
		if to.Is4() {
			address = &unix.SockaddrInet4{Addr: to.As4()}
			sum := checksum(packet) // of ICMPv6 the kernel makes it
			packet[2], packet[3] = byte(sum>>8), byte(sum)
		}
		if err := unix.Sendto(fd, packet, 0, address); err != nil {
			return err
		}
		buffer := make([]byte, 1<<16)
		for {
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			if err != nil {
				return fmt.Errorf("no reply from %s: %w", to, err)
			}
			got := buffer[:n]
			if to.Is4() && n > 20 {
				got = got[20:] // the IPv4 header
			}
			if len(got) >= 8 && got[0] == reply && got[4] == 0x52 && got[5] == 0x75 {
				return nil
			}
		}
	})
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b)-1; i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// pass makes one complete pass and wants the kernel to match after it.
func (w *world) pass(m *Manager, want desired.Links) Result {
	w.t.Helper()
	result, err := m.Pass(context.Background(), want, true)
	if err != nil {
		w.t.Fatal(err)
	}
	if !result.Matched {
		w.t.Fatalf("pass: not matched: failures %v, conflicts %v, steps %v", result.Failures, result.Conflicts, texts(result.Steps))
	}
	return result
}

// two makes the desired states of both nodes: VM zA on cn1, VM zB on cn2, both
// with an IPv4 and an IPv6 address in one fabric.
func (w *world) two(vlan uint16, v6 bool) (a, b desired.Links) {
	states := meshed(vlan, v6, "zA", "zB")
	return states[0], states[1]
}

// meshed makes the desired states of as many nodes as there are zones, each with
// the VM of one zone.
func meshed(vlan uint16, v6 bool, zones ...string) []desired.Links {
	side := 0
	outer := uint32(50)
	if v6 {
		side, outer = 1, 70
	}
	underlay := func(host int) netip.Addr { return underlays[fmt.Sprintf("cn%d", host)][side].Addr() }
	mtu := 1500 - outer
	states := make([]desired.Links, len(zones))
	for i, zone := range zones {
		host := i + 1
		want := desired.Links{VXLANs: []desired.VXLAN{{VNet: 5, Local: underlay(host), Port: 4789, MTU: mtu}}}
		fabricMTU := mtu
		if vlan != 0 {
			fabricMTU -= 4
			want.VLANs = []desired.VLAN{{VNet: 5, ID: vlan, MTU: fabricMTU}}
		}
		want.Fabrics = []desired.Fabric{{
			MAC: mac(host), VNet: 5, VLAN: vlan, MTU: fabricMTU, Namespace: zone,
			Addresses: []netip.Prefix{prefix(fmt.Sprintf("192.168.5.%d/24", host)), prefix(fmt.Sprintf("fd05::%d/64", host))},
			Gateway:   addr("192.168.5.254"),
			Routes:    []desired.Route{{Dst: prefix("10.1.0.0/16"), Gateway: addr("192.168.5.253")}, {Dst: prefix("fd77::/48"), Gateway: addr("fd05::fe")}},
			Resolvers: []netip.Addr{addr("192.168.5.253")},
		}}
		for _, format := range []string{"192.168.5.%d", "fd05::%d"} {
			for peer := 1; peer <= len(zones); peer++ {
				if peer != host {
					want.Neighs = append(want.Neighs, desired.Neigh{Link: mac(host), IP: addr(fmt.Sprintf(format, peer)), MAC: mac(peer)})
				}
			}
		}
		for peer := 1; peer <= len(zones); peer++ {
			if peer != host {
				want.FDB = append(want.FDB, desired.FDB{VNet: 5, MAC: mac(peer), Dst: underlay(peer), Port: 4789})
			}
		}
		states[i] = want
	}
	return states
}
