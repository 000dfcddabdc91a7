package agent

import (
	"context"
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
	// hangTime is after how long of a transaction the disk is said to hang: slow ones
	// take less than a second, and one that is given up by the kernel, 30 s.
	hangTime = 5 * time.Second
	// maxUnkept is how many rows may wait while the cache cannot be written. More
	// are dropped, and the file is written whole when the disk takes it.
	maxUnkept = 1 << 20
)

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
	began   time.Time     // of the one that is under way; zero: none is
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
			_ = p.commit() // it was noted; the next start asks the servers
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

// commit keeps what waits, if anything does.
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

// rewrite has the cache written whole, as soon as there is room and all is at one place.
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

// trouble returns why the disk does not take what it is given: it failed, or it has
// hung for a while. The caller holds the lock.
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
		kept, failure := p.kept, p.trouble()
		p.mu.Unlock()
		if failure != nil || p.replica.waiting() <= maxWaiting || p.replica.isUnjudged() {
			return
		}
		select {
		case <-kept:
		case <-done:
			return
		case <-time.After(hangTime): // it may hang
		}
	}
}

func (p *persister) status() CacheStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := CacheStatus{Commits: p.commits}
	if err := p.trouble(); err != nil {
		s.Failure = err.Error()
	}
	return s
}
