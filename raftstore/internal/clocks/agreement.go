package clocks

import (
	"slices"
	"time"

	"rutter/log"
)

// reading is one server's clock, as this server knows it at one moment.
type reading struct {
	id    string
	voter bool
	clock log.Time
	// doubt is the greatest error of clock: half of the round trip in which it was read.
	doubt time.Duration
}

// Agreement is the agreed time, computed from the voters' clocks that this server knows.
// It goes on with the monotonic clock until the next Agreement.
type Agreement struct {
	taken time.Time // by the monotonic clock
	// clock is the agreed clock: the median of the voters' clocks, the lower one of the
	// middle two, so that no single clock moves it forward.
	clock log.Time
	known int // number of voters' clocks that were compared
	// Judged means that more than half of these clocks are within the bound of the agreed
	// clock. If not, as with two clocks that differ, it is unknown which one is right.
	Judged bool
	Bound  time.Duration
	// Differs is how far each server's clock is ahead of the agreed clock, and Doubts the
	// greatest error of that; by name.
	Differs, Doubts map[string]time.Duration
}

// agree compares clocks at one moment. own is this server's clock, which alone counts if
// no voter's clock is known.
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

// far reports whether a server's clock is known, and further from the agreed clock than
// the bound plus the error of its measurement.
func (a *Agreement) far(id string) bool {
	off, known := a.Differs[id]
	return known && off.Abs() > a.Bound+a.Doubts[id]
}

// Wrong reports whether a server's clock is far off, and a majority shows that.
func (a *Agreement) Wrong(id string) bool { return a.Judged && a.far(id) }

// Alone reports whether there was no clock of another voter to compare with.
func (a *Agreement) Alone() bool { return a.known <= 1 }

// At returns the agreed clock at a moment of the monotonic clock.
func (a *Agreement) At(now time.Time) log.Time { return a.clock + log.Time(now.Sub(a.taken)) }
