package matrix

import (
	"strings"
	"testing"
)

// Each row says why, and what is own where an answer is; the role None is never allowed.
func TestRowsAreWhole(t *testing.T) {
	n := 0
	for _, rows := range [][]Row{Requests(), Surfaces(), Frames(), Commands()} {
		for _, r := range rows {
			n++
			if r.Why == "" {
				t.Errorf("%s does not say why", r.What)
			}
			own := r.Decisions[cn] == Own || r.Decisions[tenant] == Own
			if own && r.Own == "" {
				t.Errorf("%s does not say what is a compute node's or a tenant's own", r.What)
			}
			if a := r.For(Identity{}); a != Deny {
				t.Errorf("%s lets nobody in: %s", r.What, a)
			}
			write := strings.HasPrefix(r.What, "POST ") || strings.HasPrefix(r.What, "PUT ") || strings.HasPrefix(r.What, "DELETE ")
			if write && (r.Decisions[reader] != Deny || r.Decisions[tenant] != Deny) {
				t.Errorf("%s lets readers write", r.What)
			}
			if _, refusal := Decide(Identity{Role: Reader, Name: "x"}, r.What, &r); refusal != nil && refusal.Missing == "" {
				t.Errorf("%s: the refusal does not say what is missing", r.What)
			}
		}
	}
	t.Logf("%d rows", n)
	if a, refusal := Decide(Identity{Role: Operator, Name: "x"}, "GET /new", nil); a != Deny || refusal == nil {
		t.Errorf("what has no row: %s, %v", a, refusal)
	}
}
