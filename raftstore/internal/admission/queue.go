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
	// MaxFlying is how many batches are on their way through raft at once, and
	// pipelineFrom how many changes must wait for a second one to pay: with
	// few writers one in flight gives the larger batches (docs/peers.md section 3).
	MaxFlying    = 2
	pipelineFrom = 128
)

// Proposal is a change on its way through the leader.
type Proposal struct {
	Bytes   []byte
	Stretch uint64 // of the log's time in which it was stamped: see queue.stretch
	Author  string // AuthorOf the change
	Cost    int    // in its author's turn: bytes, and OpCost for each operation
	// Done is told once what became of it, and never waits: all of a batch's
	// are told by one goroutine.
	Done func(Outcome)
	told atomic.Bool // done was called: see tell
	// Over, of a change that sets the log's time, is called when raft has said what
	// became of it, which done may have been told before: see GiveUp.
	Over func()
}

// Outcome is what became of a change.
type Outcome struct {
	Result log.Result
	Err    error
}

// Queue holds the proposals that wait. The proposer takes a batch as soon as
// one may fly, so that a batch grows just as long as the one before it flies:
// one writer never waits, many share, each author in its turn.
type Queue struct {
	kick chan struct{}
	// stretch counts the changes that set the log's time; what was stamped before
	// one of them does not come behind it. It changes under mu.
	stretch atomic.Uint64

	mu      sync.Mutex
	waiting turns
	flying  int
	closed  error // what proposals get once the proposer has ended
}

// Errors of what the queue does not take; nothing was written.
var (
	// ErrOverloaded: a queue is full. Retry later.
	ErrOverloaded = errors.New("raftstore: too many changes are waiting")
	// ErrNotLeader: this server is not the leader (docs/safety.md, P3).
	ErrNotLeader = errors.New("raftstore: not the leader")
)

// errTimeSet: the log's time was set after the change was stamped. Nothing was
// written, and it is stamped anew.
var errTimeSet = fmt.Errorf("%w: the log's time was set meanwhile", ErrNotLeader)

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{kick: make(chan struct{}, 1)} }

// Kicks is readable when a batch may be ready to be taken.
func (q *Queue) Kicks() <-chan struct{} { return q.kick }

// StretchNow counts the changes that have set the log's time: see proposal.stretch.
func (q *Queue) StretchNow() uint64 { return q.stretch.Load() }

// Answer makes put answer err from now on; nil ends that.
func (q *Queue) Answer(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = err
}

// Put adds p, or says why not; then nothing was written.
func (q *Queue) Put(p *Proposal) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(p)
}

// PutMend is put for a change that sets the log's time. Authors take turns, so what
// waits could come behind it: it is refused, and whoever proposed it tries again.
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
		w.Tell(Outcome{Err: errTimeSet})
	}
	return err
}

// add is put under the lock.
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

// Take returns the next batch, or nil if none may fly now.
func (q *Queue) Take() []*Proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.count == 0 || q.flying >= MaxFlying || q.flying > 0 && q.waiting.count < pipelineFrom {
		return nil
	}
	q.flying++
	return q.waiting.take(maxBatchChanges, maxBatchBytes)
}

// Landed makes room for the next batch.
func (q *Queue) Landed() {
	q.mu.Lock()
	q.flying--
	q.mu.Unlock()
	notify.Send(q.kick)
}

// Close refuses what waits and what comes; nothing of it was written.
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

// Length is how many proposals wait.
func (q *Queue) Length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.count
}
