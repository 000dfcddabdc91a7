package admission

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"rutter/log"
	"rutter/raftstore/internal/notify"
)

const (
	// maxBatchChanges and maxBatchBytes bound one raft entry.
	maxBatchChanges = 1024
	maxBatchBytes   = 1 << 20
	// MaxInFlight is how many batches are in raft at once. pipelineFrom is how many changes
	// must wait before a second batch is sent: with few writers, one batch in flight
	// gives larger batches (docs/peers.md section 3).
	MaxInFlight  = 2
	pipelineFrom = 128
)

// Proposal is a change that the leader processes.
type Proposal struct {
	Bytes   []byte
	Stretch uint64 // the stretch of the log's time in which it was stamped: see Queue.StretchNow
	Author  string // AuthorOf the change
	Cost    int    // of its author's turn: its bytes, and OpCost for each operation
	// Done is called once with the outcome, and must not wait: one goroutine calls it for
	// all changes of a batch.
	Done     func(Outcome)
	finished atomic.Bool // Done was called: see Tell
	// Over is set for a change that sets the log's time. It is called when raft has
	// answered, which may be after Done: see GiveUp.
	Over func()
}

// Outcome is the result of a change, or its error.
type Outcome struct {
	Result log.Result
	Err    error
}

// Queue holds the waiting proposals. The proposer takes a batch as soon as fewer than
// MaxInFlight are in raft, so a batch grows only while the one before it is in raft. One
// writer never waits; many writers share a batch, each author in its turn.
type Queue struct {
	kick chan struct{}
	// stretch counts the changes that set the log's time. A change that was stamped
	// before one of them is not queued behind it. It changes under mu.
	stretch atomic.Uint64

	mu      sync.Mutex
	waiting roundRobin
	flying  int
	closed  error // the error of all proposals after the proposer has ended
}

// Errors for proposals that the queue does not take; nothing was written.
var (
	// ErrOverloaded: a queue is full. Retry later.
	ErrOverloaded = errors.New("raftstore: too many changes are waiting")
	// ErrNotLeader: this server is not the leader (docs/safety.md, P3).
	ErrNotLeader = errors.New("raftstore: not the leader")
)

// errTimeSet: the log's time was set after the change was stamped. Nothing was written,
// and the change is stamped anew.
var errTimeSet = fmt.Errorf("%w: the log's time was set meanwhile", ErrNotLeader)

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{kick: make(chan struct{}, 1)} }

// Kicks is readable when a batch may be ready to be taken.
func (q *Queue) Kicks() <-chan struct{} { return q.kick }

// StretchNow returns the number of the present stretch of the log's time, for
// Proposal.Stretch.
func (q *Queue) StretchNow() uint64 { return q.stretch.Load() }

// Answer makes Put return err from now on; nil ends that.
func (q *Queue) Answer(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = err
}

// Put adds p. After an error nothing was written.
func (q *Queue) Put(p *Proposal) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(p)
}

// PutMend is Put for a change that sets the log's time. Because authors take turns,
// waiting changes could come behind it: they are refused, and their proposers try again.
func (q *Queue) PutMend(p *Proposal) error {
	q.mu.Lock()
	waiting := q.waiting.all()
	p.Stretch = q.stretch.Load()
	err := q.add(p)
	if err == nil {
		q.stretch.Add(1)
	}
	q.mu.Unlock()
	for _, w := range waiting {
		w.Finish(Outcome{Err: errTimeSet})
	}
	return err
}

// add is Put under the lock.
func (q *Queue) add(p *Proposal) error {
	if q.closed != nil {
		return q.closed
	}
	if p.Stretch != q.stretch.Load() {
		return errTimeSet
	}
	if err := q.waiting.put(p); err != nil {
		return err
	}
	notify.Send(q.kick)
	return nil
}

// Take returns the next batch, or nil if no batch may be sent now.
func (q *Queue) Take() []*Proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.count == 0 || q.flying >= MaxInFlight || q.flying > 0 && q.waiting.count < pipelineFrom {
		return nil
	}
	q.flying++
	return q.waiting.take(maxBatchChanges, maxBatchBytes)
}

// BatchDone notes that raft has answered a batch, so that the next one may be sent.
func (q *Queue) BatchDone() {
	q.mu.Lock()
	q.flying--
	q.mu.Unlock()
	notify.Send(q.kick)
}

// Close refuses all waiting and all later proposals with err; nothing of them was
// written.
func (q *Queue) Close(err error) {
	q.Answer(err)
	q.Refuse(err)
}

// Idle reports whether nothing waits and nothing is in raft.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.count == 0 && q.flying == 0
}

// Length returns the number of waiting proposals.
func (q *Queue) Length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.count
}
