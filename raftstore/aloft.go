package raftstore

import "sync"

// aloft are the batches that are in raft, so that their proposers can be told
// that nobody knows what becomes of them while raft itself is stuck.
type aloft struct {
	mu      sync.Mutex
	batches map[*proposal][]*proposal // by the first of each
}

func (a *aloft) add(batch []*proposal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batches == nil {
		a.batches = make(map[*proposal][]*proposal)
	}
	a.batches[batch[0]] = batch
}

func (a *aloft) remove(batch []*proposal) {
	a.mu.Lock()
	delete(a.batches, batch[0])
	a.mu.Unlock()
}

// giveUp tells the proposers of all batches err; what raft says later is told to
// nobody.
func (a *aloft) giveUp(err error) {
	a.mu.Lock()
	batches := a.batches
	a.batches = nil
	a.mu.Unlock()
	for _, batch := range batches {
		for _, p := range batch {
			p.tell(outcome{err: err})
		}
	}
}

// tell tells the proposer what became of p, the first time that it is called.
func (p *proposal) tell(o outcome) {
	if p.told.CompareAndSwap(false, true) {
		p.done(o)
	}
}

// refuse refuses what waits in the queue; nothing of it was written.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	waiting := q.waiting.all()
	q.mu.Unlock()
	for _, p := range waiting {
		p.tell(outcome{err: err})
	}
}
