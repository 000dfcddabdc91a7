package network

import "time"

// path is what becomes of a segment that an end sends now.
type path int

const (
	arrives path = iota
	waits        // its host is held: it leaves when that is over
	lost         // TCP sends it again until it arrives
)

// path returns the way from an end to its peer.
func (c *conn) path() path {
	switch {
	case c.halfOpen || c.host.down || c.peer.host.down || c.n.link(c.host.name, c.peer.host.name).Cut:
		return lost
	case c.host.held:
		return waits
	}
	return arrives
}

// resume finds out what can still arrive, after something changed between the two hosts.
func (c *conn) resume(now time.Time) {
	c.check(now)
	out := c.out
	out.settle(now)
	switch c.path() {
	case lost:
		out.lose(now)
	case arrives:
		c.retransmit(now)
	}
	if c.path() == lost || c.peer.path() == lost {
		if c.silent.IsZero() {
			c.silent = now
		}
	} else {
		c.silent = time.Time{}
		if !c.peer.forgot() {
			out.unacked = out.size
		}
	}
	c.wake()
	out.readers.wakeAll()
}

// lose takes back what is under way.
func (s *stream) lose(now time.Time) {
	for i := range s.marks {
		s.marks[i].due = time.Time{}
	}
	if len(s.marks) > 0 && s.since.IsZero() {
		s.since = now
	}
	if s.last.After(now) {
		s.last = now
	}
	if s.rst.After(now) {
		s.rst = time.Time{}
	}
}

// retransmit gives what waited for the path a time at which it arrives.
func (c *conn) retransmit(now time.Time) {
	out, at, sent := c.out, now, false
	if !out.since.IsZero() {
		at = again(out.since, now)
		out.since = time.Time{}
	}
	for i := range out.marks {
		if out.marks[i].due.IsZero() {
			out.marks[i].due = c.arrival(at)
			sent = true
		}
	}
	switch {
	case !c.peer.forgot() || c.closed || c.broken:
	case sent:
		c.refused(out.last)
	case !c.in.fin && len(c.in.marks) == 0: // the next keep-alive probe is answered
		c.refused(now.Add(KeepAlive))
	}
}
