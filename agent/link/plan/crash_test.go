package plan

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/agent/filter"
	"rutter/agent/link/internal/linktest"
	"rutter/projections/desired"
)

// TestNoStepLeavesAGap: an agent that dies between any two steps, also while it switches port
// security, leaves no node's end up without rules, and no forwarding entry to a node whose
// packets are dropped; the next one ends with what is wanted.
func TestNoStepLeavesAGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, table := secureFake()
		var numbers Numbers
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			want := drawLinks(t)
			port := rapid.SampledFrom([]uint16{4789, 8472}).Draw(t, "port") // another one rebuilds the devices
			for i := range want.VXLANs {
				want.VXLANs[i].Port = port
			}
			for _, w := range want.Fabrics {
				numbers.Assign(w.MAC, nil)
				numbers.Put(w.MAC, w.Namespace)
			}
			secure := Secure{On: rapid.Bool().Draw(t, "on"), Required: true}
			drawAttach(t, &want, &numbers, secure.On)
			for range rapid.IntRange(0, 3).Draw(t, "deaths") {
				steps := stepsTo(f, want, numbers, secure)
				steps = steps[:rapid.IntRange(0, len(steps)).Draw(t, "steps")]
				for i := range steps {
					if errs := f.Do(context.Background(), steps[i:i+1]); errs != nil {
						t.Fatalf("%s: %v", steps[i], errs)
					}
					checkGaps(t, f, table, &want, steps[i])
				}
			}
			applySecured(t, f, want, numbers, secure)
		}
	})
}

func stepsTo(f *Fake, want desired.Links, numbers Numbers, secure Secure) []Step {
	have, _ := f.Dump(context.Background(), Searched(namespacesOf(want), numbers.Namespaces()))
	return PlanSecured(want, have, numbers, true, secure).Steps
}

func checkGaps(t *rapid.T, f *Fake, table *linktest.Table, want *desired.Links, after Step) {
	t.Helper()
	for _, l := range f.Links {
		guarded := slices.ContainsFunc(table.Held.Ports, func(p filter.Port) bool { return p.Index == uint32(l.Index) })
		if mark, _ := ParseMark(l.Alias); l.Kind == KindTap && (l.Namespace != "" || mark.port().IsZero()) {
			t.Fatalf("after %s: %s has no mark", after, l.Name)
		}
		if l.Namespace == "" && (KindOfName(l.Name) == KindVeth || l.Kind == KindTap) && l.Up && !guarded {
			t.Fatalf("after %s: %s is up without rules", after, l.Name)
		}
		for _, e := range l.FDB {
			wanted := slices.ContainsFunc(want.FDB, func(w desired.FDB) bool { return w.VNet == l.VNI && w.MAC == e.MAC && w.Dst == e.Dst })
			gone := after.Rule != nil && after.Rule.DelPeer != nil && *after.Rule.DelPeer == filter.Peer{VTEP: e.Dst, VNI: l.VNI}
			if (wanted || gone) && slices.Contains(table.Held.Underlay.Ports, l.Port) && !table.Has(l.VNI, e.Dst) {
				t.Fatalf("after %s: %s forwards to %s, whose packets are dropped", after, l.Name, e.Dst)
			}
		}
	}
}
