package projections

import (
	"fmt"

	"rutter/log"
)

// Fits says whether the events of one change, the first of which gets seq, can be
// folded one after the other: a caller that knows it before the first folds all of
// them or none. It alters nothing.
func (s *State) Fits(seq log.Seq, events []*log.Event) error {
	var made map[rowKey]row // what the events before leave; revision 0: nothing
	if len(events) > 1 {
		made = make(map[rowKey]row, len(events))
	}
	for i, e := range events {
		at := seq + log.Seq(i)
		r, err := s.rowOf(e)
		if err == nil && made != nil {
			key := rowKey{e.Kind, keyOfObject(e.Object)}
			if left, ok := made[key]; ok {
				r = nil
				if left.revision > 0 {
					r = &left
				}
			}
			made[key] = row{seq: at, revision: revisionAfter(e)}
		}
		if err == nil {
			err = fits(at, e, r)
		}
		if err != nil {
			return fmt.Errorf("seq %d: %s of %s %s: %w", at, e.Action, e.Kind, log.Quote(e.ID), err)
		}
	}
	return nil
}

// revisionAfter is that of the object after an event, 0 if it is gone.
func revisionAfter(e *log.Event) log.Revision {
	if e.Action == log.Delete {
		return 0
	}
	return e.Revision
}
