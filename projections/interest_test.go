package projections

import (
	"slices"
	"testing"

	"rutter/log"
)

// A CN is interested in a vnet from its first NIC there until its last one goes, and those
// that ask what changed are told of these two only (SAFETY F1).
func TestInterestCountsNICs(t *testing.T) {
	in, cn, scope := newInterest(), log.UUID{1}, log.VNetScope(7)
	gain := []Gain{{cn, scope}}
	for i, step := range []struct {
		add          bool
		moved, holds bool
		gained, lost []Gain
	}{
		{add: true, moved: true, holds: true, gained: gain},
		{add: true, holds: true},
		{add: true, holds: true},
		{holds: true},
		{holds: true},
		{moved: true, lost: gain},
		{add: true, moved: true, holds: true, gained: gain},
	} {
		change := in.remove
		if step.add {
			change = in.add
		}
		if moved := change(cn, scope); moved != step.moved {
			t.Errorf("step %d: moved is %v, want %v", i, moved, step.moved)
		}
		holds := in.scopes[cn] != nil && in.scopes[cn].len() == 1
		if cns := in.cns[scope] != nil && in.cns[scope].len() == 1; holds != step.holds || cns != step.holds {
			t.Errorf("step %d: the CN has the scope: %v, the scope has the CN: %v; want %v", i, holds, cns, step.holds)
		}
		if gained, lost := in.take(); !slices.Equal(gained, step.gained) || !slices.Equal(lost, step.lost) {
			t.Errorf("step %d: gained %v and lost %v, want %v and %v", i, gained, lost, step.gained, step.lost)
		}
	}
}
