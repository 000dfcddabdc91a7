package filter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// The tests run again inside namespaces of their own.
func TestMain(m *testing.M) { os.Exit(netlab.Run(m)) }

// patience is a limit after which a test fails.
const patience = 30 * time.Second

// node is a namespace with nf_tables of its own.
type node struct {
	t  testing.TB
	ns netlab.Namespace
	k  *Kernel
}

func newNode(t testing.TB) *node {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	n := &node{t: t, ns: namespace(t, "node")}
	n.open()
	return n
}

func namespace(t testing.TB, name string) netlab.Namespace {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "netns")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ns, err := netlab.Create(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// remove deletes the tables, with all rules and counters. Then Read has an empty State, and
// the next Apply makes the tables again.
func (n *node) remove() error {
	k := n.k
	for range maxConflicts {
		if err := k.refresh(context.Background()); err != nil {
			return err
		}
		var messages []message
		for _, family := range families {
			if k.tables[family] {
				messages = append(messages, delTable(family))
			}
		}
		if len(messages) == 0 {
			return nil
		}
		_, err := k.c.transact(k.gen, messages)
		k.known = false
		if err == nil || !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
	return errInterrupted
}

func (n *node) open() {
	n.t.Helper()
	n.do(func() error {
		k, err := Open(context.Background())
		n.k = k
		return err
	})
	k := n.k
	n.t.Cleanup(func() { _ = k.Close() })
}

func (n *node) do(fn func() error) {
	n.t.Helper()
	if err := n.ns.Do(fn); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) apply(changes ...Change) {
	n.t.Helper()
	for i, err := range n.k.Apply(context.Background(), changes) {
		if err != nil {
			n.t.Fatalf("change %d of %d: %v", i, len(changes), err)
		}
	}
}

func (n *node) read() State {
	n.t.Helper()
	s, err := n.k.Read(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) want(want State) {
	n.t.Helper()
	if got := n.read(); !reflect.DeepEqual(got, want) {
		n.t.Fatalf("the table holds\n%+v, want\n%+v", got, want)
	}
}

func (n *node) counters() Counters {
	n.t.Helper()
	c, err := n.k.Counters(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// other makes a transaction as another program does.
func (n *node) other(messages ...message) {
	n.t.Helper()
	n.do(func() error {
		c, err := openConn()
		if err != nil {
			return err
		}
		defer c.close()
		gen, err := c.generation()
		if err != nil {
			return err
		}
		_, err = c.transact(gen, messages)
		return err
	})
}

// bridge makes a bridge in the node, and returns its index.
func (n *node) bridge(name string) (index uint32) {
	n.t.Helper()
	n.do(func() error {
		if err := netlab.AddBridge(name); err != nil {
			return err
		}
		link, err := net.InterfaceByName(name)
		index = uint32(link.Index)
		return err
	})
	return index
}

// vm is a namespace whose link is a port of a bridge of the node.
type vm struct {
	n       *node
	ns      netlab.Namespace
	index   uint32 // of the host end
	host    string
	mac     log.MAC
	sending int // a packet socket on the VM's end
}

func (n *node) vm(name, bridge string, mac log.MAC) *vm {
	n.t.Helper()
	v := &vm{n: n, ns: namespace(n.t, name), host: "port-" + name, mac: mac}
	n.do(quiet)
	if err := v.ns.Do(quiet); err != nil {
		n.t.Fatal(err)
	}
	n.do(func() error {
		if err := errors.Join(netlab.AddVeth(v.host, "fabric0", v.ns, 1500), netlab.SetMaster(v.host, bridge), netlab.SetUp(v.host, true)); err != nil {
			return err
		}
		link, err := net.InterfaceByName(v.host)
		v.index = uint32(link.Index)
		return err
	})
	err := v.ns.Do(func() error {
		if err := errors.Join(netlab.SetMAC("fabric0", mac), netlab.SetUp("fabric0", true)); err != nil {
			return err
		}
		fd, err := packetSocket("fabric0")
		v.sending = fd
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = unix.Close(v.sending) })
	return v
}

// quiet makes the namespace of the thread send nothing by itself.
func quiet() error { return writeSysctl("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") }

func writeSysctl(path, value string) error {
	err := os.WriteFile(path, []byte(value), 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// packetSocket has every frame of a link, in the namespace of the thread. It does not wait.
func packetSocket(link string) (int, error) {
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		return 0, err
	}
	i, err := net.InterfaceByName(link)
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (v *vm) send(frame []byte) {
	v.n.t.Helper()
	if _, err := unix.Write(v.sending, frame); err != nil {
		v.n.t.Fatalf("sending %x: %v", frame, err)
	}
}

// received reports whether a frame with the mark has arrived, and forgets what else has.
func received(fd int, mark []byte) bool {
	b := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return false
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype != unix.PACKET_OUTGOING && bytes.Contains(b[:n], mark) {
			return true
		}
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

var (
	macA  = log.MAC{0x90, 0xb8, 0xd0, 0, 0, 0xa}
	macB  = log.MAC{0x90, 0xb8, 0xd0, 0, 0, 0xb}
	ip4A  = netip.MustParseAddr("10.0.0.10")
	ip4A2 = netip.MustParseAddr("10.0.0.100")
	ip4B  = netip.MustParseAddr("10.0.0.11")
	ip6A  = netip.MustParseAddr("fd00::a")
	ip6B  = netip.MustParseAddr("fd00::b")
)
