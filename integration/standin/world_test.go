package standin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/miss"
	"rutter/agent/varpd"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/varp"
)

const (
	vnet     = 5
	patience = 30 * time.Second
)

var (
	local  = netip.MustParseAddr("10.99.0.1")
	remote = varp.Underlay{Addr: netip.MustParseAddr("10.99.0.2"), Port: 4789}
)

// remoteMAC is the MAC of the nth NIC on the other node.
func remoteMAC(n int) log.MAC { return log.MAC{2, 0, 2, byte(n >> 16), byte(n >> 8), byte(n)} }

// remoteIP is its IPv4 address, and remoteIP6 its IPv6 one. The first is the
// VM's there, the others are addresses that no VM answers for.
func remoteIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)}) }

func remoteIP6(n int) netip.Addr {
	a := netip.MustParseAddr("fd05::2:0").As16()
	a[14], a[15] = byte(n>>8), byte(n)
	return netip.AddrFrom16(a)
}

// world is two compute nodes. The links of both are made as a net-agent would
// make them; of the second the entries too, of the first only the daemon makes
// any.
type world struct {
	t        testing.TB
	dir, etc string
	cn1, cn2 netlab.Namespace
	zone     netlab.Namespace // a VM on cn1
	peer     netlab.Namespace // the VM with remoteIP(1), on cn2
	vlan     uint16
	want     desired.Links // links of cn1
	maker    *link.Manager // of cn1's links
	kernel   *link.Netlink // of the daemon
}

func newWorld(t testing.TB, vlan uint16) *world {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	w := &world{t: t, dir: t.TempDir(), etc: t.TempDir(), vlan: vlan}
	w.cn1, w.cn2 = w.namespace("cn1"), w.namespace("cn2")
	w.zone, w.peer = w.namespace("zA"), w.namespace("zB")
	w.must(w.cn1.Do(func() error {
		return errors.Join(netlab.AddVeth("net0", "net0", w.cn2, 1500), netlab.AddAddress("net0", netip.PrefixFrom(local, 24)), netlab.SetUp("net0", true))
	}))
	w.must(w.cn2.Do(func() error {
		return errors.Join(netlab.AddAddress("net0", netip.PrefixFrom(remote.Addr, 24)), netlab.SetUp("net0", true))
	}))
	w.want = w.links(local, log.MAC{2, 0, 1, 0, 0, 1}, "zA", "172.16.255.1/16", "fd05::1/64")
	w.maker = link.NewManager(link.ManagerConfig{Kernel: w.open(w.cn1)})
	w.make()
	other := w.links(remote.Addr, remoteMAC(1), "zB", netip.PrefixFrom(remoteIP(1), 16).String(), netip.PrefixFrom(remoteIP6(1), 64).String())
	other.FDB = []desired.FDB{{VNet: vnet, MAC: log.MAC{2, 0, 1, 0, 0, 1}, Dst: local, Port: 4789}}
	for _, ip := range []string{"172.16.255.1", "fd05::1"} {
		other.Neighs = append(other.Neighs, desired.Neigh{Link: remoteMAC(1), IP: netip.MustParseAddr(ip), MAC: log.MAC{2, 0, 1, 0, 0, 1}})
	}
	w.pass(link.NewManager(link.ManagerConfig{Kernel: w.open(w.cn2)}), other)
	w.kernel = w.open(w.cn1)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) namespace(name string) netlab.Namespace {
	w.t.Helper()
	n, err := netlab.Create(w.dir, name)
	w.must(err)
	w.t.Cleanup(func() { _ = n.Delete() })
	return n
}

func (w *world) open(node netlab.Namespace) *link.Netlink {
	w.t.Helper()
	h, err := link.Open(link.Config{OwnNamespace: node.Path(), NetNSDir: w.dir, EtcNetNSDir: w.etc})
	w.must(err)
	w.t.Cleanup(func() { _ = h.Close() })
	return h
}

// links are a node's links with one VM.
func (w *world) links(at netip.Addr, mac log.MAC, zone string, addresses ...string) desired.Links {
	const mtu = 1450
	want := desired.Links{VXLANs: []desired.VXLAN{{VNet: vnet, Local: at, Port: 4789, MTU: mtu}}}
	f := desired.Fabric{MAC: mac, VNet: vnet, VLAN: w.vlan, MTU: mtu, Namespace: zone}
	if w.vlan != 0 {
		f.MTU -= 4
		want.VLANs = []desired.VLAN{{VNet: vnet, ID: w.vlan, MTU: f.MTU}}
	}
	for _, a := range addresses {
		f.Addresses = append(f.Addresses, netip.MustParsePrefix(a))
	}
	want.Fabrics = []desired.Fabric{f}
	return want
}

// make brings the links of cn1 to w.want.
func (w *world) make() { w.t.Helper(); w.pass(w.maker, w.want) }

func (w *world) pass(m *link.Manager, want desired.Links) {
	w.t.Helper()
	result, err := m.Pass(context.Background(), want, true)
	for _, f := range result.Failures {
		if errors.Is(f.Err, plan.ErrNo8021Q) {
			w.t.Skip("this kernel has no 802.1Q: run the compiled test in a kernel that has it")
		}
	}
	if err != nil || !result.Matched {
		w.t.Fatalf("links: %v, %v", result.Failures, err)
	}
}

// config is that of a daemon on cn1 that asks these servers.
func (w *world) config(servers ...string) varpd.Config {
	w.t.Helper()
	logger := slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client, err := varp.NewClient(varp.ClientConfig{Servers: servers, Logger: logger, AttemptTimeout: 200 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, Timeout: time.Second})
	w.must(err)
	w.t.Cleanup(func() { _ = client.Close() })
	ears, err := miss.Listen(miss.Config{Namespace: w.cn1.Path()})
	w.must(err)
	w.t.Cleanup(func() { _ = ears.Close() })
	if !ears.All() {
		w.t.Fatal("misses are heard in one namespace only")
	}
	return varpd.Config{
		Resolver: client, Kernel: w.kernel, Watch: w.kernel.WatchLinks, Listen: ears.Run, Logger: logger,
		Greeting: 2 * time.Second, PollEvery: 50 * time.Millisecond, Negative: 300 * time.Millisecond, CacheTime: 200 * time.Millisecond, Servers: client.Servers,
		Pending: func(namespace string) ([]miss.Miss, error) {
			if namespace == "" {
				return miss.Pending(w.cn1.Path())
			}
			return miss.Pending(filepath.Join(w.dir, namespace))
		},
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b[:max(len(b)-1, 0)])
	return len(b), nil
}

// run runs a daemon until stop is called, which fails the test if it ended with
// an error, or before.
func (w *world) run(cfg varpd.Config) (d *varpd.Daemon, stop func()) {
	w.t.Helper()
	d, err := varpd.New(cfg)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		select {
		case err := <-ended:
			w.t.Errorf("the daemon ended: %v", err)
			ended <- nil
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the daemon's end: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return d, stop
}

// send sends a datagram to each address from a namespace; what has no room in
// the kernel's table of unresolved neighbours is sent again.
func send(from netlab.Namespace, to ...netip.Addr) error {
	return from.Do(func() error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			for _, ip := range to {
				if ip.Is4() != (family == unix.AF_INET) {
					continue
				}
				var address unix.Sockaddr = &unix.SockaddrInet6{Port: 9, Addr: ip.As16()}
				if ip.Is4() {
					address = &unix.SockaddrInet4{Port: 9, Addr: ip.As4()}
				}
				err := unix.Sendto(fd, []byte{1}, 0, address)
				for deadline := time.Now().Add(patience); errors.Is(err, unix.ENOBUFS) && time.Now().Before(deadline); {
					time.Sleep(200 * time.Microsecond)
					err = unix.Sendto(fd, []byte{1}, 0, address)
				}
				if err != nil && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.ECONNREFUSED) {
					return fmt.Errorf("send to %s: %w", ip, err)
				}
			}
		}
		return nil
	})
}

// state is what the kernel of cn1 holds.
type state struct {
	neighs   map[netip.Addr]log.MAC
	forwards map[log.MAC]netip.Addr
}

// state reads the namespaces of VMs that are named, and cn1's own.
func (w *world) state(namespaces ...string) state {
	w.t.Helper()
	h, err := link.Open(link.Config{OwnNamespace: w.cn1.Path(), NetNSDir: w.dir, EtcNetNSDir: w.etc})
	w.must(err)
	defer h.Close()
	have, err := h.Dump(context.Background(), namespaces)
	w.must(err)
	s := state{map[netip.Addr]log.MAC{}, map[log.MAC]netip.Addr{}}
	for _, l := range have.Links {
		for _, n := range l.Neighs {
			s.neighs[n.IP] = n.MAC
		}
		for _, f := range l.FDB {
			s.forwards[f.MAC] = f.Dst
		}
	}
	return s
}

// eventually wants a condition to hold soon; between it sends to some addresses
// from the VM, as a guest that goes on trying does.
func (w *world) eventually(what string, is func(state) bool, to ...netip.Addr) {
	w.t.Helper()
	var last state
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		w.must(send(w.zone, to...))
		if last = w.state("zA"); is(last) {
			return
		}
	}
	w.t.Fatalf("%s: not within %s; the kernel has %d neighbours and %d forwarding entries: %v", what, patience, len(last.neighs), len(last.forwards), last)
}

// resolved wants an address to be resolved to the nth remote NIC.
func (w *world) resolved(what string, ip netip.Addr, n int, at netip.Addr) {
	w.t.Helper()
	w.eventually(what, func(s state) bool { return s.neighs[ip] == remoteMAC(n) && s.forwards[remoteMAC(n)] == at }, ip)
}

// gone wants an address and the nth remote NIC to be without entries.
func (w *world) gone(what string, ip netip.Addr, n int) {
	w.t.Helper()
	w.eventually(what, func(s state) bool {
		_, neigh := s.neighs[ip]
		_, forward := s.forwards[remoteMAC(n)]
		return !neigh && !forward
	})
}

// directory is a Lookup and an EventLog that a test changes.
type directory struct {
	mu       sync.Mutex
	ips      map[netip.Addr]log.MAC
	macs     map[log.MAC]varp.Underlay
	records  []varp.Record
	removed  int
	lastID   byte
	nothing  bool // everything is NOTFOUND
	requests int
}

// newDirectory has n remote NICs with an IPv4 and an IPv6 address each.
func newDirectory(n int) *directory {
	d := &directory{ips: map[netip.Addr]log.MAC{}, macs: map[log.MAC]varp.Underlay{}}
	for i := 1; i <= n; i++ {
		d.ips[remoteIP(i)], d.ips[remoteIP6(i)] = remoteMAC(i), remoteMAC(i)
		d.macs[remoteMAC(i)] = remote
	}
	return d
}

func (d *directory) VL2(on uint32, mac log.MAC) (varp.Underlay, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	u, ok := d.macs[mac]
	return u, ok && on == vnet && !d.nothing
}

func (d *directory) VL3(on uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	mac, ok := d.ips[ip]
	u, known := d.macs[mac]
	return mac, u, ok && known && on == vnet && !d.nothing
}

func (d *directory) Events(dst []varp.Record, cn netip.Addr, maxBytes int) ([]varp.Record, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.records {
		if maxBytes -= r.Size(); maxBytes < 0 || cn != local {
			break
		}
		dst = append(dst, r)
	}
	return dst, true
}

func (d *directory) Remove(_ netip.Addr, ids []log.UUID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.records)
	d.records = slices.DeleteFunc(d.records, func(r varp.Record) bool { return slices.Contains(ids, r.ID) })
	d.removed += before - len(d.records)
	return true
}

// change changes the directory and shoots mappings down.
func (d *directory) change(fn func(), records ...varp.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
	for _, r := range records {
		d.lastID++
		r.ID[15], r.VNet = d.lastID, vnet
		d.records = append(d.records, r)
	}
}

func (d *directory) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// serve serves a directory at an address, 127.0.0.1:0 for any, and returns it.
func serve(t testing.TB, d *directory, address string) (at string, stop func()) {
	t.Helper()
	server, err := varp.NewServer(varp.Config{Lookup: d, Events: d})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String(), runServer(t, server, listener)
}

// runServer serves until stop is called, at the latest at the end of the test.
func runServer(t testing.TB, server *varp.Server, listener net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// ip runs ip(8) or bridge(8) in a namespace.
func (w *world) ip(tool, in string, args ...string) {
	w.t.Helper()
	w.must(w.tryIP(tool, in, args...))
}

func (w *world) tryIP(tool, in string, args ...string) error {
	return netlab.Namespace{Dir: w.dir, Name: in}.Do(func() error {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v in %s: %w: %s", tool, args, in, err, out)
		}
		return nil
	})
}
