package raftstore

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
	// maxFlying is how many batches are on their way through raft at once, and
	// pipelineFrom how many changes must wait for a second one to pay: with
	// few writers one in flight gives the larger batches (shared/PEERS.md §3).
	maxFlying    = 2
	pipelineFrom = 128
)

// proposal is a change on its way through the leader.
type proposal struct {
	bytes   []byte
	stretch uint64 // of the log's time in which it was stamped: see queue.stretch
	author  string // authorOf the change
	cost    int    // in its author's turn: bytes, and opCost for each operation
	// done is told once what became of it, and never waits: all of a batch's
	// are told by one goroutine.
	done func(outcome)
	told atomic.Bool // done was called: see tell
	// over, of a change that sets the log's time, is called when raft has said what
	// became of it, which done may have been told before: see giveUp.
	over func()
}

type outcome struct {
	result log.Result
	err    error
}

// queue holds the proposals that wait. The proposer takes a batch as soon as
// one may fly, so that a batch grows just as long as the one before it flies:
// one writer never waits, many share, each author in its turn.
type queue struct {
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
	// errOverloaded: a queue is full. Retry later.
	errOverloaded = errors.New("raftstore: too many changes are waiting")
	// errNotTaken: this server is not the leader (docs/safety.md, P3).
	errNotTaken = errors.New("raftstore: not the leader")
)

// errTimeSet: the log's time was set after the change was stamped. Nothing was
// written, and it is stamped anew.
var errTimeSet = fmt.Errorf("%w: the log's time was set meanwhile", errNotTaken)

// newQueue returns an empty queue.
func newQueue() *queue { return &queue{kick: make(chan struct{}, 1)} }

// kicks is readable when a batch may be ready to be taken.
func (q *queue) kicks() <-chan struct{} { return q.kick }

// stretchNow counts the changes that have set the log's time: see proposal.stretch.
func (q *queue) stretchNow() uint64 { return q.stretch.Load() }

// answer makes put answer err from now on; nil ends that.
func (q *queue) answer(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = err
}

// put adds p, or says why not; then nothing was written.
func (q *queue) put(p *proposal) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(p)
}

// putMend is put for a change that sets the log's time. Authors take turns, so what
// waits could come behind it: it is refused, and whoever proposed it tries again.
func (q *queue) putMend(p *proposal) error {
	q.mu.Lock()
	waiting := q.waiting.all()
	p.stretch = q.stretch.Load()
	err := q.add(p)
	if err == nil {
		q.stretch.Add(1)
	}
	q.mu.Unlock()
	for _, w := range waiting {
		w.tell(outcome{err: errTimeSet})
	}
	return err
}

// add is put under the lock.
func (q *queue) add(p *proposal) error {
	if q.closed != nil {
		return q.closed
	}
	if p.stretch != q.stretch.Load() {
		return errTimeSet
	}
	if err := q.waiting.put(p); err != nil {
		return err
	}
	notify.Send(q.kick)
	return nil
}

// take returns the next batch, or nil if none may fly now.
func (q *queue) take() []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.count == 0 || q.flying >= maxFlying || q.flying > 0 && q.waiting.count < pipelineFrom {
		return nil
	}
	q.flying++
	return q.waiting.take(maxBatchChanges, maxBatchBytes)
}

// landed makes room for the next batch.
func (q *queue) landed() {
	q.mu.Lock()
	q.flying--
	q.mu.Unlock()
	notify.Send(q.kick)
}

// close refuses what waits and what comes; nothing of it was written.
func (q *queue) close(err error) {
	q.answer(err)
	q.refuse(err)
}

// idle reports whether nothing waits and nothing is in raft.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.count == 0 && q.flying == 0
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.count
}
