package admission

import "sync"

// Aloft are the batches that are in raft, so that their proposers can be told
// that nobody knows what becomes of them while raft itself is stuck.
type Aloft struct {
	mu      sync.Mutex
	batches map[*Proposal][]*Proposal // by the first of each
}

// Add notes a batch that is given to raft; it has one proposal at least.
func (a *Aloft) Add(batch []*Proposal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batches == nil {
		a.batches = make(map[*Proposal][]*Proposal)
	}
	a.batches[batch[0]] = batch
}

// Remove forgets a batch, whose proposers are told.
func (a *Aloft) Remove(batch []*Proposal) {
	a.mu.Lock()
	delete(a.batches, batch[0])
	a.mu.Unlock()
}

// GiveUp tells the proposers of all batches err; what raft says later is told to
// nobody.
func (a *Aloft) GiveUp(err error) {
	a.mu.Lock()
	batches := a.batches
	a.batches = nil
	a.mu.Unlock()
	for _, batch := range batches {
		for _, p := range batch {
			p.Tell(Outcome{Err: err})
		}
	}
}

// Tell tells the proposer what became of p, the first time that it is called.
func (p *Proposal) Tell(o Outcome) {
	if p.told.CompareAndSwap(false, true) {
		p.Done(o)
	}
}

// Refuse refuses what waits in the queue; nothing of it was written.
func (q *Queue) Refuse(err error) {
	q.mu.Lock()
	waiting := q.waiting.all()
	q.mu.Unlock()
	for _, p := range waiting {
		p.Tell(Outcome{Err: err})
	}
}
