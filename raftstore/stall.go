package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A disk may hang: an operation neither ends nor fails. Raft does not notice that,
// because its heartbeats have goroutines of their own (SAFETY P6). So the store watches
// each operation on disk. During an operation that takes too long, this server gives up
// leadership and readiness. An operation that lasts for Config.DiskPatience ends the
// process, because it is unknown what is on disk.

const (
	// stallCheckEvery is the time between two checks of the operations under way.
	stallCheckEvery = 100 * time.Millisecond
	// stallLeast is the least time after which an operation counts as hanging. A busy
	// disk may take some 100 ms for a sync.
	stallLeast = time.Second
)

// ErrDiskHangs: an operation on this server's disk has taken so long that the disk counts
// as hanging. Use another server.
var ErrDiskHangs = errors.New("raftstore: this server's disk hangs")

// stall holds what the store knows about a hanging disk.
type stall struct {
	cause     atomic.Pointer[error]  // nil: the disk does not hang
	age       atomic.Int64           // of the longest operation under way, ns
	count     atomic.Uint64          // times that the disk began to hang
	successor atomic.Pointer[string] // peer address of the server that leads instead, as the others report

	giving atomic.Bool // the leadership is being handed on
	asked  int         // requests to stand for election, during the present stall
	left   atomic.Bool // the files were abandoned: Close leaves them open
}

// stalled returns an error while the disk hangs, else nil.
func (d *diskWatch) stalled() error {
	return errorIn(&d.stall.cause)
}

// runStall watches the operations on disk until ctx is done.
func (d *diskWatch) runStall(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(stallCheckEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case now := <-tick.C:
			passed := min(now.Sub(last), 2*stallCheckEvery)
			last = now
			d.checkOperations(ctx, r, passed)
		case <-ctx.Done():
			return
		}
	}
}

// checkOperations checks the operations once.
func (d *diskWatch) checkOperations(ctx context.Context, r *raft.Raft, passed time.Duration) {
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
		d.store.proposer.inFlight.GiveUp(fmt.Errorf("%w: the leader's disk hangs", ErrUnknown))
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
	d.stall.successor.Store(nil)
	d.store.logger.Info("the disk goes on")
	d.store.lead.leaderMayHaveMoved()
}

// giveUpLeading requests another voter to stand for election, unless one was already
// elected. It does not wait for this server's disk. Raft's main goroutine may be stuck in
// a write, and then still holds this server for the leader until the write ends. But it
// gets no new changes, and acknowledges none before they are on disk.
func (d *diskWatch) giveUpLeading(ctx context.Context, r *raft.Raft) {
	if !d.stall.giving.CompareAndSwap(false, true) {
		return
	}
	if !d.store.tasks.Start(func() {
		defer d.stall.giving.Store(false)
		d.findSuccessor(ctx, r)
	}) {
		d.stall.giving.Store(false)
	}
}

// findSuccessor looks for another server that leads. If there is none, and this server led, it
// requests the voter that has most of the log to stand for election; at the next call the
// next voter.
func (d *diskWatch) findSuccessor(ctx context.Context, r *raft.Raft) {
	others := d.store.members.reports(ctx, r)
	term := r.CurrentTerm()
	for _, o := range others {
		if o.Leader != "" && o.Leader != d.store.address && o.Term >= term {
			if old := d.stall.successor.Swap(&o.Leader); old == nil || *old != o.Leader {
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
		// An older program does not report the leader. It is requested only once, because
		// a second election could depose the new leader.
		if o.voter && !o.Stalled && (o.Term > 0 || d.stall.asked == 0) {
			able = append(able, o)
		}
	}
	if len(able) == 0 {
		return
	}
	sortByLog(able)
	next := able[d.stall.asked%len(able)]
	d.stall.asked++
	d.store.logger.Warn("the disk hangs: another server is requested to stand for election", "server", next.ID, "its_index", next.last())
	if err := transport.TimeoutNow(raft.ServerID(next.ID), raft.ServerAddress(next.address), d.store.lead.stand(transport), new(raft.TimeoutNowResponse)); err != nil {
		d.store.logger.Warn("the request failed", "server", next.ID, "error", err)
	}
	timer := time.NewTimer(handOverLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// leave ends what can be ended while the disk hangs: connections and ports, but not the
// goroutines that wait for the disk.
func (r *run) leave(end context.CancelFunc) error {
	r.s.disks.stall.left.Store(true)
	go func() { // it ends with the process, or when the disk goes on before that
		_ = r.transport.Shutdown(r.raft) // the cause is already known
		r.s.tasks.Stop()
		<-r.persisted
		_ = errors.Join(r.s.raftLog.Close(), r.s.files.Close()) // raft-wal has a goroutine
	}()
	end()
	err := r.port.Close()
	r.s.tasks.HangUp()
	r.endDisk()
	return err
}
