package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// commitPause is the least time between two transactions of the cache. The cache
	// may lag: a restart gets what is missing from the servers.
	commitPause = 25 * time.Millisecond
	// cursorEvery is how often the cursor is saved while nothing else changes.
	cursorEvery = time.Second
	// failurePause is the time before a failed transaction is tried again.
	failurePause = time.Second
	// maxWaiting is how many rows may wait for the disk before the follower
	// waits as well: about a third of a second of a fast catch-up.
	maxWaiting = 1 << 16
	// hangTime is the duration of a transaction after which the disk is reported as
	// hanging. Slow transactions take less than 1 s; one that the kernel gives up takes
	// 30 s.
	hangTime = 5 * time.Second
	// maxUnkept is how many rows may wait while the cache cannot be written. If there
	// are more, they are dropped, and the complete file is written when the disk
	// accepts it.
	maxUnkept = 1 << 20
)

// persister writes the replica's changes to the cache. A transaction has what came
// during the last one, so the disk sets the pace, and the kernel waits for no disk.
type persister struct {
	replica *replica
	cache   *cache
	logger  *slog.Logger

	mu      sync.Mutex // protects what follows
	commits uint64
	failed  uint64        // transactions
	failure error         // of the last transaction
	began   time.Time     // of the one that runs; zero: none runs
	kept    chan struct{} // closed after each transaction, and replaced
	head    head          // as last written
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
			_ = p.commit() // the error was noted; the next start asks the servers
			return nil
		case <-p.replica.dirtied:
		case <-tick.C:
		}
		pause := commitPause
		if err := p.commit(); err != nil {
			pause = failurePause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// commit writes the waiting rows, if there are any.
func (p *persister) commit() error {
	p.begin(time.Now())
	defer p.begin(time.Time{})
	if p.replica.isUnjudged() {
		return nil
	}
	if due, now := p.replica.isFullWriteDue(); p.cache.isGone() || due {
		return p.rewrite(due, now)
	}
	_, owes := p.cache.pendingNumbers()
	b, ok := p.replica.take()
	if !ok {
		return nil
	}
	if b.rows() == 0 && b.Head == p.lastHead() && !owes {
		return nil
	}
	return p.write(b)
}

// rewrite writes the complete cache, as soon as there is room and everything held is as
// of one bookmark.
func (p *persister) rewrite(due, now bool) error {
	if !due {
		p.replica.needFullWrite()
		_, now = p.replica.isFullWriteDue()
	}
	if err := p.cache.Probe(); err != nil {
		p.note(err, head{})
		return err
	}
	if !now {
		return nil
	}
	b, ok := p.replica.take()
	if !ok || !b.Full {
		return nil
	}
	return p.write(b)
}

func (p *persister) write(b batch) error {
	err := p.cache.Commit(&b)
	waiting := 0
	if err != nil {
		waiting = p.replica.giveBack(b)
	}
	if err == nil {
		p.replica.answers.keep(b.Pos)
	}
	p.note(err, b.Head)
	if waiting > maxUnkept {
		p.replica.needFullWrite()
	}
	return err
}

func (p *persister) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = now
}

// trouble returns why the disk does not accept writes: it failed, or it has hung for a
// while. The caller holds the lock.
func (p *persister) trouble() error {
	if hung := time.Since(p.began); !p.began.IsZero() && hung > hangTime {
		return fmt.Errorf("the disk hangs: a transaction has not ended for %s", hung.Truncate(time.Second))
	}
	return p.failure
}

func (p *persister) lastHead() head {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head
}

// note records the result of a transaction, and wakes callers that wait for room.
func (p *persister) note(err error, kept head) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.failure == nil:
		p.logger.Error("cache cannot be written: working from memory", "error", err)
	case err == nil && p.failure != nil:
		p.logger.Info("cache can be written again")
	}
	p.failure = err
	if err == nil {
		p.commits++
		p.head = kept
	} else {
		p.failed++
	}
	close(p.kept)
	p.kept = make(chan struct{})
}

// room blocks while too many rows wait for a disk that works, or until done is closed.
func (p *persister) room(done <-chan struct{}) {
	for {
		p.mu.Lock()
		kept, failure := p.kept, p.trouble()
		p.mu.Unlock()
		if failure != nil || p.replica.waiting() <= maxWaiting || p.replica.isUnjudged() {
			return
		}
		select {
		case <-kept:
		case <-done:
			return
		case <-time.After(hangTime): // the disk may hang
		}
	}
}

func (p *persister) status() CacheStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := CacheStatus{Commits: p.commits, Failures: p.failed}
	if err := p.trouble(); err != nil {
		s.Failure = err.Error()
	}
	return s
}
