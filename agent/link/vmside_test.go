package link

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// TestKernelVMSide: a network's settings for its VMs reach a running VM, and not one on
// hold. Another VLAN or another underlay leaves the VM its MAC, addresses and routes.
// The node's own links stay as they were.
func TestKernelVMSide(t *testing.T) {
	for _, vlan := range []uint16{0, 7} {
		t.Run(fmt.Sprintf("vlan %d", vlan), func(t *testing.T) {
			w := newWorld(t)
			if vlan != 0 && !w.has8021Q() {
				t.Skip("this kernel has no 802.1Q: run the compiled test in a kernel that has it")
			}
			testVMSide(t, w, vlan)
		})
	}
}

func testVMSide(t *testing.T, w *world, vlan uint16) {
	w.namespace("zA")
	w.namespace("zB")
	a, b := w.two(vlan, false)
	m1, m2 := NewManager(ManagerConfig{Kernel: w.open("cn1")}), NewManager(ManagerConfig{Kernel: w.open("cn2")})
	own := w.ownLinks()
	w.pass(m1, a)
	w.pass(m2, b)
	first := w.vm("zA")

	f := &a.Fabrics[0]
	f.Gateway, f.MTU = addr("192.168.5.250"), 1320
	f.Routes = []desired.Route{{Dst: prefix("10.2.0.0/16"), Gateway: addr("192.168.5.252")}}
	f.Resolvers = []netip.Addr{addr("192.168.5.9"), addr("192.168.5.10")}
	f.Hold = true
	w.pass(m1, a)
	if held := w.vm("zA"); !held.equal(&first) {
		t.Errorf("on hold: got %+v, want %+v", held, first)
	}
	f.Hold = false
	w.pass(m1, a)
	after := w.vm("zA")
	wantRoutes := []desired.Route{{Dst: prefix("0.0.0.0/0"), Gateway: f.Gateway}, f.Routes[0]}
	if l := after.link; l.MTU != 1320 || !slices.Equal(l.Routes, wantRoutes) || after.resolvers != plan.ResolversHead+"nameserver 192.168.5.9\nnameserver 192.168.5.10\n" {
		t.Errorf("after the log's change: got MTU %d, routes %v, resolv.conf %q", l.MTU, l.Routes, after.resolvers)
	}

	if vlan != 0 {
		for _, want := range []*desired.Links{&a, &b} {
			want.VLANs[0].ID, want.Fabrics[0].VLAN = vlan+2, vlan+2
		}
	} else { // a NIC tag on another underlay address
		other := netip.MustParsePrefix("10.99.0.11/24")
		w.raw("cn1", unix.RTM_NEWADDR, flagsReplace, func(e *wire.Encoder) { e.Address(plan.Step{Prefix: other}, underlayIndex) })
		a.VXLANs[0].Local, b.FDB[0].Dst = other.Addr(), other.Addr()
		own = w.ownLinks()
	}
	before := w.vm("zA")
	if result := w.pass(m1, a); !slices.ContainsFunc(result.Steps, func(s plan.Step) bool { return s.Op == plan.OpDelLink }) {
		t.Error("nothing was rebuilt")
	}
	w.pass(m2, b)
	if rebuilt := w.vm("zA"); !rebuilt.equal(&before) {
		t.Errorf("after the rebuild: got %+v, want %+v", rebuilt, before)
	}
	for _, to := range []string{"192.168.5.2", "fd05::2"} {
		if err := w.ping("zA", addr(to), 8); err != nil {
			t.Errorf("after the rebuild: %v", err)
		}
	}
	if now := w.ownLinks(); !slices.Equal(now, own) {
		t.Errorf("the node's own links: got %v, want %v", now, own)
	}
}

// vmSide is what a VM sees.
type vmSide struct {
	link      plan.Link
	resolvers string
}

func (v *vmSide) equal(o *vmSide) bool {
	return v.link.MAC == o.link.MAC && v.link.Name == o.link.Name && v.link.MTU == o.link.MTU && v.link.Up == o.link.Up &&
		slices.Equal(v.link.Addresses, o.link.Addresses) && slices.Equal(v.link.Routes, o.link.Routes) && v.resolvers == o.resolvers
}

// vm reads what the VM of cn1 sees.
func (w *world) vm(zone string) (v vmSide) {
	w.t.Helper()
	have, err := w.open("cn1").Dump(context.Background(), []string{zone})
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(have.Links, func(l plan.Link) bool { return l.Namespace == zone })
	if i < 0 {
		w.t.Fatalf("%s has no link: %v", zone, have.Links)
	}
	text, err := os.ReadFile(filepath.Join(w.etc, zone, "resolv.conf"))
	if err != nil {
		w.t.Fatal(err)
	}
	return vmSide{link: have.Links[i], resolvers: string(text)}
}

// ownLinks says how the links of cn1 are that are not the agent's.
func (w *world) ownLinks() (list []string) {
	w.t.Helper()
	if err := w.within("cn1", func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if plan.KindOfName(l.Name) != "" {
				continue
			}
			addresses, failed := l.Addrs()
			list = append(list, fmt.Sprintf("%s %d %s %s %v %v", l.Name, l.MTU, l.HardwareAddr, l.Flags, addresses, failed))
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return list
}
