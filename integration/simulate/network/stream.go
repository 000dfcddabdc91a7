package network

import (
	"math/rand/v2"
	"time"
)

// mark is a number of bytes that arrive together, or the end of them.
type mark struct {
	n   int
	due time.Time // zero: unknown, since the path is dead
	fin bool
}

// stream is one direction of a connection: bytes in order, of which some have arrived.
type stream struct {
	ring    []byte    // what was written and not read; grows up to Buffer
	start   int       // in the ring, of the first byte
	size    int       // bytes in the ring
	ready   int       // of these, how many have arrived
	unacked int       // bytes that the sender keeps: written, and not known to it as read
	marks   []mark    // what has not arrived, in order
	fin     bool      // the end has arrived
	ended   bool      // the end was sent
	last    time.Time // due of what arrives last
	since   time.Time // when the oldest mark without a time was sent
	rst     time.Time // when the reset arrives; zero: there is none
	rng     *rand.Rand

	readers, writers waiters
}

func (s *stream) queued() int { return s.size }

// push adds bytes at the end.
func (s *stream) push(b []byte) {
	if need := s.size + len(b); need > len(s.ring) {
		grown := make([]byte, max(4<<10, 2*len(s.ring), need))
		s.copyOut(grown[:s.size])
		s.ring, s.start = grown, 0
	}
	end := s.start + s.size
	if end >= len(s.ring) {
		end -= len(s.ring)
	}
	copied := copy(s.ring[end:], b)
	copy(s.ring, b[copied:])
	s.size += len(b)
	s.unacked += len(b)
}

// copyOut copies the first bytes.
func (s *stream) copyOut(b []byte) {
	copied := copy(b, s.ring[s.start:])
	if copied < len(b) {
		copy(b[copied:], s.ring)
	}
}

// take reads what has arrived.
func (s *stream) take(b []byte) int {
	n := min(len(b), s.ready)
	s.copyOut(b[:n])
	s.size -= n
	s.ready -= n
	if s.start += n; s.start >= len(s.ring) {
		s.start -= len(s.ring)
	}
	if s.size == 0 {
		s.start = 0
	}
	return n
}

// settle counts what has arrived by now.
func (s *stream) settle(now time.Time) {
	arrived := 0
	for _, m := range s.marks {
		if m.due.IsZero() || m.due.After(now) || !s.rst.IsZero() && m.due.After(s.rst) {
			break
		}
		s.ready += m.n
		s.fin = s.fin || m.fin
		arrived++
	}
	if s.marks = s.marks[arrived:]; len(s.marks) == 0 {
		s.marks = nil
	}
}

// next returns when something more arrives; zero: it is not known that anything will.
func (s *stream) next() time.Time {
	var at time.Time
	if len(s.marks) > 0 {
		at = s.marks[0].due
	}
	return earlier(at, s.rst)
}

// drop lets nothing arrive of what is under way.
func (s *stream) drop(now time.Time) {
	s.settle(now)
	s.marks, s.size, s.unacked = nil, s.ready, s.ready
}

// reset lets a reset arrive, unless an earlier one does.
func (s *stream) reset(at time.Time) {
	s.rst = earlier(s.rst, at)
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
