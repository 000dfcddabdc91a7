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

// The time of a state goes back with an event that sets it only: changes are decided by it,
// and servers that restart at different times must decide the same (SAFETY D2).
func TestTimeOfAStateStays(t *testing.T) {
	s := NewState()
	for _, step := range []struct{ to, want log.Time }{{5, 5}, {3, 5}, {0, 5}, {6, 6}} {
		if s.SetTime(step.to); s.Time() != step.want {
			t.Errorf("set to %d the time is %d, want %d", step.to, s.Time(), step.want)
		}
	}
}
