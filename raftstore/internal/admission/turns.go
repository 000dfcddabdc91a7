package admission

import (
	"fmt"

	"rutter/log"
)

// Turns of authors in the leader's queue: deficit round robin. Each author that
// waits may have turnCost taken in its turn, and what it did not use while a
// change was too large for it is kept for the next one, so that whoever floods the
// queue waits behind itself.
const (
	// turnCost is of a turn: 64 changes of one operation.
	turnCost = 64 << 10
	// OpCost is what an operation costs besides its bytes: deciding and applying it
	// takes about as long as writing as many bytes.
	OpCost = 512
)

// maxQueued and maxQueuedBytes bound the changes that wait for a batch. While half
// of that is free everybody may put more; then each author has its share of that
// half, by the number of those who wait.
const (
	maxQueued      = 1 << 15
	maxQueuedBytes = 64 << 20
)

// AuthorOf names whose account and whose turn a change has: a compute node by its
// certificate, others as the server that took the change named them.
func AuthorOf(c *log.Change) string {
	if c.By.Role == log.RoleCN {
		return "cn:" + c.By.CN.String()
	}
	return c.Actor
}

// waiters are the proposals of one author that wait, in order.
type waiters struct {
	author  string
	all     []*Proposal // from next on
	next    int
	bytes   int
	deficit int // what is left of its turn
	begun   bool
}

func (w *waiters) length() int { return len(w.all) - w.next }

// turns are the authors that have proposals waiting, in a circle. The zero value
// is empty. It belongs to the queue, whose lock protects it.
type turns struct {
	circle []*waiters
	at     int // whose turn it is
	of     map[string]*waiters
	count  int
	bytes  int
}

// put adds p, or says that there is no room for it: of all, or of its author's share.
func (t *turns) put(p *Proposal) error {
	w := t.of[p.Author]
	count, bytes := 0, 0
	if w != nil {
		count, bytes = w.length(), w.bytes
	}
	sharing := len(t.circle)
	if w == nil {
		sharing++
	}
	switch size := len(p.Bytes); {
	case t.count >= maxQueued || t.bytes+size > maxQueuedBytes:
		return fmt.Errorf("%w: %d of them, %d bytes", ErrOverloaded, t.count, t.bytes)
	case count == 0: // each has a place, as long as there is one
	case t.count >= maxQueued/2 && count >= maxQueued/2/sharing, t.bytes+size > maxQueuedBytes/2 && bytes+size > maxQueuedBytes/2/sharing:
		return fmt.Errorf("%w of %s: %d of them, %d bytes, which is its share beside %d others", ErrOverloaded, p.Author, count, bytes, sharing-1)
	}
	if w == nil {
		if t.of == nil {
			t.of = make(map[string]*waiters)
		}
		w = &waiters{author: p.Author}
		t.of[p.Author] = w
		t.circle = append(t.circle, w)
	}
	w.all = append(w.all, p)
	w.bytes += len(p.Bytes)
	t.count++
	t.bytes += len(p.Bytes)
	return nil
}

// take returns up to so many changes, and about so many bytes, in turn.
func (t *turns) take(changes, bytes int) []*Proposal {
	batch, size := make([]*Proposal, 0, min(changes, t.count)), 0
	for len(t.circle) > 0 && len(batch) < changes {
		w := t.circle[t.at]
		if !w.begun {
			w.begun = true
			w.deficit += turnCost
		}
		for w.length() > 0 && len(batch) < changes {
			p := w.all[w.next]
			if len(batch) > 0 && size+len(p.Bytes) > bytes {
				return batch // it is its turn still
			}
			if len(t.circle) > 1 { // one that waits alone has nobody to wait for
				if p.Cost > w.deficit {
					break
				}
				w.deficit -= p.Cost
			}
			batch, size = append(batch, p), size+len(p.Bytes)
			t.remove(w)
		}
		switch {
		case w.length() == 0:
			delete(t.of, w.author)
			t.circle = append(t.circle[:t.at], t.circle[t.at+1:]...)
		case len(batch) == changes:
			return batch
		default:
			w.begun = false
			t.at++
		}
		if t.at >= len(t.circle) {
			t.at = 0
		}
	}
	return batch
}

// remove takes the first of w's proposals away.
func (t *turns) remove(w *waiters) {
	p := w.all[w.next]
	w.all[w.next] = nil
	w.next++
	w.bytes -= len(p.Bytes)
	t.count--
	t.bytes -= len(p.Bytes)
	if w.next >= 64 && 2*w.next >= len(w.all) {
		w.all = append(w.all[:0], w.all[w.next:]...)
		w.next = 0
	}
}

// all takes everything.
func (t *turns) all() (all []*Proposal) {
	for _, w := range t.circle {
		all = append(all, w.all[w.next:]...)
	}
	*t = turns{}
	return all
}
