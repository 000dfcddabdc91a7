package link

import (
	"context"
	"maps"
	"slices"
	"testing"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// TestAttachedFollowsParts: where NICs are attached is passed on after a pass and after a
// part, by the ifindexes of the kernel, and a pass after a part has no other opinion.
func TestAttachedFollowsParts(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	two := w.neighbours(0, "zA", "zB")
	one, moved := clone(two), clone(two)
	one.Fabrics = one.Fabrics[:1]
	one.Neighs = slices.DeleteFunc(one.Neighs, func(e desired.Neigh) bool { return e.Link != one.Fabrics[0].MAC })
	moved.VXLANs = append(moved.VXLANs, desired.VXLAN{VNet: 6, Local: two.VXLANs[0].Local, Port: 4789, MTU: 1450})
	moved.Fabrics[1].VNet = 6
	g := w.secure("cn1", required)
	var got map[log.MAC]Attachment
	calls := 0
	g.m.cfg.Attached = func(all map[log.MAC]Attachment) { got, calls = maps.Clone(all), calls+1 }
	held := clone(one)
	w.pass(g.m, one)
	for i, next := range []desired.Links{one, two, moved, two, one, {}, two} {
		if i > 0 {
			if result := g.m.Apply(context.Background(), deltaBetween(held, next)); result.Look || !result.Matched {
				t.Fatalf("change %d: look %v, matched %v, failures %v", i, result.Look, result.Matched, result.Failures)
			}
		}
		held = clone(next)
		want := map[log.MAC]Attachment{}
		for _, f := range next.Fabrics {
			n, _ := g.m.numbers.Lookup(f.MAC)
			bridge := plan.BridgeName(f.VNet, f.VLAN)
			port, _ := g.h.indexOf(plan.LinkKey{Name: plan.PortName(n)})
			index, ok := g.h.indexOf(plan.LinkKey{Name: bridge})
			if !ok {
				t.Fatalf("change %d: there is no %s", i, bridge)
			}
			want[f.MAC] = Attachment{uint32(port), uint32(index), bridge, f.VNet, f.VLAN}
		}
		if calls != i+1 || !maps.Equal(got, want) {
			t.Errorf("change %d, call %d: got %+v, want %+v", i, calls, got, want)
		}
		if mustPass(t, g.m, clone(held)); calls != i+1 {
			t.Errorf("change %d: the pass after it says %+v", i, got)
		}
	}
}
