package projections_test

import (
	"net/netip"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// TestAddressTakenInCache: a cache may see the new holder of an address before
// the old one leaves.
func TestAddressTakenInCache(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	old, _ := w.State.Get(log.KindNIC, "00:00:00:00:02:01")
	taker := log.Clone(old.Object).(*log.NIC)
	taker.MAC = log.MAC{5: 1}
	if err := w.State.Load(projections.Record{Object: taker, Revision: 1, Seq: 99}); err != nil {
		t.Fatal(err)
	}
	w.State.Drop(log.KindNIC, old.Object.ID())
	if mac, _, ok := w.State.VL3(10, taker.IP); !ok || mac != taker.MAC {
		t.Errorf("VL3 gave %v, %v; want the NIC that is left", mac, ok)
	}
	if r, ok := w.State.NICAt(changetest.UUID(31), taker.IP); !ok || r.Object != taker {
		t.Errorf("the address is of %+v, %v", r.Object, ok)
	}
}

func BenchmarkVL3(b *testing.B) {
	w := worldtest.Settled(b, rules.Decide)
	ip := netip.MustParseAddr("10.0.0.4")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := w.State.VL3(10, ip); !ok {
			b.Fatal("not found")
		}
	}
}
