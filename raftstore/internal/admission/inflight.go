package admission

import "sync"

// InFlight are the batches in raft. While raft itself is stuck, their proposers can be told
// that the fate of their changes is unknown.
type InFlight struct {
	mu      sync.Mutex
	batches map[*Proposal][]*Proposal // by the first of each
}

// Add adds a batch that is given to raft. It has at least one proposal.
func (a *InFlight) Add(batch []*Proposal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batches == nil {
		a.batches = make(map[*Proposal][]*Proposal)
	}
	a.batches[batch[0]] = batch
}

// Remove removes a batch whose proposers get their answers.
func (a *InFlight) Remove(batch []*Proposal) {
	a.mu.Lock()
	delete(a.batches, batch[0])
	a.mu.Unlock()
}

// GiveUp ends the proposals of all batches with err. A later answer of raft is dropped.
func (a *InFlight) GiveUp(err error) {
	a.mu.Lock()
	batches := a.batches
	a.batches = nil
	a.mu.Unlock()
	for _, batch := range batches {
		for _, p := range batch {
			p.Finish(Outcome{Err: err})
		}
	}
}

// Finish calls Done with the outcome of p, at its first call only.
func (p *Proposal) Finish(o Outcome) {
	if p.finished.CompareAndSwap(false, true) {
		p.Done(o)
	}
}

// Refuse refuses all waiting proposals with err; nothing of them was written.
func (q *Queue) Refuse(err error) {
	q.mu.Lock()
	waiting := q.waiting.all()
	q.mu.Unlock()
	for _, p := range waiting {
		p.Finish(Outcome{Err: err})
	}
}
