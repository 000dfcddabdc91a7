package view

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/projections/desired"
)

// The tests run again inside namespaces of their own.
func TestMain(m *testing.M) { os.Exit(netlab.Run(m)) }

var (
	nic   = log.MAC{2, 0, 0, 0, 0, 1}
	other = log.MAC{2, 0, 0, 0, 0, 2}
)

// vm is a VM that is attached with port security: it has the address 10.0.0.66, and may
// have 10.0.0.5.
type vm struct {
	zone   netlab.Namespace
	table  *filter.Kernel
	reader *Reader
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// newVM makes it; before is called in its namespace before it is attached.
func newVM(t *testing.T, before func() error) *vm {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	dir := filepath.Join(t.TempDir(), "netns")
	must(t, os.Mkdir(dir, 0o700))
	zone, err := netlab.Create(dir, "z1")
	must(t, err)
	t.Cleanup(func() { must(t, zone.Delete()) })
	must(t, zone.Do(before))
	must(t, netlab.AddBridge("br5v0"), netlab.AddVeth("port0", "fabric0", zone, 1400), netlab.SetMaster("port0", "br5v0"), netlab.SetUp("port0", true))
	t.Cleanup(func() { must(t, netlab.DeleteLink("port0"), netlab.DeleteLink("br5v0")) })
	must(t, zone.Do(func() error {
		return errors.Join(netlab.SetMAC("fabric0", nic), netlab.AddAddress("fabric0", netip.MustParsePrefix("10.0.0.66/24")), netlab.SetUp("fabric0", true))
	}))
	v := &vm{zone: zone}
	if v.table, err = filter.Open(t.Context()); errors.Is(err, filter.ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	guard := ports.NewGuard(v.table)
	guard.SetMode(ports.Mode{Mode: desired.SecurityEnforced})
	port, err := net.InterfaceByName("port0")
	must(t, err)
	t.Cleanup(func() {
		must(t, guard.Apply(context.Background(), []filter.Change{{DelPort: uint32(port.Index)}})...)
		must(t, guard.Close())
	})
	must(t, guard.Apply(t.Context(), []filter.Change{{SetPort: &filter.Port{
		Index: uint32(port.Index), Name: "port0", MAC: nic, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")},
	}}})...)
	v.reader, err = New(Config{NetNSDir: dir, Security: guard})
	must(t, err)
	t.Cleanup(func() { must(t, v.reader.Close()) })
	return v
}

func (v *vm) view(t *testing.T) desired.KernelView {
	t.Helper()
	got, err := v.reader.Read(t.Context(), Request{
		Query: desired.KernelQuery{NIC: nic, MAC: other, IP: netip.MustParseAddr("10.0.0.7"), VTEP: netip.MustParseAddr("192.0.2.2")},
		VNet:  5, Namespace: "z1",
	})
	must(t, err)
	if len(got.Unknown) > 0 {
		t.Fatalf("not known: %v", got.Unknown)
	}
	return got
}

// TestDropsThatRise: a VM sends from an address that is not its. The rules drop that, and
// of two views the second has a counter that rose, of that reason.
func TestDropsThatRise(t *testing.T) {
	v := newVM(t, func() error { return nil })
	first := v.view(t)
	var names []string
	for _, l := range first.Links {
		names = append(names, l.Role+" "+l.Name+" "+l.Master)
	}
	if want := []string{"fabric fabric0 ", "host end port0 br5v0", "bridge br5v0 "}; !slices.Equal(names, want) {
		t.Errorf("links: %q, want %q", names, want)
	}
	if r := first.Security.Rules; r == nil || r.MAC != nic || len(r.Addresses) != 1 || r.Addresses[0].String() != "10.0.0.5" || r.Relaxed != nil {
		t.Errorf("rules: %+v", r)
	}
	if p := first.Security.Peer; p == nil || *p {
		t.Errorf("192.0.2.2 is a peer: %v", p)
	}
	if len(first.Addresses) != 1 || first.Addresses[0].String() != "10.0.0.66/24" || first.Neighbour != nil || first.Forward != nil {
		t.Errorf("%+v", first)
	}
	if _, err := v.zone.Ping(netip.MustParseAddr("10.0.0.7"), 8, 100*time.Millisecond); err == nil {
		t.Fatal("a VM with another address is answered")
	}
	last := v.view(t)
	k := desired.TraceKernel{}
	k.Between(&first, &last)
	if !slices.ContainsFunc(k.Moved, func(c desired.TraceCounter) bool { return c.Reason == string(filter.ReasonARP) && c.Rose > 0 }) {
		t.Errorf("what rose: %v, of drops %v", k.Moved, last.Drops)
	}
	if n := last.Neighbour; n == nil || !n.MAC.IsZero() || n.State != "incomplete" && n.State != "failed" {
		t.Errorf("the neighbour that nothing answers for: %+v", n)
	}
}

// TestTapIsShown: a NIC with a tap has that in place of a link in a namespace, and it shows
// whether a program has it open.
func TestTapIsShown(t *testing.T) {
	v := newVM(t, func() error { return nil })
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	ifr, err := unix.NewIfreq("rt1")
	must(t, err)
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	must(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr), unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1), unix.Close(fd))
	t.Cleanup(func() { must(t, netlab.DeleteLink("rt1")) })
	must(t, netlab.SetMaster("rt1", "br5v0"), netlab.SetUp("rt1", true))
	tap, err := net.InterfaceByName("rt1")
	must(t, err)
	state, err := v.table.Read(t.Context())
	must(t, err)
	must(t, v.table.Apply(t.Context(), []filter.Change{{DelPort: state.Ports[0].Index}, {SetPort: &filter.Port{Index: uint32(tap.Index), Name: "rt1", MAC: nic}}})...)
	t.Cleanup(func() { must(t, v.table.Apply(context.Background(), []filter.Change{{DelPort: uint32(tap.Index)}})...) })
	got := v.view(t)
	if len(got.Links) != 2 || got.Links[0].Role != desired.RoleTap || got.Links[0].Name != "rt1" || got.Links[0].Master != "br5v0" || !got.Links[0].Up || !got.Links[0].Closed || got.Namespace != "" || got.Security.Rules == nil {
		t.Errorf("%+v", got)
	}
}

// TestGuestsOwnPair: root of a VM makes a pair with the MAC of its NIC. It is not taken
// for the link that leads out of the VM.
func TestGuestsOwnPair(t *testing.T) {
	v := newVM(t, func() error {
		self := netlab.Namespace{Dir: "/proc/thread-self/ns", Name: "net"}
		return errors.Join(netlab.AddVeth("a", "b", self, 1400), netlab.SetMAC("a", nic), netlab.SetMAC("b", nic))
	})
	if got := v.view(t); len(got.Links) != 3 || got.Links[0].Name != "fabric0" || got.Security.Rules == nil {
		t.Errorf("%+v", got)
	}
}

// TestViewsAreBounded: requests beyond the bound are refused at once, and after a view
// the next one waits four times as long as it took.
func TestViewsAreBounded(t *testing.T) {
	r, err := New(Config{NetNSDir: t.TempDir()})
	must(t, err)
	defer r.Close()
	q := Request{Query: desired.KernelQuery{NIC: nic, MAC: other}, VNet: 5}
	turn := <-r.turn // as if one was made
	results := make(chan error, maxWaiting+1)
	for range maxWaiting + 1 {
		go func() {
			_, err := r.Read(t.Context(), q)
			results <- err
		}()
	}
	for len(r.queue) < cap(r.queue) {
		time.Sleep(time.Millisecond)
	}
	if _, err := r.Read(t.Context(), q); !errors.Is(err, ErrBusy) {
		t.Errorf("over the bound: %v", err)
	}
	r.turn <- turn
	for range maxWaiting + 1 {
		must(t, <-results)
	}
	began := time.Now()
	if _, err = r.Read(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if earliest := <-r.turn; !earliest.After(began) {
		t.Errorf("the next view may begin at %s, and this one began at %s", earliest, began)
	}
}
