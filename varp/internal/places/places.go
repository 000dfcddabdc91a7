// Package places has what a server of the shootdown log knows about how far a node has
// acknowledged: a Place, its bytes in a file and between servers, and the rule by which
// one server may rely on what a node acknowledged to another (Applied).
package places

import (
	"net/netip"
	"slices"
	"time"

	"rutter/log"
)

// MaxVNets bounds the vnets of a Place. A node on more of them is told all rows of the
// others after a restart.
const MaxVNets = 1024

// Place is what a node has acknowledged: whatever changed on VNets up to Seq.
type Place struct {
	CN    netip.Addr // its underlay address
	Node  log.UUID   // the node that had it
	Seq   log.Seq
	VNets []uint32 // ascending, at most MaxVNets
}

// Covers returns the seq up to which the node has a vnet; false if that is unknown, and
// for a nil Place.
func (p *Place) Covers(vnet uint32) (log.Seq, bool) {
	if p == nil {
		return 0, false
	}
	_, ok := slices.BinarySearch(p.VNets, vnet)
	return p.Seq, ok
}

// Includes reports whether p is of the same node as q, and has all of its vnets. A nil
// Place does not.
func (p *Place) Includes(q *Place) bool {
	if p == nil || p.Node != q.Node || len(q.VNets) == 0 {
		return false
	}
	for _, vnet := range q.VNets {
		if _, ok := p.Covers(vnet); !ok {
			return false
		}
	}
	return true
}

// Delivery is a group of records that a node was given: the highest seq among them, and
// when the first was given. The zero time is any time in the past.
type Delivery struct {
	Newest log.Seq
	At     time.Time
}

// maxDeliveries bounds Deliveries. The others ask every second, and a node asks every
// two.
const maxDeliveries = 8

// Deliveries are the deliveries to a node, the oldest first. The oldest ones are joined:
// that may ask for more than is needed, never for less.
type Deliveries []Delivery

// Add adds a delivery.
func (d *Deliveries) Add(newest log.Seq, at time.Time) {
	*d = append(*d, Delivery{newest, at})
	d.bound()
}

// bound joins the oldest two if there are too many.
func (d *Deliveries) bound() {
	list := *d
	if len(list) <= maxDeliveries {
		return
	}
	list[1].Newest = max(list[0].Newest, list[1].Newest)
	if list[0].At.Before(list[1].At) {
		list[1].At = list[0].At
	}
	*d = slices.Delete(list, 0, 1)
}

// Past adds that records up to newest were given at any time before: the node
// acknowledged them elsewhere.
func (d *Deliveries) Past(newest log.Seq) {
	for i := range *d {
		if one := &(*d)[i]; one.At.IsZero() {
			one.Newest = max(one.Newest, newest)
			return
		}
	}
	*d = slices.Insert(*d, 0, Delivery{Newest: newest})
	d.bound()
}

// Void removes the deliveries of records above from, up to and with to: all of them are
// given again.
func (d *Deliveries) Void(from, to log.Seq) {
	*d = slices.DeleteFunc(*d, func(one Delivery) bool { return from < one.Newest && one.Newest <= to })
}

// Claim is the place of a node that acknowledged to another server.
type Claim struct {
	Place
	Deliveries Deliveries
}

// sample is what was applied at a time.
type sample struct {
	at  time.Time
	seq log.Seq
}

// maxSamples bounds Applied.
const maxSamples = 1024

// Applied is how far this server had applied the log at each time since it began to
// answer. It has no clock: times are given, and only their order and distance counts.
//
// A node that is given a record asks again, perhaps this server. If this server had
// applied the change before the record was given, its answers were right. If it had
// not, its answer may have been old, so the record must come again from this server,
// whatever the node acknowledged to another one.
type Applied struct{ list []sample }

// Note records that everything up to seq was applied at a time, which must not be
// before that of the last call.
func (a *Applied) Note(at time.Time, seq log.Seq) {
	if n := len(a.list); n > 0 && a.list[n-1].seq >= seq {
		return
	}
	a.list = append(a.list, sample{at, seq})
	if len(a.list) > maxSamples {
		a.thin()
	}
}

// Unknown forgets everything: what was answered until now is not known.
func (a *Applied) Unknown() { a.list = []sample{{}} }

// thin keeps of the older half every second sample. The first stays: before it, this
// process answered nothing.
func (a *Applied) thin() {
	kept := a.list[:1]
	for i := 1; i < len(a.list); i++ {
		if i > len(a.list)/2 || i%2 == 0 {
			kept = append(kept, a.list[i])
		}
	}
	a.list = kept
}

// At returns a seq that was applied at a time, and at all later ones; 0 if nothing is
// known. That is so before the first time: an earlier process of this server may have
// answered then, and have lagged.
func (a *Applied) At(at time.Time) log.Seq {
	i, found := slices.BinarySearchFunc(a.list, at, func(s sample, at time.Time) int { return s.at.Compare(at) })
	switch {
	case found:
		return a.list[i].seq
	case i == 0:
		return 0
	}
	return a.list[i-1].seq
}

// First returns what was applied when this process began to answer; 0 if nothing is
// known.
func (a *Applied) First() log.Seq {
	if len(a.list) == 0 {
		return 0
	}
	return a.list[0].seq
}

// Accept returns how far this server may rely on a claim of a node that has everything
// up to has from it. If that is less than the claim, the records above it, up to and
// with again, must be given again.
func (a *Applied) Accept(has log.Seq, c *Claim) (seq, again log.Seq) {
	seq = c.Seq
	for _, d := range c.Deliveries {
		if d.Newest <= has {
			continue
		}
		if applied := a.At(d.At); applied < d.Newest {
			seq = min(seq, applied)
			if !d.At.IsZero() { // the other server gave it, and can give it again
				again = max(again, d.Newest)
			}
		}
	}
	if seq >= c.Seq {
		again = 0
	}
	return max(seq, has), again
}
