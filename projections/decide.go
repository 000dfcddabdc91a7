package projections

import (
	"rutter/log"
)

// Decide turns a change into events, or into a Result with a Refusal. It
// changes nothing.
func (s *State) Decide(c *log.Change) ([]*log.Event, log.Result) {
	return nil, log.Result{ChangeID: c.ID}
}
