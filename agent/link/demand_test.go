package link

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rutter/projections/desired"

	"pgregory.net/rapid"

	"rutter/agent/link/plan"
)

// onDemand puts some vnets of want on demand: they keep only their links.
func onDemand(want desired.Links, vnets map[uint32]bool) desired.Links {
	of := map[[6]byte]uint32{}
	for i := range want.Fabrics {
		of[want.Fabrics[i].MAC] = want.Fabrics[i].VNet
	}
	want.VXLANs = slices.Clone(want.VXLANs)
	for i := range want.VXLANs {
		want.VXLANs[i].OnDemand = vnets[want.VXLANs[i].VNet]
	}
	want.Neighs = slices.DeleteFunc(slices.Clone(want.Neighs), func(n desired.Neigh) bool { return vnets[of[n.Link]] })
	want.FDB = slices.DeleteFunc(slices.Clone(want.FDB), func(f desired.FDB) bool { return vnets[f.VNet] })
	return want
}

// deltaOf is what events between two states touch, if the links are the same.
func deltaOf(before, after desired.Links) (d desired.LinksDelta) {
	for _, n := range after.Neighs {
		if !slices.Contains(before.Neighs, n) {
			d.Neighs = append(d.Neighs, n)
		}
	}
	for _, f := range after.FDB {
		if !slices.Contains(before.FDB, f) {
			d.FDB = append(d.FDB, f)
		}
	}
	for _, n := range before.Neighs {
		if !slices.ContainsFunc(after.Neighs, func(o desired.Neigh) bool { return o.Link == n.Link && o.IP == n.IP }) {
			d.NoNeighs = append(d.NoNeighs, n)
		}
	}
	for _, f := range before.FDB {
		if !slices.ContainsFunc(after.FDB, func(o desired.FDB) bool { return o.VNet == f.VNet && o.MAC == f.MAC }) {
			d.NoFDB = append(d.NoFDB, f)
		}
	}
	return d
}

// demanded is a running random walk with vnets on demand.
type demanded struct {
	f     *plan.Fake
	m     *Manager
	truth *book
	full  desired.Links // what the log says
}

// ask answers some questions, about existing entries and others.
func (w *demanded) ask(t *rapid.T) {
	var asked []Question
	for _, l := range w.f.Links {
		if vnet, ok := plan.VNetOfName(l.Parent); ok && l.Kind == plan.KindMacvlan && plan.KindOfName(l.Name) == l.Kind {
			for peer := range 3 {
				if rapid.Bool().Draw(t, "asks") {
					ip := addr("10.0.0.100").As4()
					ip[2], ip[3] = byte(vnet), byte(100+peer)
					asked = append(asked, Question{VNet: vnet, Namespace: l.Namespace, Link: l.Name, Fabric: l.MAC, IP: netip.AddrFrom4(ip)})
				}
			}
		}
		if l.Kind == plan.KindVXLAN && rapid.Bool().Draw(t, "asks for a MAC") {
			asked = append(asked, Question{VNet: l.VNI, MAC: mac(1000 + rapid.IntRange(0, 2).Draw(t, "mac"))})
		}
	}
	w.m.demand.resolve(context.Background(), asked, plainWriter{w.f})
}

// check requires that no entry of a vnet on demand contradicts the log, that all of
// them are known, and that the table's limit is kept.
func (w *demanded) check(t *rapid.T, vnets map[uint32]bool) {
	held := map[uint32]int{}
	for _, l := range w.f.Links {
		if l.Kind == plan.KindVXLAN && vnets[l.VNI] {
			for _, f := range l.FDB {
				if e, ok := w.truth.FDB(l.VNI, f.MAC); !ok || e.Dst != f.Dst {
					t.Fatalf("forwarding entry %v to %v on %s: the log has %v, %v", f.MAC, f.Dst, l.Name, e, ok)
				}
				held[l.VNI]++
			}
		}
		vnet, on := w.m.demand.links[l.MAC]
		if l.Kind == plan.KindMacvlan && on && vnets[vnet] {
			for _, n := range l.Neighs {
				if e, ok := w.truth.Neigh(l.MAC, n.IP); !ok || e.MAC != n.MAC {
					t.Fatalf("neighbour %v to %v on %s: the log has %v, %v", n.IP, n.MAC, l.Name, e, ok)
				}
				held[vnet]++
			}
		}
	}
	for vnet, r := range w.m.demand.vnets {
		if r.size != held[vnet] || r.order.Len() != len(r.macs) {
			t.Fatalf("vnet %d: %d entries are known of, the kernel has %d; %d MACs in order, %d known", vnet, r.size, held[vnet], r.order.Len(), len(r.macs))
		}
		if limit := w.m.demand.limit + 16; r.size > limit {
			t.Fatalf("vnet %d: %d entries, the table takes %d", vnet, r.size, limit)
		}
	}
}

// TestRandomWalkOnDemand goes from state to state with vnets that change between ahead
// and on demand, through questions, changes of the log and damage.
func TestRandomWalkOnDemand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &plan.Fake{}
		f.AddNamespace("z1")
		f.AddNamespace("z2")
		w := &demanded{f: f, m: NewManager(ManagerConfig{Kernel: f, Table: rapid.IntRange(1, 12).Draw(t, "table")})}
		believe := func(full desired.Links) {
			w.full = full
			w.truth, _ = bookOf(full)
			w.m.SetSource(w.truth)
		}
		for range rapid.IntRange(1, 5).Draw(t, "states") {
			believe(drawDesired(t))
			vnets := map[uint32]bool{}
			for _, v := range w.full.VXLANs {
				vnets[v.VNet] = rapid.Bool().Draw(t, "on demand")
			}
			want := onDemand(w.full, vnets)
			if rapid.Bool().Draw(t, "damage") {
				vandalise(t, f)
			}
			w.ask(t)
			if _, err := w.m.Pass(context.Background(), want, true); err != nil {
				t.Fatal(err)
			}
			result, err := w.m.Pass(context.Background(), want, true)
			if err != nil || !result.Matched {
				t.Fatalf("pass: %v, failures %v, conflicts %v\n%s", err, result.Failures, result.Conflicts, f)
			}
			w.check(t, vnets)
			for range rapid.IntRange(0, 3).Draw(t, "turns") {
				w.ask(t)
				w.check(t, vnets)
				after := w.full
				after.Neighs, after.FDB = slices.Clone(after.Neighs), slices.Clone(after.FDB)
				for i := range after.FDB {
					after.FDB[i].Dst = rapid.SampledFrom([]netip.Addr{addr("10.99.0.2"), addr("10.99.0.3")}).Draw(t, "moves to")
				}
				after.Neighs = slices.DeleteFunc(after.Neighs, func(desired.Neigh) bool { return rapid.IntRange(0, 3).Draw(t, "goes") == 0 })
				delta := deltaOf(w.full, after)
				believe(after)
				if result := w.m.Apply(context.Background(), delta); !result.Matched {
					t.Fatalf("apply: %v", result.Failures)
				}
				w.check(t, vnets)
			}
			want = onDemand(w.full, vnets)
			if result, err := w.m.Pass(context.Background(), want, true); err != nil || len(result.Steps) != 0 {
				t.Fatalf("pass after applied changes: %v, steps %v", err, texts(result.Steps))
			}
		}
	})
}

// used is a writer whose kernel reports which forwarding entries are in use.
type used struct {
	*plan.Fake
	busy map[[6]byte]bool
}

func (u used) Unused(_ context.Context, entries []plan.Entry) []time.Duration {
	times := make([]time.Duration, len(entries))
	for i, e := range entries {
		if times[i] = time.Hour; u.busy[e.MAC] {
			times[i] = 0
		}
	}
	return times
}

// TestWhatIsInUseStays: unused entries are removed first.
func TestWhatIsInUseStays(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z0")
	now := time.Unix(1e9, 0)
	truth, bare := bookOf(crowd(1, 100, 1))
	m := NewManager(ManagerConfig{Kernel: f, Table: 40, Now: func() time.Time { return now }})
	m.SetSource(truth)
	if _, err := m.Pass(context.Background(), bare, true); err != nil {
		t.Fatal(err)
	}
	busy := used{f, map[[6]byte]bool{}}
	link := bare.Fabrics[0].MAC
	for p := range 100 {
		now = now.Add(time.Second)
		ip := netip.AddrFrom4([4]byte{10, 7, 0, byte(p)})
		m.demand.resolve(context.Background(), []Question{{VNet: 1000, Namespace: "z0", Link: "fabric0", Fabric: link, IP: ip}}, busy)
		if p < 5 {
			busy.busy[truth.neighs[neighKey{link, ip}].MAC] = true
		}
	}
	l := f.Find(plan.LinkKey{Namespace: "", Name: "sdcvxl1000"})
	for mac := range busy.busy {
		if !slices.ContainsFunc(l.FDB, func(e plan.Forward) bool { return e.MAC == mac }) {
			t.Errorf("%x was in use, and went", mac)
		}
	}
	if got := m.Asked(); got.Resident > 40 || got.Resident < 30 || got.Evicted == 0 {
		t.Errorf("got %+v, want some 40 entries", got)
	}
}
