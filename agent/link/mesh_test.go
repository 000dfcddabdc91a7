package link

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
)

// newMesh is three nodes on one switch.
func newMesh(t *testing.T) *world {
	t.Helper()
	needNamespaces(t)
	w := &world{t: t, dir: t.TempDir(), etc: t.TempDir()}
	w.namespace("switch")
	const bridge = 50
	w.raw("switch", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.LinkHeader(bridge, unix.IFF_UP, unix.IFF_UP)
		e.AttrText(unix.IFLA_IFNAME, "bridge0")
		e.Nest(unix.IFLA_LINKINFO, func() { e.AttrText(unix.IFLA_INFO_KIND, "bridge") })
	})
	for i, node := range []string{"cn1", "cn2", "cn3"} {
		w.namespace(node)
		there, err := os.Open(filepath.Join(w.dir, node))
		if err != nil {
			t.Fatal(err)
		}
		w.raw("switch", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
			e.LinkHeader(int32(bridge+1+i), unix.IFF_UP, unix.IFF_UP)
			e.AttrText(unix.IFLA_IFNAME, node)
			e.Attr32(unix.IFLA_MASTER, bridge)
			e.Nest(unix.IFLA_LINKINFO, func() {
				e.AttrText(unix.IFLA_INFO_KIND, "veth")
				e.Nest(unix.IFLA_INFO_DATA, func() {
					e.Nest(vethPeer, func() {
						e.LinkHeader(underlayIndex, 0, 0)
						e.AttrText(unix.IFLA_IFNAME, "net0")
						e.Attr32(unix.IFLA_NET_NS_FD, uint32(there.Fd()))
					})
				})
			})
		})
		there.Close()
		w.raw(node, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(underlayIndex, unix.IFF_UP, unix.IFF_UP) })
		w.number(node)
	}
	return w
}

// TestKernelThreeNodes: the VMs of three nodes talk to each other by ping and
// TCP, over IPv4 and IPv6, both inside and outside.
func TestKernelThreeNodes(t *testing.T) {
	for _, vlan := range []uint16{0, 7} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("vlan %d, IPv6 underlay %v", vlan, v6), func(t *testing.T) {
				w := newMesh(t)
				if vlan != 0 && !w.has8021Q() {
					t.Skip("this kernel has no 802.1Q: run the compiled test in a kernel that has it")
				}
				zones := []string{"zA", "zB", "zC"}
				states := meshed(vlan, v6, zones...)
				for i, zone := range zones {
					w.namespace(zone)
					w.pass(NewManager(ManagerConfig{Kernel: w.open(fmt.Sprintf("cn%d", i+1))}), states[i])
				}
				full := int(states[0].Fabrics[0].MTU) - 48 // IPv6 and ICMP headers
				for i, from := range zones {
					for j, to := range zones {
						if i == j {
							continue
						}
						for _, prefix := range states[j].Fabrics[0].Addresses {
							if err := w.ping(from, prefix.Addr(), full); err != nil {
								t.Errorf("ping from %s: %v", from, err)
							}
							w.tcp(t, from, to, prefix.Addr())
						}
					}
				}
			})
		}
	}
}

// tcpBytes are sent through each connection: more than any window.
const tcpBytes = 4 << 20

// tcp sends data from one namespace to another, and wants what comes to be that.
func (w *world) tcp(t *testing.T, from, to string, address netip.Addr) {
	t.Helper()
	var listener net.Listener
	if err := w.within(to, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(address, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	data := make([]byte, tcpBytes)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- w.within(from, func() error {
			conn, err := (&net.Dialer{Timeout: patience}).DialContext(context.Background(), "tcp", listener.Addr().String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(data)
			return err
		})
	}()
	got := sha256.New()
	n, err := func() (int64, error) {
		if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
			return 0, err
		}
		conn, err := listener.Accept()
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return 0, err
		}
		return io.Copy(got, conn)
	}()
	if sentErr := <-sent; err != nil || sentErr != nil || n != tcpBytes || [32]byte(got.Sum(nil)) != sha256.Sum256(data) {
		t.Errorf("TCP from %s to %s at %s: %d bytes of %d came, %v, sent: %v", from, to, address, n, tcpBytes, err, sentErr)
	}
}
