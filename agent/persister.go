package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// commitPause is the least time between two transactions of the cache. The
	// cache may lag: a restart takes up what it misses from the servers.
	commitPause = 25 * time.Millisecond
	// cursorEvery is how often the cursor is kept while only it moves.
	cursorEvery = time.Second
	// failurePause is the time until a failed transaction is tried again.
	failurePause = time.Second
	// maxWaiting is how many rows may wait for the disk before the follower
	// waits as well: about a third of a second of a fast catch-up.
	maxWaiting = 1 << 16
	// maxUnkept is how many rows may wait while the cache cannot be written.
	maxUnkept = 1 << 20
)

// errUnkept ends the agent: it can neither keep rows nor go on collecting them.
var errUnkept = errors.New("agent: the cache could not be written for too long: make room, or see to the disk")

// persister brings the replica's changes into the cache. A transaction is as
// large as what came during the last one, so the disk sets the pace, and the
// kernel waits for no disk.
type persister struct {
	replica *replica
	cache   *cache
	logger  *slog.Logger

	mu      sync.Mutex // protects what follows
	commits uint64
	failure error         // of the last transaction
	kept    chan struct{} // closed after each transaction, and replaced
	head    head          // as last kept
}

func newPersister(r *replica, c *cache, logger *slog.Logger) *persister {
	return &persister{replica: r, cache: c, logger: logger, kept: make(chan struct{})}
}

// Run writes until ctx ends, and then once more.
func (p *persister) Run(ctx context.Context) error {
	tick := time.NewTicker(cursorEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.commit()
		case <-p.replica.dirtied:
		case <-tick.C:
		}
		pause := commitPause
		if err := p.commit(); errors.Is(err, errUnkept) {
			return err
		} else if err != nil {
			pause = failurePause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// commit keeps what waits, if anything does.
func (p *persister) commit() error {
	b := p.replica.take()
	if b.rows() == 0 && b.Head == p.lastHead() {
		return nil
	}
	err := p.cache.Commit(&b)
	waiting := 0
	if err != nil {
		waiting = p.replica.giveBack(b)
	}
	if err == nil {
		p.replica.told.keep(b.Pos)
	}
	p.note(err, b.Head)
	if waiting > maxUnkept {
		return fmt.Errorf("%w: %d rows wait: %w", errUnkept, waiting, err)
	}
	return err
}

func (p *persister) lastHead() head {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head
}

// note remembers how a transaction went, and wakes who waits for room.
func (p *persister) note(err error, kept head) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.failure == nil:
		p.logger.Error("cache cannot be written: going on in memory", "error", err)
	case err == nil && p.failure != nil:
		p.logger.Info("cache can be written again")
	}
	p.failure = err
	if err == nil {
		p.commits++
		p.head = kept
	}
	close(p.kept)
	p.kept = make(chan struct{})
}

// room blocks while too many rows wait for a disk that works, or until done is closed.
func (p *persister) room(done <-chan struct{}) {
	for {
		p.mu.Lock()
		kept, failure := p.kept, p.failure
		p.mu.Unlock()
		if failure != nil || p.replica.waiting() <= maxWaiting {
			return
		}
		select {
		case <-kept:
		case <-done:
			return
		}
	}
}
