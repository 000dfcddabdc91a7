package projections

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestEntriesAreThoseOfDesiredLinks: asked for one by one, entries are what the
// whole has, and nothing else.
func TestEntriesAreThoseOfDesiredLinks(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		w := settled(t)
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			w.try(w.change(drawOp(t)))
		}
		var macs []log.MAC
		var ips []netip.Addr
		for r := range w.s.List(log.KindNIC) {
			nic := r.Object.(*log.NIC)
			macs, ips = append(macs, nic.MAC), append(ips, nic.IP)
		}
		for _, cn := range []log.UUID{id(11), id(12), id(13)} {
			want, find := w.s.DesiredLinks(cn), w.s.Entries(cn)
			for _, mac := range macs {
				for _, ip := range ips {
					got, ok := find.Neigh(mac, ip)
					i := slices.IndexFunc(want.Neighs, func(n Neigh) bool { return n.Link == mac && n.IP == ip })
					if ok != (i >= 0) || ok && got != want.Neighs[i] {
						t.Fatalf("neighbour %v of %v on %v: got %v, %v, the whole has it at %d", ip, mac, cn, got, ok, i)
					}
					asked++
				}
				for _, v := range want.VXLANs {
					got, ok := find.FDB(v.VNet, mac)
					i := slices.IndexFunc(want.FDB, func(f FDB) bool { return f.VNet == v.VNet && f.MAC == mac })
					if ok != (i >= 0) || ok && got != want.FDB[i] {
						t.Fatalf("forwarding entry %v on %d of %v: got %v, %v, the whole has it at %d", mac, v.VNet, cn, got, ok, i)
					}
				}
			}
		}
	})
	if asked == 0 {
		t.Error("no entry was asked for")
	}
}

// TestOnDemandLeavesEntriesOut: a vnet over its limit keeps its links and loses
// its entries; the others are as without limits. Delta notices who crosses.
func TestOnDemandLeavesEntriesOut(t *testing.T) {
	crossed := 0
	rapid.Check(t, func(t *rapid.T) {
		w := settled(t)
		cn := rapid.SampledFrom([]log.UUID{id(11), id(12), id(13)}).Draw(t, "cn")
		limits := Limits{Entries: rapid.IntRange(1, 12).Draw(t, "limit")}
		touches := NewTouches(cn)
		ask := func() Desired {
			got := w.s.DesiredLinksWithin(cn, limits)
			limits.OnDemand = map[uint32]bool{}
			for _, v := range got.VXLANs {
				if v.OnDemand {
					limits.OnDemand[v.VNet] = true
				}
			}
			touches.ResetWithin(limits)
			return got
		}
		got, all := ask(), w.s.DesiredLinks(cn)
		vnetOf := map[log.MAC]uint32{}
		for i := range all.Fabrics {
			vnetOf[all.Fabrics[i].MAC] = all.Fabrics[i].VNet
		}
		all.FDB = slices.DeleteFunc(all.FDB, func(f FDB) bool { return limits.OnDemand[f.VNet] })
		all.Neighs = slices.DeleteFunc(all.Neighs, func(n Neigh) bool { return limits.OnDemand[vnetOf[n.Link]] })
		for i := range all.VXLANs {
			all.VXLANs[i].OnDemand = limits.OnDemand[all.VXLANs[i].VNet]
		}
		got.Problems, all.Problems = nil, nil // what is not listed cannot be a problem
		sameDesired(t, got, all)
		for range 4 {
			op := drawOp(t)
			before, _ := w.s.Get(op.Kind, op.ID)
			result := w.try(w.change(op))
			if result.Refusal != nil {
				continue
			}
			for _, id := range result.IDs {
				after, _ := w.s.Get(op.Kind, id)
				touches.Note(before.Object, after.Object)
			}
			if touches.Whole() || !touches.Any() {
				ask()
				continue
			}
			touches.Delta(w.s)
			was := limits.OnDemand
			whole := touches.Whole()
			if ask(); whole != !sameVNets(was, limits.OnDemand) {
				t.Fatalf("delta: whole %v, on demand were %v and are %v", whole, was, limits.OnDemand)
			}
			if whole {
				crossed++
			}
		}
	})
	t.Logf("%d vnets crossed their limit", crossed)
}

func sameVNets(a, b map[uint32]bool) bool {
	for vnet := range a {
		if !b[vnet] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestLimitsHoldOn(t *testing.T) {
	limits := Limits{Entries: 800}
	tests := []struct {
		entries int
		before  bool
		want    bool
	}{{800, false, false}, {801, false, true}, {800, true, true}, {701, true, true}, {700, true, false}, {701, false, false}}
	for _, test := range tests {
		limits.OnDemand = map[uint32]bool{7: test.before}
		if got := limits.over(7, test.entries); got != test.want {
			t.Errorf("%d entries, on demand before %v: got %v, want %v", test.entries, test.before, got, test.want)
		}
	}
	if (&Limits{}).over(7, 1<<30) {
		t.Error("no limit: got on demand")
	}
}
