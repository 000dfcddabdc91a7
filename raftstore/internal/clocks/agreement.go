package clocks

import (
	"slices"
	"time"

	"rutter/log"
)

// reading is one server's clock, as this server knows it at the moment that it is
// asked about.
type reading struct {
	id    string
	voter bool
	clock log.Time
	// doubt is how far clock may be from what that server's clock shows: half of
	// the round trip in which it was read.
	doubt time.Duration
}

// Agreement is what a server takes the time to be, from the clocks of the voters
// that it knows. It goes on with the monotonic clock until the next one.
type Agreement struct {
	taken time.Time // by the monotonic clock
	// clock is the agreed one: the middle one of the voters', the lower of the
	// two where there are two, so that no single clock moves it forward.
	clock log.Time
	known int // voters' clocks that were compared
	// Judged: more than half of these lie within the bound of the agreed clock. If
	// not, as with two that differ, nobody can say whose is right.
	Judged bool
	Bound  time.Duration
	// Differs is how far each server's clock is ahead of the agreed one, and doubts
	// how sure that is; by name.
	Differs, Doubts map[string]time.Duration
}

// agree compares clocks that were read at one moment. own is the asking server,
// whose clock counts alone if no voter's is known.
func agree(own reading, others []reading, bound time.Duration, taken time.Time) *Agreement {
	a := &Agreement{
		taken: taken, clock: own.clock, Bound: bound,
		Differs: make(map[string]time.Duration, len(others)+1), Doubts: make(map[string]time.Duration, len(others)+1),
	}
	all := append([]reading{own}, others...)
	var clocks []log.Time
	for _, r := range all {
		if r.voter {
			clocks = append(clocks, r.clock)
		}
	}
	if a.known = len(clocks); a.known > 0 {
		slices.Sort(clocks)
		a.clock = clocks[(a.known-1)/2]
	}
	near := 0
	for _, r := range all {
		a.Differs[r.id], a.Doubts[r.id] = time.Duration(r.clock-a.clock), r.doubt
		if r.voter && !a.far(r.id) {
			near++
		}
	}
	a.Judged = a.known == 0 || near > a.known/2
	return a
}

// far reports whether a server's clock is known, and further from the agreed one
// than the bound and what its measurement leaves open.
func (a *Agreement) far(id string) bool {
	off, known := a.Differs[id]
	return known && off.Abs() > a.Bound+a.Doubts[id]
}

// Wrong reports whether a server's clock is far off, and the others can tell.
func (a *Agreement) Wrong(id string) bool { return a.Judged && a.far(id) }

// right reports whether a server's clock is known to be near the agreed one.
func (a *Agreement) right(id string) bool {
	_, known := a.Differs[id]
	return a.Judged && known && !a.far(id)
}

// Alone reports whether there was no other voter's clock to compare with.
func (a *Agreement) Alone() bool { return a.known <= 1 }

// At returns the agreed clock at a moment of the monotonic clock.
func (a *Agreement) At(now time.Time) log.Time { return a.clock + log.Time(now.Sub(a.taken)) }
