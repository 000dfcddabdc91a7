package feed

import "rutter/log"

// Condition is what operators must look at on a CN. It is sent when it changes, and at
// the begin of each connection unless all is well. It is soft state, kept with the
// session.
type Condition struct {
	// Hold identifies a view of the log that the CN does not program, because that
	// would remove too much. Empty: there is none.
	Hold  string
	Going uint32   // number of links that it would remove
	Links uint32   // number of links that would remain
	Was   log.UUID // the cluster whose view the CN keeps; zero: not known
	Log   log.UUID // the cluster whose view is held
	Names string   // some of the links that would go, one on each line; at most 64 KiB
	// Trouble lists what else is wrong, such as a cache that cannot be written or a
	// certificate that has expired: one on each line, at most 64 KiB.
	Trouble string
}

func (*Condition) frame() (Type, log.Seq) { return TypeCondition, 0 }

func (m *Condition) write(w *payloadWriter) {
	w.text(m.Hold)
	w.u32(m.Going)
	w.u32(m.Links)
	w.raw(m.Was[:])
	w.raw(m.Log[:])
	w.text(m.Names)
	w.text(m.Trouble)
}

func (m *Condition) read(_ log.Seq, r *payloadReader) {
	m.Hold = r.text()
	m.Going, m.Links = r.u32(), r.u32()
	m.Was, m.Log = r.uuid(), r.uuid()
	m.Names, m.Trouble = r.text(), r.text()
}

// Condition sends m, unless it equals the last one. It never blocks, and may be called
// from any goroutine.
func (c *Conn) Condition(m Condition) {
	c.mu.Lock()
	if changed := m != c.condition; changed {
		c.condition, c.conditionDue = m, true
	}
	due := c.conditionDue
	c.mu.Unlock()
	if !due {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// takeCondition returns the condition if it must be sent. The caller holds the lock.
func (c *Conn) takeCondition(up []Message) []Message {
	if !c.conditionDue {
		return up
	}
	c.conditionDue = false
	m := c.condition
	return append(up, &m)
}
