package projections

import (
	"cmp"
	"iter"
	"strings"

	"rutter/log"
)

// ObjectChange is what became of one object between two states.
type ObjectChange struct {
	Action        log.Action // Create, Update or Delete
	Kind          log.Kind
	ID            string
	Before, After *Record // nil where it is not
	// Changed are the fields of an update with their old values; none if only
	// the revision moved: it was changed and changed back, or made again.
	Changed []log.FieldChange
}

// DiffRecords returns what makes after of before, of two lists that are sorted
// by kind and id, as List gives them. Objects of the same revision and seq are
// taken to be the same.
func DiffRecords(before, after iter.Seq[Record]) []ObjectChange {
	var changes []ObjectChange
	nextOld, stopOld := iter.Pull(before)
	defer stopOld()
	nextNew, stopNew := iter.Pull(after)
	defer stopNew()
	a, okA := nextOld()
	b, okB := nextNew()
	for okA || okB {
		order := 0
		switch {
		case !okB:
			order = -1
		case !okA:
			order = 1
		default:
			order = cmp.Or(cmp.Compare(a.Object.Kind(), b.Object.Kind()), strings.Compare(keyOfObject(a.Object), keyOfObject(b.Object)))
		}
		old, now := a, b
		switch {
		case order < 0:
			changes = append(changes, ObjectChange{Action: log.Delete, Kind: old.Object.Kind(), ID: old.Object.ID(), Before: &old})
		case order > 0:
			changes = append(changes, ObjectChange{Action: log.Create, Kind: now.Object.Kind(), ID: now.Object.ID(), After: &now})
		case old.Revision != now.Revision || old.Seq != now.Seq:
			changes = append(changes, ObjectChange{log.Update, now.Object.Kind(), now.Object.ID(), &old, &now, log.Diff(old.Object, now.Object)})
		}
		if order <= 0 {
			a, okA = nextOld()
		}
		if order >= 0 {
			b, okB = nextNew()
		}
	}
	return changes
}
