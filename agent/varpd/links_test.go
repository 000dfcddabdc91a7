package varpd

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"rutter/agent/link/plan"
	"rutter/agent/miss"
	"rutter/log"
	"rutter/varp"
)

// fakeKernel is a node with vnet 5, and the VMs z1 and z2 with a fabric link each.
type fakeKernel struct{ plan.Fake }

func (*fakeKernel) NamespaceNumber(name string) (int32, error) {
	return map[string]int32{"z1": 1, "z2": 2}[name], nil
}

func (*fakeKernel) Namespaces() []string { return []string{"z1", "z2"} }

func (*fakeKernel) Source(int32, netip.Addr) (netip.Addr, error) {
	return netip.AddrFrom4([4]byte{10, 0, 0, 1}), nil
}

// forwards returns the MACs that the VXLAN device has entries for.
func (k *fakeKernel) forwards() (macs []log.MAC) {
	for _, e := range k.Find(plan.LinkKey{Name: plan.VXLANName(5)}).FDB {
		macs = append(macs, e.MAC)
	}
	return macs
}

func newScanned(t *testing.T) (*Daemon, *fakeKernel) {
	t.Helper()
	kernel := &fakeKernel{}
	links := []plan.Link{
		{Name: plan.VXLANName(5), Kind: plan.KindVXLAN, VNI: 5, Local: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Port: 4789},
		{Name: "fabric1", Kind: plan.KindMacvlan, Namespace: "z1", Parent: plan.VXLANName(5)},
		{Name: "fabric2", Kind: plan.KindMacvlan, Namespace: "z2", Parent: plan.VXLANName(5)},
	}
	kernel.AddNamespace("z1")
	kernel.AddNamespace("z2")
	for _, l := range links {
		if err := kernel.AddLink(l); err != nil {
			t.Fatal(err)
		}
	}
	d := &Daemon{
		cfg:    Config{Kernel: kernel, Logger: slog.New(slog.DiscardHandler), Pending: func(string) ([]miss.Miss, error) { return nil, nil }}.withDefaults(),
		tables: newTables(), queries: queries{byKey: map[key]*query{}}, troubles: map[string]bool{}, unknown: map[linkIndex]time.Time{}, doubts: map[key]*doubt{},
	}
	t.Cleanup(d.running.Wait)
	d.mustScan(t)
	if len(d.links.vnetOf) != 2 {
		t.Fatalf("fabric links: %v, want 2", d.links.vnetOf)
	}
	return d, kernel
}

func (d *Daemon) mustScan(t *testing.T) {
	t.Helper()
	if err := d.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// answer is the answer to what a fabric link misses.
func (d *Daemon) answer(t *testing.T, p linkKey, octet byte) {
	t.Helper()
	k := key{vnet: 5, ip: netip.AddrFrom4([4]byte{172, 16, 0, octet})}
	d.ask(k, false).link(p)
	d.queries.queue, d.queries.inFlight = nil, 1
	d.takeResolutions(t.Context(), resolution{key: k, mac: log.MAC{2, 0, 0, 0, 0, octet}, at: varp.Underlay{Addr: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Port: 4789}})
}

// TestLinkGone: the forwarding entry to which only the neighbours of one link led goes with
// the link, and no later scan brings it back.
func TestLinkGone(t *testing.T) {
	d, kernel := newScanned(t)
	d.answer(t, linkKey{"z1", "fabric1"}, 1)
	d.answer(t, linkKey{"z2", "fabric2"}, 2)
	if got := kernel.forwards(); len(got) != 2 {
		t.Fatalf("forwarding entries: %v, want 2", got)
	}
	kernel.DeleteLink("z1", "fabric1")
	for i := range 3 {
		d.mustScan(t)
		if got := kernel.forwards(); len(got) != 1 || got[0] != (log.MAC{2, 0, 0, 0, 0, 2}) || len(d.tables.forwards) != 1 {
			t.Fatalf("scan %d after the end of the link: forwarding entries %v, %d in the tables; want only the other link's", i+1, got, len(d.tables.forwards))
		}
	}
	if n := d.stats.adopted.Load(); n != 0 {
		t.Errorf("%d entries of its own were adopted as another program's", n)
	}
}

// TestNeighRefused: the forwarding entry of a neighbour that the kernel refuses goes with
// the next scan.
func TestNeighRefused(t *testing.T) {
	d, kernel := newScanned(t)
	kernel.Fail = func(s plan.Step) error {
		if s.Op == plan.OpSetNeigh {
			return errors.New("no such device")
		}
		return nil
	}
	d.answer(t, linkKey{"z1", "fabric1"}, 1)
	if got := kernel.forwards(); len(got) != 1 || !d.dirty {
		t.Fatalf("forwarding entries: %v, want 1, and a scan to follow: %v", got, d.dirty)
	}
	for i := range 2 {
		d.mustScan(t)
		if got := kernel.forwards(); len(got) != 0 || len(d.tables.forwards) != 0 {
			t.Fatalf("scan %d: forwarding entries %v, %d in the tables; want none", i+1, got, len(d.tables.forwards))
		}
	}
}

// TestMACGone: of a MAC that another program took from a neighbour, the forwarding entry
// goes too.
func TestMACGone(t *testing.T) {
	d, kernel := newScanned(t)
	d.answer(t, linkKey{"z1", "fabric1"}, 1)
	kernel.Edit("z1", "fabric1", func(l *plan.Link) { l.Neighs[0].MAC[5] = 9 })
	for i := range 2 {
		d.mustScan(t)
		if got := kernel.forwards(); len(got) != 0 || len(d.tables.forwards) != 0 {
			t.Fatalf("scan %d: forwarding entries %v, %d in the tables; want none", i+1, got, len(d.tables.forwards))
		}
	}
}
