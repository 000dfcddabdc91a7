package link

import (
	"context"
	"testing"
	"time"

	"rutter/agent/link/internal/linktest"
	"rutter/projections/desired"
)

// TestOwnWorkIsNoDrift: what comes with the first NIC of a segment, and goes with the last,
// is no change by another program, in a pass or in a part.
func TestOwnWorkIsNoDrift(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	want := w.neighbours(0, "zA")
	g := guard(w, want, time.Hour, &linktest.Table{})
	g.m.cfg.Secure = required
	var none desired.Links
	held := none
	for _, part := range []bool{false, true} {
		for _, next := range []desired.Links{want, none, want, none} {
			var result Result
			if part {
				result = g.m.Apply(context.Background(), deltaBetween(held, clone(next)))
			} else {
				result = w.pass(g.m, clone(next))
			}
			if held = clone(next); len(result.Steps) == 0 || len(result.Drift) > 0 {
				t.Errorf("part %v: drift %v of the steps %v", part, texts(result.Drift), texts(result.Steps))
			}
		}
	}
}
