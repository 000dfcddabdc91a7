package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A disk may hang: an operation neither ends nor fails. Raft does not notice, since
// its heartbeats have goroutines of their own (SAFETY P6), so the store does:
// each operation on disk is noted while it is under way, and one that takes too
// long costs this server leadership and readiness, as long as it lasts. One that
// lasts for Config.DiskPatience ends the process, which cannot tell what is on disk.

const (
	// stallLook is the time between two looks at the operations under way.
	stallLook = 100 * time.Millisecond
	// stallLeast is the least time after which an operation counts as hanging:
	// a busy disk may take some 100 ms for a sync.
	stallLeast = time.Second
)

// ErrDiskHangs: an operation on this server's disk has been under way for so long
// that the disk must be taken for hanging. Ask another server.
var ErrDiskHangs = errors.New("raftstore: this server's disk hangs")

// stall is what the store knows of its hanging disk.
type stall struct {
	cause atomic.Pointer[error]  // nil: the disk does not hang
	age   atomic.Int64           // of the longest operation under way, ns
	count atomic.Uint64          // times that the disk began to hang
	heir  atomic.Pointer[string] // peer address of who leads instead, as the others say

	giving atomic.Bool // the leadership is being given up
	asked  int         // times that somebody was told to stand, this time
	left   atomic.Bool // the files were given up: Close leaves them open
}

// stalled says that the disk hangs, or nil.
func (d *diskWatch) stalled() error {
	return errorIn(&d.stall.cause)
}

// runStall watches the operations on disk until ctx is done.
func (d *diskWatch) runStall(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(stallLook)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case now := <-tick.C:
			passed := min(now.Sub(last), 2*stallLook)
			last = now
			d.lookAtDisk(ctx, r, passed)
		case <-ctx.Done():
			return
		}
	}
}

// lookAtDisk is one look.
func (d *diskWatch) lookAtDisk(ctx context.Context, r *raft.Raft, passed time.Duration) {
	what, weighed, age := d.ops.Look(passed)
	d.stall.age.Store(int64(age))
	switch {
	case weighed < d.store.cfg.DiskStall:
		d.becomeUnstalled()
	case age >= d.store.cfg.DiskPatience:
		d.store.fail(fmt.Errorf("%w: %s has been under way for %v, and so this server cannot tell what is on disk: see to the disk of %s (the kernel's log says more), then start the server again: it looks at what is there", ErrDiskHangs, what, age.Round(time.Second), d.store.cfg.Dir))
	default:
		d.becomeStalled(what, age)
		d.store.proposer.queue.Refuse(errNotLeader)
		d.store.proposer.aloft.GiveUp(fmt.Errorf("%w: the leader's disk hangs", ErrUnknown))
		d.giveUpLeading(ctx, r)
	}
}

func (d *diskWatch) becomeStalled(what string, age time.Duration) {
	err := fmt.Errorf("%w: %s is under way for %v", ErrDiskHangs, what, age.Round(100*time.Millisecond))
	if d.stall.cause.Swap(&err) != nil {
		return
	}
	d.stall.count.Add(1)
	d.stall.asked = 0
	d.store.logger.Error("the disk hangs: this server gives up the leadership, if it has it, and is not ready until the disk goes on", "operation", what, "for", age, "ends_after", d.store.cfg.DiskPatience)
	d.store.lead.leaderMayHaveMoved()
}

func (d *diskWatch) becomeUnstalled() {
	if d.stall.cause.Swap(nil) == nil {
		return
	}
	d.stall.heir.Store(nil)
	d.store.logger.Info("the disk goes on")
	d.store.lead.leaderMayHaveMoved()
}

// giveUpLeading has another voter stand for election, unless one was elected
// already; it waits for nothing of this server's disk. Raft's main goroutine may be
// stuck in a write, and then goes on as a leader for itself until that ends; but it
// gets nothing more, and what it has is told to nobody before it is on disk.
func (d *diskWatch) giveUpLeading(ctx context.Context, r *raft.Raft) {
	if !d.stall.giving.CompareAndSwap(false, true) {
		return
	}
	if !d.store.tasks.Start(func() {
		defer d.stall.giving.Store(false)
		d.findHeir(ctx, r)
	}) {
		d.stall.giving.Store(false)
	}
}

// findHeir looks who leads besides this server, and if nobody does, and this server
// did, tells the voter that has most of the log to stand; the next time the next.
func (d *diskWatch) findHeir(ctx context.Context, r *raft.Raft) {
	others := d.store.members.othersOf(ctx, r)
	term := r.CurrentTerm()
	for _, o := range others {
		if o.Leader != "" && o.Leader != d.store.address && o.Term >= term {
			if old := d.stall.heir.Swap(&o.Leader); old == nil || *old != o.Leader {
				d.store.lead.leaderMayHaveMoved()
			}
			return
		}
	}
	transport := d.store.transport.Load()
	if r.State() != raft.Leader || transport == nil {
		return
	}
	able := others[:0]
	for _, o := range others {
		// An older program does not tell who leads: to ask it again and again could
		// cost the new leader its place.
		if o.voter && !o.Stalled && (o.Term > 0 || d.stall.asked == 0) {
			able = append(able, o)
		}
	}
	if len(able) == 0 {
		return
	}
	sortByLog(able)
	heir := able[d.stall.asked%len(able)]
	d.stall.asked++
	d.store.logger.Warn("the disk hangs: another server is told to stand for election", "server", heir.ID, "its_index", heir.last())
	if err := transport.TimeoutNow(raft.ServerID(heir.ID), raft.ServerAddress(heir.address), d.store.lead.stand(transport), new(raft.TimeoutNowResponse)); err != nil {
		d.store.logger.Warn("it could not be told", "server", heir.ID, "error", err)
	}
	timer := time.NewTimer(handOverLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// leave ends what can be ended while the disk hangs: connections and ports, not
// the goroutines that wait for it.
func (r *run) leave(end context.CancelFunc) error {
	r.s.disks.stall.left.Store(true)
	go func() { _ = r.transport.Shutdown(r.raft) }() // what went wrong is known
	end()
	err := r.port.Close()
	r.s.tasks.HangUp()
	r.endDisk()
	return err
}
