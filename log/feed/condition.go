package feed

import "rutter/log"

// Condition says what people must see to on a CN. It is sent when it changes, and
// at the begin of each connection unless all is well. It is soft state, kept with
// the session.
type Condition struct {
	// Hold names a view of the log that the CN does not do, since it would take too
	// much away; empty: none.
	Hold  string
	Going uint32   // links that it would take away
	Links uint32   // that it would have
	Was   log.UUID // the cluster whose view the CN goes on with; zero: not known
	Log   log.UUID // the cluster whose view is held
	Names string   // some of what would go, a line each; at most 64 KiB
	// Trouble is what else is wrong (a cache that cannot be written, a certificate
	// that has expired), a line each; at most 64 KiB.
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

// Condition has m sent, unless the last one said the same. It never blocks, and may
// be called from any goroutine.
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

// takeCondition returns it if it is to be sent. The caller holds the lock.
func (c *Conn) takeCondition(up []Message) []Message {
	if !c.conditionDue {
		return up
	}
	c.conditionDue = false
	m := c.condition
	return append(up, &m)
}
