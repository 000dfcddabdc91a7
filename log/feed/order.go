package feed

import (
	"fmt"

	"rutter/log"
)

// order checks the order of a stream's messages.
type order struct {
	welcomed bool
	last     log.Seq     // of the last entry or bookmark
	open     *ScopeBegin // the scope that is being sent
	objects  uint32      // objects of open, so far
}

// check takes the next message. Errors: ErrOrder.
func (o *order) check(m Message) error {
	if _, is := m.(*Welcome); is == o.welcomed && !isAside(m) {
		return fmt.Errorf("%T where the stream has its welcome first and once: %w", m, ErrOrder)
	}
	if o.open != nil {
		return o.checkInScope(m)
	}
	switch m := m.(type) {
	case *Welcome:
		o.welcomed = true
	case *Reset:
		o.last = m.Head
	case *Entry:
		if m.Seq <= o.last {
			return fmt.Errorf("entry %d after %d: %w", m.Seq, o.last, ErrOrder)
		}
		o.last = m.Seq
	case *Bookmark:
		if m.Seq < o.last {
			return fmt.Errorf("bookmark %d after %d: %w", m.Seq, o.last, ErrOrder)
		}
		o.last = m.Seq
	case *ScopeBegin:
		if m.AsOf < o.last {
			return fmt.Errorf("scope %s as of %d after %d: %w", m.Scope, m.AsOf, o.last, ErrOrder)
		}
		o.open, o.objects = m, 0
	case *ScopeEnd:
		return fmt.Errorf("end of scope %s, which was not begun: %w", m.Scope, ErrOrder)
	}
	return nil
}

// isAside reports whether m may come at any point of a stream.
func isAside(m Message) bool {
	switch m.(type) {
	case *Pong, *Drain, *Request, *Tell:
		return true
	}
	return false
}

// checkInScope takes a message between a scope's begin and end.
func (o *order) checkInScope(m Message) error {
	switch m := m.(type) {
	case *Object:
		o.objects++
		if m.Scope != o.open.Scope || m.Seq > o.open.AsOf || o.objects > o.open.Count {
			return fmt.Errorf("object %s %s of %s at %d within scope %s as of %d of %d objects: %w",
				m.Kind, m.ID, m.Scope, m.Seq, o.open.Scope, o.open.AsOf, o.open.Count, ErrOrder)
		}
	case *ScopeEnd:
		if m.Scope != o.open.Scope || m.AsOf != o.open.AsOf || o.objects != o.open.Count || m.Count != o.open.Count {
			return fmt.Errorf("scope %s as of %d ends as %s as of %d, with %d of %d objects: %w",
				o.open.Scope, o.open.AsOf, m.Scope, m.AsOf, o.objects, o.open.Count, ErrOrder)
		}
		o.open = nil
	default:
		if !isAside(m) {
			return fmt.Errorf("%T within scope %s: %w", m, o.open.Scope, ErrOrder)
		}
	}
	return nil
}
