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
	// DefaultAge and DefaultCount are the bounds of what is remembered, unless others
	// are given.
	DefaultAge   = time.Hour
	DefaultCount = 200_000
	// MaxAhead is how far a change id's time may be ahead of the cluster's: what
	// clients' clocks are off by, and enough for them to say so.
	MaxAhead = time.Minute
	// maxLines bounds the authors of whom ids were forgotten by count within an
	// hour: more than compute nodes and operators of one cluster.
	maxLines = 1 << 14
	// maxLeaps bounds the leaps of time that can be taken back exactly.
	maxLeaps = 8
)

// Window remembers change ids and what became of them, so that a retry gets the
// first one's. It depends on nothing but the changes, their authors and the
// cluster's time, so it is the same on every server (SAFETY P5). It belongs to the
// goroutine of the FSM.
//
// An id is forgotten once the cluster's time is age after the time at which its
// change was applied. One that is not known is taken only if its own time is at
// most ahead after the cluster's, and at most age - ahead before it. So what was
// forgotten by age is refused: let t be the own time of an id that was applied at
// time a and forgotten at time n > a + age. It was taken at a, so t <= a + ahead,
// and t < n - age + ahead: it is before all that is taken at n, and at any time
// later than n. Whose clock made the id is not in the proof.
//
// If there are more than count, the author of the most loses the lowest id, and
// has a line there: ids of this author at or below it are refused, unless they are
// known. All that are known are above it: the lowest goes first. So it is exact,
// and it concerns this author alone. A line is not needed any more once all at or
// below it is before what is taken, which by the same proof is age after it was
// drawn at the latest.
//
// trimmed is the highest that was forgotten in another way than by count: as long as
// time does not go back it is before all that is taken, and when an operator sets it
// back, it refuses what the proof does no longer (TimeSetBack).
//
// Below log.FeatureContained all is of one author, an id is as old as it says, and
// what is forgotten is the lowest: trimmed refuses everybody, and clients' clocks
// decide how far it is. Ids of that time are of no author afterwards.
//
// A retry is rare, and a result as long as the change: they are in memory only
// until changes.db has them.
type Window struct {
	age       time.Duration
	ahead     time.Duration
	count     int
	contained bool // log.FeatureContained holds

	known   map[log.UUID]uint32 // places in ids
	ids     []Known
	unused  []uint32 // places in ids
	authors authors
	// now is the cluster's time, when it was last looked at.
	now log.Time

	fresh   []freshResult // those that may not be in changes.db, in the order in which they get there
	stored  uint64        // how many were fresh and are not any more
	trimmed log.UUID
	leaps   []Leap     // from the oldest; never altered, so that a head may share them
	sum     digest.Sum // of all hashes: of rows, lines and leaps

	changed Changes
}

// Changes is what changes.db has not been told of.
type Changes struct {
	forgotten []log.UUID
	lines     map[log.Asker]log.UUID // the zero id: there is none any more
}

// Known is what the window has of an id. It has no pointer: the garbage
// collector does not look at 200,000 of them.
type Known struct {
	id   log.UUID
	hash digest.Sum // Of(id, value)
	// place is the number of its fresh result, from 1, among all that ever were;
	// 0 if it was stored from the beginning.
	place   uint64
	applied log.Time
	author  uint32 // its place in authors
	at      uint32 // its place in the heap of its author
	// In the order of applied: two rings, which begin and end at byTime and later.
	prev, next uint32
}

// The first places in ids are ends of rings: of those applied until now, and of
// those that were applied at a time that is later than now is, since an operator
// set it back, since a client said so before log.FeatureContained, or as the ids of a
// skipped entry are.
const (
	byTime = iota
	later
	rings
)

// freshResult is the value of a row (Row) that is in changes.db once a
// raft index is.
type freshResult struct {
	index uint64
	value []byte
}

// Leap is a step of the cluster's time by more than age, at which all was forgotten.
type Leap struct {
	to log.Time // the time after it
	// trimmed is window.trimmed then; zero if nobody knows, for what was before
	// log.FeatureContained.
	trimmed log.UUID
}

// New returns an empty window that remembers up to count ids for age; trimmed is the
// highest id that was forgotten before.
func New(age time.Duration, count int, trimmed log.UUID) *Window {
	w := &Window{age: age, ahead: min(MaxAhead, age/2), count: count, known: make(map[log.UUID]uint32), trimmed: trimmed}
	w.ids = make([]Known, rings)
	w.closeRings()
	w.authors.places = make(map[log.Asker]uint32)
	w.changed.lines = make(map[log.Asker]log.UUID)
	return w
}

// Len is how many ids are remembered.
func (w *Window) Len() int { return len(w.known) }

// Digest is over everything that servers must agree on of the window.
func (w *Window) Digest() digest.Sum { return w.sum }

// Contained reports whether log.FeatureContained holds.
func (w *Window) Contained() bool { return w.contained }

// Trimmed is the highest id that was forgotten in another way than by count.
func (w *Window) Trimmed() log.UUID { return w.trimmed }

// Leaps are those of the time that can be taken back; they are never altered.
func (w *Window) Leaps() []Leap { return w.leaps }

// Lines is how many authors have a line.
func (w *Window) Lines() int { return w.authors.lines() }

// Known returns what is remembered of an id; nil if it is not known.
func (w *Window) Known(id log.UUID) *Known {
	if at, ok := w.known[id]; ok {
		return &w.ids[at]
	}
	return nil
}

// Is reports whether a value is that which is remembered.
func (r *Known) Is(value []byte) bool { return digest.Of(r.id[:], value) == r.hash }

func (w *Window) closeRings() {
	for end := range uint32(rings) {
		w.ids[end].prev, w.ids[end].next = end, end
	}
}

// Add remembers a row's value for id, which raft's entry at index has.
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

func (w *Window) remember(id log.UUID, value []byte, place uint64) {
	row := OpenRow(id, value)
	r := Known{id: id, hash: digest.Of(id[:], value), place: place, applied: row.Applied, author: w.authorOf(row.Asker)}
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

// link puts an id at the end of a ring.
func (w *Window) link(at, ring uint32) {
	last := w.ids[ring].prev
	w.ids[at].prev, w.ids[at].next = last, ring
	w.ids[last].next, w.ids[ring].prev = at, at
}

// putLater moves the newest id to where it belongs among those of a later time: few,
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

// arrange puts all ids into the rings where they belong at time now.
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

// Result returns the value of an id that is remembered, if it is still here.
func (w *Window) Result(r *Known) (value []byte, ok bool) {
	if r.place <= w.stored {
		return nil, false
	}
	return w.fresh[r.place-w.stored-1].value, true
}

// Settle lets go of the results that are in changes.db, which has all up to a raft index.
func (w *Window) Settle(stored uint64) {
	n := 0
	for n < len(w.fresh) && w.fresh[n].index <= stored {
		n++
	}
	w.fresh = slices.Delete(w.fresh, 0, n)
	w.stored += uint64(n)
}

// Advance forgets what is too old at time now.
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
	for w.authors.lines() > 0 {
		line := w.authors.lowestLine()
		if !w.before(line, now) {
			break
		}
		w.dropLine(line)
	}
	if before != 0 && now-before > log.Time(w.age) && len(w.known)+w.authors.lines() == 0 {
		leaps := append(slices.Clone(w.leaps), Leap{now, w.trimmed})
		w.setLeaps(leaps[max(0, len(leaps)-maxLeaps):])
	}
}

// advanceFirst is advance below log.FeatureContained.
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

// forgetOne makes room: the author of the most ids loses the lowest.
func (w *Window) forgetOne() {
	author := w.authors.largest()
	key := w.authors.all[author].key
	id := w.forget(w.lowestOf(author))
	if key == (log.Asker{}) {
		w.trim(id) // whose it is is not known: it could be anybody's
		return
	}
	w.drawLine(key, id)
	for w.authors.lines() > maxLines {
		w.dropLine(w.authors.lowestLine())
	}
}

// dropLine does without a line: what is at or below it is refused to everybody.
func (w *Window) dropLine(line log.UUID) {
	w.drawLine(w.authors.all[w.authors.byLine[0]].key, log.UUID{})
	w.trim(line)
}

func (w *Window) trim(id log.UUID) {
	if bytes.Compare(id[:], w.trimmed[:]) > 0 {
		w.trimmed = id
	}
}

// forget takes an id out of the window.
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

// before reports whether an id is too old to be taken at a time.
func (w *Window) before(id log.UUID, now log.Time) bool {
	return TimeOf(id) < now-log.Time(w.age-w.ahead)
}

// BecomeContained begins with the rules of log.FeatureContained: ids of before are
// of no author, and as old as they say.
func (w *Window) BecomeContained(now log.Time) {
	w.contained = true
	w.arrange(now)
	w.setLeaps([]Leap{{to: now}})
}

// TimeSetBack is told that the cluster's time was set back: the proof that what was
// forgotten is refused holds while it grows only.
//
// Ids stay remembered until the time is age after they were applied, which now is
// later; what was forgotten is at or below a line or trimmed, which stay. Where the
// time is taken back over a leap, as from a clock that was a year ahead, that would
// refuse everybody for a year. What was taken after such a leap has own times of a
// time that is not there any more, and is refused as being ahead: it is forgotten,
// lines too, and trimmed is what it was at the leap. When time comes there again, an
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
		for w.authors.lines() > 0 {
			w.dropLine(w.authors.lowestLine())
		}
		if !l.trimmed.IsZero() {
			w.trimmed = l.trimmed
		}
		// Nobody may know it, and that of a later leap, if the first was dropped, is too
		// high. What is above this is refused as being ahead.
		if last := lastOf(to + log.Time(w.ahead)); bytes.Compare(w.trimmed[:], last[:]) > 0 {
			w.trimmed = last
		}
		break
	}
	// What is applied now is from before the leaps that are after it: they do not say
	// any more of what time the ids are that the window remembers.
	n := 0
	for n < len(w.leaps) && w.leaps[n].to <= to {
		n++
	}
	w.setLeaps(w.leaps[:n:n])
	w.arrange(to)
}

// lastOf is the highest id of a time.
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

// TakeChanges returns what changes.db is to be told of.
func (w *Window) TakeChanges() Changes {
	c := w.changed
	w.changed.forgotten = nil
	if len(c.lines) == 0 {
		c.lines = nil // the persister reads what it gets while the next entry is applied
	} else {
		w.changed.lines = make(map[log.Asker]log.UUID)
	}
	return c
}
