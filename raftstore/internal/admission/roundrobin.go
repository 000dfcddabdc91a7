package admission

import (
	"fmt"

	"rutter/log"
)

// Turns of authors in the leader's queue: deficit round robin. In its turn each waiting
// author may use quantum. If its next change is too large, the rest is kept for its next
// turn. So an author that floods the queue waits only behind itself.
const (
	// quantum is the cost that an author may use in one turn: 64 changes of one
	// operation.
	quantum = 64 << 10
	// OpCost is the cost of an operation besides its bytes, in bytes: deciding and
	// applying it takes about as long as writing so many bytes.
	OpCost = 512
)

// maxQueued and maxQueuedBytes bound the changes that wait for a batch. While half of
// that is free, any author may add more. Beyond it, each waiting author has an equal
// share of the other half.
const (
	maxQueued      = 1 << 15
	maxQueuedBytes = 64 << 20
)

// AuthorOf returns the author whose account and turn a change uses: a compute node by its
// certificate, others by the name that the server which took the change gave them.
func AuthorOf(c *log.Change) string {
	if c.By.Role == log.RoleCN {
		return "cn:" + c.By.CN.String()
	}
	return c.Actor
}

// waiters are the waiting proposals of one author, in order.
type waiters struct {
	author  string
	all     []*Proposal // from next on
	next    int
	bytes   int
	deficit int // cost that is left of its turn
	begun   bool
}

func (w *waiters) length() int { return len(w.all) - w.next }

// roundRobin is the circle of the authors that have waiting proposals. The zero value is
// empty. The lock of the queue protects it.
type roundRobin struct {
	circle []*waiters
	at     int // index of the author whose turn it is
	of     map[string]*waiters
	count  int
	bytes  int
}

// put adds p, or returns an error if the queue or its author's share is full.
func (t *roundRobin) put(p *Proposal) error {
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
	case count == 0: // each author may have one change, as long as the queue is not full
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

// take returns up to changes proposals, and about bytes bytes, author by author.
func (t *roundRobin) take(changes, bytes int) []*Proposal {
	batch, size := make([]*Proposal, 0, min(changes, t.count)), 0
	for len(t.circle) > 0 && len(batch) < changes {
		w := t.circle[t.at]
		if !w.begun {
			w.begun = true
			w.deficit += quantum
		}
		for w.length() > 0 && len(batch) < changes {
			p := w.all[w.next]
			if len(batch) > 0 && size+len(p.Bytes) > bytes {
				return batch // it is still this author's turn
			}
			if len(t.circle) > 1 { // a single author has no other to wait for
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

// remove removes the first of w's proposals.
func (t *roundRobin) remove(w *waiters) {
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

// all removes and returns everything.
func (t *roundRobin) all() (all []*Proposal) {
	for _, w := range t.circle {
		all = append(all, w.all[w.next:]...)
	}
	*t = roundRobin{}
	return all
}
