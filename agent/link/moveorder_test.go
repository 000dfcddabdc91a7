package link

import (
	"slices"
	"testing"

	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// TestMoveMakesBeforeItBreaks: a node that a NIC leaves has the forwarding entry to its new
// node before it deletes the link; and a node that a NIC comes to deletes the entry to its
// old node after it has the link, with all that is on it.
func TestMoveMakesBeforeItBreaks(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zC")
	here := meshed(0, false, "zA", "zB", "zC")[0] // zB is on cn2, zC on cn3
	away := here
	moving := here.Fabrics[0]
	moving.MAC, moving.Namespace = mac(3), "zC"
	moving.Addresses = moving.Addresses[:1:1]
	moving.Addresses[0] = prefix("192.168.5.3/24")
	here.Fabrics = []desired.Fabric{away.Fabrics[0], moving}
	here.FDB = slices.DeleteFunc(slices.Clone(away.FDB), func(f desired.FDB) bool { return f.MAC == mac(3) })
	g := guard(w, away, patience)
	w.pass(g.m, away)
	// steps applies what differs, and returns where two steps are in it.
	steps := func(from, to desired.Links, first, second func(s plan.Step) bool) (int, int) {
		result := g.m.Apply(t.Context(), deltaBetween(from, to))
		if !result.Matched {
			t.Fatalf("not matched: %v", texts(result.Steps))
		}
		return slices.IndexFunc(result.Steps, first), slices.IndexFunc(result.Steps, second)
	}
	last := func(s plan.Step) bool { return s.Namespace == "zC" && s.Op == plan.OpAddAddress }
	if made, deleted := steps(away, here, last, func(s plan.Step) bool { return s.Op == plan.OpDelFDB && s.MAC == mac(3) }); made < 0 || deleted < made {
		t.Errorf("NIC that comes: address at step %d, entry to the old node deleted at %d, want the address first", made, deleted)
	}
	forwards := func(s plan.Step) bool { return s.Op == plan.OpSetFDB && s.MAC == mac(3) }
	if made, deleted := steps(here, away, forwards, func(s plan.Step) bool { return s.Op == plan.OpDelLink && s.Namespace == "zC" }); made < 0 || deleted < made {
		t.Errorf("NIC that leaves: entry to the new node at step %d, link deleted at %d, want the entry first", made, deleted)
	}
}
