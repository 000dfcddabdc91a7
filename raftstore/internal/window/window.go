package window

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/digest"
)

const (
	// DefaultAge and DefaultCount are the default bounds of what is remembered.
	DefaultAge   = time.Hour
	DefaultCount = 200_000
	// MaxAhead is how far the time in a change id may be ahead of the cluster's time:
	// more than clients' clocks are usually off.
	MaxAhead = time.Minute
	// maxLowMarks bounds the authors with a low-water mark, of whom ids were forgotten by
	// count within an hour: more than a cluster has compute nodes and operators.
	maxLowMarks = 1 << 14
	// maxLeaps bounds the remembered leaps of time, which can be taken back exactly.
	maxLeaps = 8
)

// Window remembers change ids and their results, so that a retry gets the first result.
// It depends only on the changes, their authors and the cluster's time, so it is the same
// on every server (SAFETY P5). It belongs to the goroutine of the FSM.
//
// An id is forgotten once the cluster's time is age after the time at which its change
// was applied. An unknown id is taken only if its own time is at most ahead after the
// cluster's time, and at most age - ahead before it. So an id that was forgotten by age
// is refused. Proof: let t be the own time of an id that was applied at time a and
// forgotten at time n > a + age. It was taken at a, so t <= a + ahead, and t < n - age +
// ahead: it is before all ids that are taken at n, or later. The proof does not depend on
// the clock that made the id.
//
// If there are more than count ids, the author with the most ids loses its lowest id,
// which becomes the author's low-water mark: unknown ids of this author at or below it
// are refused. All known ids of the author are above it, because the lowest goes first.
// So the mark is exact, and concerns only this author. A mark is no longer needed once
// all ids at or below it are too old to be taken. By the same proof that is at the latest
// age after the mark was set.
//
// trimmed is the highest id that was forgotten in another way than by count. As long as
// time does not go back, it is before all ids that are taken. If an operator sets the
// time back, it refuses the ids that the proof no longer covers (TimeSetBack).
//
// Below log.FeatureContained there is only one author, an id is as old as the time in it,
// and the lowest id is forgotten: trimmed concerns all clients, and their clocks decide
// how far it moves. Ids from that time later belong to the author without a name.
//
// A retry is rare, and a result is as long as its change. So results are in memory only
// until changes.db has them.
type Window struct {
	age       time.Duration
	ahead     time.Duration
	count     int
	contained bool // log.FeatureContained holds

	known   map[log.UUID]uint32 // indexes in ids
	ids     []Known
	unused  []uint32 // indexes in ids
	authors authors
	// now is the cluster's time at the last Advance.
	now log.Time

	fresh   []freshResult // results that may not be in changes.db yet, in the order in which they get there
	stored  uint64        // how many results were fresh before and no longer are
	trimmed log.UUID
	leaps   []Leap     // oldest first; never altered, so that a head may share them
	sum     digest.Sum // sum of all hashes: of rows, low-water marks and leaps

	changed Changes
}

// Changes are the changes of the window that are not yet handed to changes.db.
type Changes struct {
	forgotten []log.UUID
	lowMarks  map[log.Asker]log.UUID // low-water marks; the zero id: removed
}

// Known is what the window has of an id. It has no pointers, so that the garbage
// collector does not scan 200,000 of them.
type Known struct {
	id   log.UUID
	hash digest.Sum // Of(id, value)
	// number is the number of its fresh result, counted from 1 over the life of the
	// window; 0 if the result was loaded from changes.db.
	number  uint64
	applied log.Time
	author  uint32 // index in authors
	at      uint32 // index in the heap of its author
	// Links in the order of applied: two rings, which begin and end at byTime and later.
	prev, next uint32
}

// The first indexes in ids are the ends of two rings: byTime has the ids applied up to
// now; later has the ids applied at a time after now. The latter exist if an operator
// set the time back, if a client's clock was ahead before log.FeatureContained, or if an
// entry was skipped.
const (
	byTime = iota
	later
	rings
)

// freshResult is the value of a row (Row), which is in changes.db as soon as the entry of
// a raft index is.
type freshResult struct {
	index uint64
	value []byte
}

// Leap is a step of the cluster's time by more than age, at which all was forgotten.
type Leap struct {
	to log.Time // the time after it
	// trimmed is Window.trimmed before the leap; zero if it is unknown, for a leap from
	// before log.FeatureContained.
	trimmed log.UUID
}

// New returns an empty window that remembers up to count ids for the time age. trimmed is
// the highest id that was forgotten before.
func New(age time.Duration, count int, trimmed log.UUID) *Window {
	w := &Window{age: age, ahead: min(MaxAhead, age/2), count: count, known: make(map[log.UUID]uint32), trimmed: trimmed}
	w.ids = make([]Known, rings)
	w.closeRings()
	w.authors.indexes = make(map[log.Asker]uint32)
	w.changed.lowMarks = make(map[log.Asker]log.UUID)
	return w
}

// Len returns the number of remembered ids.
func (w *Window) Len() int { return len(w.known) }

// Digest returns the digest of everything in the window that servers must agree on.
func (w *Window) Digest() digest.Sum { return w.sum }

// Contained reports whether log.FeatureContained holds.
func (w *Window) Contained() bool { return w.contained }

// Trimmed returns the highest id that was forgotten in another way than by count.
func (w *Window) Trimmed() log.UUID { return w.trimmed }

// Leaps returns the leaps of time that can be taken back. The slice is never altered.
func (w *Window) Leaps() []Leap { return w.leaps }

// LowMarks returns the number of authors that have a low-water mark.
func (w *Window) LowMarks() int { return w.authors.lowMarks() }

// Known returns what is remembered of an id; nil if it is not known.
func (w *Window) Known(id log.UUID) *Known {
	if at, ok := w.known[id]; ok {
		return &w.ids[at]
	}
	return nil
}

// Is reports whether a value is the remembered one.
func (r *Known) Is(value []byte) bool { return digest.Of(r.id[:], value) == r.hash }

func (w *Window) closeRings() {
	for end := range uint32(rings) {
		w.ids[end].prev, w.ids[end].next = end, end
	}
}

// Add remembers a row's value for id, from the raft entry at index.
func (w *Window) Add(id log.UUID, value []byte, index uint64) {
	w.fresh = append(w.fresh, freshResult{index, value})
	w.remember(id, value, w.stored+uint64(len(w.fresh)))
	if at := w.known[id]; w.contained && w.ids[at].applied > w.now {
		w.putLater(at)
	}
	for len(w.known) > w.count {
		w.forgetOne()
	}
}

func (w *Window) remember(id log.UUID, value []byte, number uint64) {
	row := OpenRow(id, value)
	r := Known{id: id, hash: digest.Of(id[:], value), number: number, applied: row.Applied, author: w.authorOf(row.Asker)}
	at := uint32(len(w.ids))
	if n := len(w.unused); n > 0 {
		at, w.unused = w.unused[n-1], w.unused[:n-1]
		w.ids[at] = r
	} else {
		w.ids = append(w.ids, r)
	}
	w.known[id] = at
	w.sum.Add(r.hash)
	w.link(at, byTime)
	w.push(at)
}

// link adds an id at the end of a ring.
func (w *Window) link(at, ring uint32) {
	last := w.ids[ring].prev
	w.ids[at].prev, w.ids[at].next = last, ring
	w.ids[last].next, w.ids[ring].prev = at, at
}

// putLater moves the newest id to its position in the ring later. Such ids are few, such
// as those of a skipped entry (skipChange).
func (w *Window) putLater(at uint32) {
	one := &w.ids[at]
	w.ids[one.prev].next, w.ids[one.next].prev = one.next, one.prev
	after := w.ids[later].prev
	for after != later && w.ids[after].applied > one.applied {
		after = w.ids[after].prev
	}
	next := w.ids[after].next
	one.prev, one.next = after, next
	w.ids[after].next, w.ids[next].prev = at, at
}

// arrange puts all ids into their rings, for the time now.
func (w *Window) arrange(now log.Time) {
	all := make([]uint32, 0, len(w.known))
	for _, at := range w.known { // sorted below
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b uint32) int {
		x, y := &w.ids[a], &w.ids[b]
		return cmp.Or(cmp.Compare(x.applied, y.applied), x.id.Compare(y.id))
	})
	w.closeRings()
	for _, at := range all {
		ring := uint32(byTime)
		if w.ids[at].applied > now {
			ring = later
		}
		w.link(at, ring)
	}
	w.now = now
}

// Result returns the value of a remembered id, if it is still in memory.
func (w *Window) Result(r *Known) (value []byte, ok bool) {
	if r.number <= w.stored {
		return nil, false
	}
	return w.fresh[r.number-w.stored-1].value, true
}

// Settle drops the results that are in changes.db, which has everything up to the raft
// index stored.
func (w *Window) Settle(stored uint64) {
	n := 0
	for n < len(w.fresh) && w.fresh[n].index <= stored {
		n++
	}
	w.fresh = slices.Delete(w.fresh, 0, n)
	w.stored += uint64(n)
}

// Advance sets the time, and forgets the ids that are too old then.
func (w *Window) Advance(now log.Time) {
	if !w.contained {
		w.advanceFirst(now)
		return
	}
	before := w.now
	w.now = now
	oldest := now - log.Time(w.age)
	for ring := range uint32(rings) {
		for at := w.ids[ring].next; at != ring && w.ids[at].applied < oldest; at = w.ids[ring].next {
			w.trim(w.forget(at))
		}
	}
	for w.authors.lowMarks() > 0 {
		mark := w.authors.lowestMark()
		if !w.before(mark, now) {
			break
		}
		w.dropLowMark(mark)
	}
	if before != 0 && now-before > log.Time(w.age) && len(w.known)+w.authors.lowMarks() == 0 {
		leaps := append(slices.Clone(w.leaps), Leap{now, w.trimmed})
		w.setLeaps(leaps[max(0, len(leaps)-maxLeaps):])
	}
}

// advanceFirst is Advance below log.FeatureContained.
func (w *Window) advanceFirst(now log.Time) {
	w.now = now
	oldest := (int64(now) - int64(w.age)) / int64(time.Millisecond)
	for len(w.known) > 0 {
		at := w.lowestOf(w.authors.largest())
		if ms, _ := w.ids[at].id.UnixMilli(); ms >= oldest {
			return
		}
		w.trim(w.forget(at))
	}
}

// forgetOne forgets one id: the author with the most ids loses its lowest.
func (w *Window) forgetOne() {
	author := w.authors.largest()
	key := w.authors.all[author].key
	id := w.forget(w.lowestOf(author))
	if key == (log.Asker{}) {
		w.trim(id) // its author is not known: it could be any author
		return
	}
	w.setLowMark(key, id)
	for w.authors.lowMarks() > maxLowMarks {
		w.dropLowMark(w.authors.lowestMark())
	}
}

// dropLowMark replaces a low-water mark by trimmed: ids at or below it are refused to all
// authors.
func (w *Window) dropLowMark(mark log.UUID) {
	w.setLowMark(w.authors.all[w.authors.byLowMark[0]].key, log.UUID{})
	w.trim(mark)
}

func (w *Window) trim(id log.UUID) {
	if bytes.Compare(id[:], w.trimmed[:]) > 0 {
		w.trimmed = id
	}
}

// forget removes an id from the window.
func (w *Window) forget(at uint32) log.UUID {
	r := w.ids[at]
	w.ids[r.prev].next, w.ids[r.next].prev = r.next, r.prev
	w.remove(at)
	w.sum.Sub(r.hash)
	delete(w.known, r.id)
	w.ids[at] = Known{}
	w.unused = append(w.unused, at)
	w.changed.forgotten = append(w.changed.forgotten, r.id)
	return r.id
}

// before reports whether an id is too old to be taken at the time now.
func (w *Window) before(id log.UUID, now log.Time) bool {
	return TimeOf(id) < now-log.Time(w.age-w.ahead)
}

// BecomeContained switches to the rules of log.FeatureContained. Earlier ids have no
// author, and are as old as the time in them.
func (w *Window) BecomeContained(now log.Time) {
	w.contained = true
	w.arrange(now)
	w.setLeaps([]Leap{{to: now}})
}

// TimeSetBack must be called when the cluster's time was set back, because the proof that
// forgotten ids are refused holds only while time grows.
//
// Ids stay remembered until the time is age after they were applied, which is now later.
// Forgotten ids are at or below a low-water mark or trimmed, which stay. If the time is
// set back over a leap, as after a clock that was a year ahead, that would refuse all
// clients for a year. Ids taken after such a leap have own times that are now in the
// future, and are refused as being ahead. So they are forgotten, and the low-water marks
// too, and trimmed gets its value from the leap. When time reaches that point again, an
// id from then would be taken as new.
func (w *Window) TimeSetBack(to log.Time) {
	for _, l := range w.leaps {
		if l.to-to <= log.Time(w.age+w.ahead) {
			continue
		}
		for ring := range uint32(rings) {
			for at := w.ids[ring].next; at != ring; at = w.ids[ring].next {
				w.forget(at)
			}
		}
		for w.authors.lowMarks() > 0 {
			w.dropLowMark(w.authors.lowestMark())
		}
		if !l.trimmed.IsZero() {
			w.trimmed = l.trimmed
		}
		// trimmed may be unknown, or that of a later leap if the first was dropped, and
		// then is too high. Ids above this bound are refused as being ahead.
		if last := lastOf(to + log.Time(w.ahead)); bytes.Compare(w.trimmed[:], last[:]) > 0 {
			w.trimmed = last
		}
		break
	}
	// Changes applied from now on are before the later leaps. So these leaps no longer
	// tell to which time the remembered ids belong, and are dropped.
	n := 0
	for n < len(w.leaps) && w.leaps[n].to <= to {
		n++
	}
	w.setLeaps(w.leaps[:n:n])
	w.arrange(to)
}

// lastOf returns the highest id of a time.
func lastOf(at log.Time) log.UUID {
	ms := uint64(max(at, 0)) / uint64(time.Millisecond)
	var id log.UUID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	for i := 6; i < len(id); i++ {
		id[i] = math.MaxUint8
	}
	return id
}

func (w *Window) setLeaps(leaps []Leap) {
	w.sum.Sub(leapsHash(w.leaps))
	w.leaps = leaps
	w.sum.Add(leapsHash(w.leaps))
}

// TakeChanges returns the changes to write to changes.db, and begins anew.
func (w *Window) TakeChanges() Changes {
	c := w.changed
	w.changed.forgotten = nil
	if len(c.lowMarks) == 0 {
		c.lowMarks = nil // the persister reads the map while the next entry is applied
	} else {
		w.changed.lowMarks = make(map[log.Asker]log.UUID)
	}
	return c
}
