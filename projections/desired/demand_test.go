package desired_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// TestEntriesAreThoseOfDesiredLinks: asked for one by one, entries are what the
// whole has, and nothing else.
func TestEntriesAreThoseOfDesiredLinks(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		w := worldtest.Settled(t, rules.Decide)
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			w.Try(w.Change(worldtest.DrawOp(t)))
		}
		var macs []log.MAC
		var ips []netip.Addr
		for r := range w.State.List(log.KindNIC) {
			nic := r.Object.(*log.NIC)
			macs, ips = append(macs, nic.MAC), append(ips, nic.IP)
		}
		for _, cn := range []log.UUID{changetest.UUID(11), changetest.UUID(12), changetest.UUID(13)} {
			want, find := desired.Of(w.State, cn), desired.NewEntries(w.State, cn)
			for _, mac := range macs {
				for _, ip := range ips {
					got, ok := find.Neigh(mac, ip)
					i := slices.IndexFunc(want.Neighs, func(n desired.Neigh) bool { return n.Link == mac && n.IP == ip })
					if ok != (i >= 0) || ok && got != want.Neighs[i] {
						t.Fatalf("neighbour %v of %v on %v: got %v, %v, the whole has it at %d", ip, mac, cn, got, ok, i)
					}
					asked++
				}
				for _, v := range want.VXLANs {
					got, ok := find.FDB(v.VNet, mac)
					i := slices.IndexFunc(want.FDB, func(f desired.FDB) bool { return f.VNet == v.VNet && f.MAC == mac })
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
// its entries; the others are as without limits. projections.Delta notices who crosses.
func TestOnDemandLeavesEntriesOut(t *testing.T) {
	crossed := 0
	rapid.Check(t, func(t *rapid.T) {
		w := worldtest.Settled(t, rules.Decide)
		cn := rapid.SampledFrom([]log.UUID{changetest.UUID(11), changetest.UUID(12), changetest.UUID(13)}).Draw(t, "cn")
		limits := desired.Limits{Entries: rapid.IntRange(1, 12).Draw(t, "limit")}
		touches := desired.NewTouches(cn)
		ask := func() desired.Links {
			got := desired.Within(w.State, cn, limits)
			limits.OnDemand = map[uint32]bool{}
			for _, v := range got.VXLANs {
				if v.OnDemand {
					limits.OnDemand[v.VNet] = true
				}
			}
			touches.ResetWithin(limits)
			return got
		}
		got, all := ask(), desired.Of(w.State, cn)
		vnetOf := map[log.MAC]uint32{}
		for i := range all.Fabrics {
			vnetOf[all.Fabrics[i].MAC] = all.Fabrics[i].VNet
		}
		// The peers of what is on demand are where its entries would go.
		for _, f := range all.FDB {
			if limits.OnDemand[f.VNet] {
				all.Peers = append(all.Peers, desired.Peer{VNet: f.VNet, Addr: f.Dst})
			}
		}
		slices.SortFunc(all.Peers, func(a, b desired.Peer) int { return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.Addr.Compare(b.Addr)) })
		all.Peers = slices.Compact(all.Peers)
		all.FDB = slices.DeleteFunc(all.FDB, func(f desired.FDB) bool { return limits.OnDemand[f.VNet] })
		all.Neighs = slices.DeleteFunc(all.Neighs, func(n desired.Neigh) bool { return limits.OnDemand[vnetOf[n.Link]] })
		for i := range all.VXLANs {
			all.VXLANs[i].OnDemand = limits.OnDemand[all.VXLANs[i].VNet]
		}
		got.Problems, all.Problems = nil, nil // what is not listed cannot be a problem
		worldtest.SameDesired(t, got, all)
		for range 4 {
			op := worldtest.DrawOp(t)
			before, _ := w.State.Get(op.Kind, op.ID)
			result := w.Try(w.Change(op))
			if result.Refusal != nil {
				continue
			}
			for _, id := range result.IDs {
				after, _ := w.State.Get(op.Kind, id)
				touches.Note(before.Object, after.Object)
			}
			if touches.Whole() || !touches.Any() {
				ask()
				continue
			}
			touches.Delta(w.State)
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
