package window

import (
	"bytes"

	"rutter/log"
	"rutter/raftstore/internal/digest"
)

// authors are those whose ids the window remembers, or of whom it has a line. The
// one of no name is of the ids that were remembered before authors were.
type authors struct {
	places map[log.Asker]uint32
	all    []author
	unused []uint32 // places in all
	byMost []uint32 // a heap: first is the author of the most ids, of those the lowest key
	byLine []uint32 // a heap of those that have a line: first is the lowest line
}

type author struct {
	key    log.Asker
	ids    []uint32 // a heap of places in window.ids: first is the lowest id
	line   log.UUID // at or below it an id that is not known is refused; zero if there is none
	atMost uint32   // its place in byMost
	atLine uint32   // its place in byLine, if it has a line
}

func (a *authors) lines() int           { return len(a.byLine) }
func (a *authors) lowestLine() log.UUID { return a.all[a.byLine[0]].line }
func (a *authors) largest() uint32      { return a.byMost[0] }

// AuthorOf returns an author's place, which is made if there is none.
func (w *Window) authorOf(key log.Asker) uint32 {
	a := &w.authors
	if at, ok := a.places[key]; ok {
		return at
	}
	at := uint32(len(a.all))
	if n := len(a.unused); n > 0 {
		at, a.unused = a.unused[n-1], a.unused[:n-1]
		a.all[at] = author{key: key}
	} else {
		a.all = append(a.all, author{key: key})
	}
	a.places[key] = at
	a.byMost = heapPush(a.byMost, mostFirst{a}, at)
	return at
}

// lineOf returns an author's line; the zero id if there is none.
func (w *Window) lineOf(key log.Asker) (line log.UUID) {
	if at, ok := w.authors.places[key]; ok {
		line = w.authors.all[at].line
	}
	return line
}

// drawLine gives an author a line; the zero id takes it away.
func (w *Window) drawLine(key log.Asker, line log.UUID) {
	a := &w.authors
	at := w.authorOf(key)
	one := &a.all[at]
	if !one.line.IsZero() {
		w.sum.Sub(digest.Of(key[:], one.line[:]))
		a.byLine = heapRemove(a.byLine, lineFirst{a}, one.atLine)
	}
	if one.line = line; !line.IsZero() {
		w.sum.Add(digest.Of(key[:], line[:]))
		a.byLine = heapPush(a.byLine, lineFirst{a}, at)
	}
	w.changed.lines[key] = line
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

// drop forgets an author of whom there is nothing.
func (w *Window) drop(at uint32) {
	a := &w.authors
	one := &a.all[at]
	if len(one.ids) > 0 || !one.line.IsZero() {
		return
	}
	a.byMost = heapRemove(a.byMost, mostFirst{a}, one.atMost)
	delete(a.places, one.key)
	*one = author{}
	a.unused = append(a.unused, at)
}

// lowestOf returns the place of an author's lowest id.
func (w *Window) lowestOf(author uint32) uint32 { return w.authors.all[author].ids[0] }

// order says which of two numbers in a heap comes first, and keeps where each is.
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

// lineFirst is the order of authors by their lines.
type lineFirst struct{ a *authors }

func (o lineFirst) less(a, b uint32) bool {
	x, y := &o.a.all[a], &o.a.all[b]
	if c := bytes.Compare(x.line[:], y.line[:]); c != 0 {
		return c < 0
	}
	return bytes.Compare(x.key[:], y.key[:]) < 0
}
func (o lineFirst) moved(one, to uint32) { o.a.all[one].atLine = to }

// A heap is binary: nothing comes before what is at half its place.

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

// heapMend brings what stands at a place, and may not belong there, where it does.
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
