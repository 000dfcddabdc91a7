package window

import (
	"bytes"

	"rutter/log"
	"rutter/raftstore/internal/digest"
)

// authors are the authors whose ids the window remembers, or that have a low-water mark.
// The author without a name has the ids from before log.FeatureContained.
type authors struct {
	indexes   map[log.Asker]uint32
	all       []author
	unused    []uint32 // unused indexes of all
	byMost    []uint32 // a heap: first is the author of the most ids; among equals the lowest key
	byLowMark []uint32 // a heap of the authors with a low-water mark: the lowest is first
}

type author struct {
	key       log.Asker
	ids       []uint32 // a heap of indexes in Window.ids: the lowest id is first
	lowMark   log.UUID // an unknown id at or below it is refused; zero if there is none
	atMost    uint32   // index in byMost
	atLowMark uint32   // index in byLowMark, if the author has a low-water mark
}

func (a *authors) lowMarks() int        { return len(a.byLowMark) }
func (a *authors) lowestMark() log.UUID { return a.all[a.byLowMark[0]].lowMark }
func (a *authors) largest() uint32      { return a.byMost[0] }

// authorOf returns the index of an author, and adds the author if it is new.
func (w *Window) authorOf(key log.Asker) uint32 {
	a := &w.authors
	if at, ok := a.indexes[key]; ok {
		return at
	}
	at := uint32(len(a.all))
	if n := len(a.unused); n > 0 {
		at, a.unused = a.unused[n-1], a.unused[:n-1]
		a.all[at] = author{key: key}
	} else {
		a.all = append(a.all, author{key: key})
	}
	a.indexes[key] = at
	a.byMost = heapPush(a.byMost, mostFirst{a}, at)
	return at
}

// lowMarkOf returns the low-water mark of an author; the zero id if there is none.
func (w *Window) lowMarkOf(key log.Asker) (mark log.UUID) {
	if at, ok := w.authors.indexes[key]; ok {
		mark = w.authors.all[at].lowMark
	}
	return mark
}

// setLowMark sets the low-water mark of an author; the zero id removes it.
func (w *Window) setLowMark(key log.Asker, mark log.UUID) {
	a := &w.authors
	at := w.authorOf(key)
	one := &a.all[at]
	if !one.lowMark.IsZero() {
		w.sum.Sub(digest.Of(key[:], one.lowMark[:]))
		a.byLowMark = heapRemove(a.byLowMark, lowMarkFirst{a}, one.atLowMark)
	}
	if one.lowMark = mark; !mark.IsZero() {
		w.sum.Add(digest.Of(key[:], mark[:]))
		a.byLowMark = heapPush(a.byLowMark, lowMarkFirst{a}, at)
	}
	w.changed.lowMarks[key] = mark
	w.drop(at)
}

// push adds an id to those of its author.
func (w *Window) push(at uint32) {
	author := w.ids[at].author
	one := &w.authors.all[author]
	one.ids = heapPush(one.ids, lowestFirst{w}, at)
	heapMend(w.authors.byMost, mostFirst{&w.authors}, one.atMost)
}

// remove takes an id from those of its author.
func (w *Window) remove(at uint32) {
	author := w.ids[at].author
	one := &w.authors.all[author]
	one.ids = heapRemove(one.ids, lowestFirst{w}, w.ids[at].at)
	heapMend(w.authors.byMost, mostFirst{&w.authors}, one.atMost)
	w.drop(author)
}

// drop removes an author without ids and without a low-water mark.
func (w *Window) drop(at uint32) {
	a := &w.authors
	one := &a.all[at]
	if len(one.ids) > 0 || !one.lowMark.IsZero() {
		return
	}
	a.byMost = heapRemove(a.byMost, mostFirst{a}, one.atMost)
	delete(a.indexes, one.key)
	*one = author{}
	a.unused = append(a.unused, at)
}

// lowestOf returns the index of an author's lowest id.
func (w *Window) lowestOf(author uint32) uint32 { return w.authors.all[author].ids[0] }

// order is the order of a heap of numbers. moved is called with each new position of a
// number.
type order interface {
	less(a, b uint32) bool
	moved(one, to uint32)
}

// lowestFirst is the order of the ids of an author.
type lowestFirst struct{ w *Window }

func (o lowestFirst) less(a, b uint32) bool {
	return bytes.Compare(o.w.ids[a].id[:], o.w.ids[b].id[:]) < 0
}
func (o lowestFirst) moved(one, to uint32) { o.w.ids[one].at = to }

// mostFirst is the order of authors by how many ids they have.
type mostFirst struct{ a *authors }

func (o mostFirst) less(a, b uint32) bool {
	x, y := &o.a.all[a], &o.a.all[b]
	if len(x.ids) != len(y.ids) {
		return len(x.ids) > len(y.ids)
	}
	return bytes.Compare(x.key[:], y.key[:]) < 0
}
func (o mostFirst) moved(one, to uint32) { o.a.all[one].atMost = to }

// lowMarkFirst is the order of authors by their low-water marks.
type lowMarkFirst struct{ a *authors }

func (o lowMarkFirst) less(a, b uint32) bool {
	x, y := &o.a.all[a], &o.a.all[b]
	if c := bytes.Compare(x.lowMark[:], y.lowMark[:]); c != 0 {
		return c < 0
	}
	return bytes.Compare(x.key[:], y.key[:]) < 0
}
func (o lowMarkFirst) moved(one, to uint32) { o.a.all[one].atLowMark = to }

// The heaps are binary: no element comes before its parent, at half its index.

func heapPush[O order](h []uint32, o O, one uint32) []uint32 {
	h = append(h, one)
	o.moved(one, uint32(len(h)-1))
	heapMend(h, o, uint32(len(h)-1))
	return h
}

func heapRemove[O order](h []uint32, o O, at uint32) []uint32 {
	last := uint32(len(h) - 1)
	h[at] = h[last]
	h = h[:last]
	if at < last {
		o.moved(h[at], at)
		heapMend(h, o, at)
	}
	return h
}

// heapMend restores the order of a heap after the element at an index has changed.
func heapMend[O order](h []uint32, o O, at uint32) {
	for i := at; i > 0; {
		parent := (i - 1) / 2
		if !o.less(h[i], h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		o.moved(h[i], i)
		o.moved(h[parent], parent)
		i = parent
		at = i
	}
	for n := uint32(len(h)); ; {
		first := at
		for child := 2*at + 1; child <= 2*at+2 && child < n; child++ {
			if o.less(h[child], h[first]) {
				first = child
			}
		}
		if first == at {
			return
		}
		h[at], h[first] = h[first], h[at]
		o.moved(h[at], at)
		o.moved(h[first], first)
		at = first
	}
}
