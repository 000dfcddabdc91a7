package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/window"
)

// phase is the phase of Run: opened → running → stopping → stopped.
type phase int32

const (
	opened phase = iota
	running
	stopping
	stopped
)

// leadership holds the phase of Run and the role of this server in the cluster, and
// changes both.
type leadership struct {
	store *Store
	phase atomic.Int32 // of Run
	role  atomic.Int32 // in the cluster
	ready atomic.Bool  // this server has caught up with a leader's commit once

	moveMu sync.Mutex
	moved  chan struct{} // closed and replaced when the leader may have changed
}

func (l *leadership) becomeRunning() bool {
	return l.phase.CompareAndSwap(int32(opened), int32(running))
}

func (l *leadership) becomeStopping() {
	l.phase.Store(int32(stopping))
	close(l.store.ending)
	l.leaderMayHaveMoved()
}

func (l *leadership) becomeStopped() {
	l.phase.Store(int32(stopped))
	l.leaderMayHaveMoved()
}

// stopCause returns nil until Run begins to stop; then ErrStopped, joined with the
// failure if there was one.
func (s *Store) stopCause() error {
	if err := s.failure(); err != nil {
		return errors.Join(ErrStopped, err)
	}
	select {
	case <-s.ending:
		return ErrStopped
	default:
		return nil
	}
}

// pause waits until the leader may have changed, or for retryPause. The error is that of
// ctx, or ErrStopped.
func (s *Store) pause(ctx context.Context, moved <-chan struct{}) error {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := s.stopCause(); err != nil {
		return err
	}
	return ctx.Err()
}

// role is the role of this server in the cluster: following ⇄ assuming → leading ⇄
// leaving.
type role int32

const (
	following role = iota
	// assuming: raft elected this server. It applies what its predecessors committed, and
	// gives the cluster its identity if there is none.
	assuming
	leading
	// leaving: it leads, but takes no new changes, because it is handing over.
	leaving
)

func (l *leadership) becomeRole(r role) {
	l.role.Store(int32(r))
	l.leaderMayHaveMoved()
}

// becomeLeaving returns the role before, and false if this server is leaving already. A
// server that was elected and could not take over may hand over too.
func (l *leadership) becomeLeaving() (was role, ok bool) {
	for {
		was = role(l.role.Load())
		if was == leaving {
			return was, false
		}
		if l.role.CompareAndSwap(int32(was), int32(leaving)) {
			return was, true
		}
	}
}

// becomeStaying returns to the role before, after a hand-over that failed.
func (l *leadership) becomeStaying(was role) {
	if l.role.CompareAndSwap(int32(leaving), int32(was)) {
		l.leaderMayHaveMoved()
	}
}

// leading reports whether this server takes changes.
func (l *leadership) leading() bool {
	return role(l.role.Load()) == leading && phase(l.phase.Load()) == running && l.store.Serving() == nil && l.store.disks.stalled() == nil
}

// leaderAddress returns the peer address of the leader, or "".
func (l *leadership) leaderAddress() string {
	r := l.store.raft.Load()
	if r == nil {
		return ""
	}
	address, _ := r.LeaderWithID()
	if successor := l.store.disks.stall.successor.Load(); successor != nil && l.store.disks.stalled() != nil {
		return *successor // raft may be stuck, and not know the new leader
	}
	return string(address)
}

// leaderMoved returns a channel that is closed when the leader may have changed.
func (l *leadership) leaderMoved() <-chan struct{} {
	l.moveMu.Lock()
	defer l.moveMu.Unlock()
	return l.moved
}

func (l *leadership) leaderMayHaveMoved() {
	l.moveMu.Lock()
	close(l.moved)
	l.moved = make(chan struct{})
	l.moveMu.Unlock()
}

const (
	// lagCheck is how often the leader checks its own disk. lagPatience is how many
	// checks in a row may find it too far behind before it hands the leadership on; it
	// returns ErrOverloaded all that time (SAFETY P2).
	lagCheck    = time.Second
	lagPatience = 5
	// observations is how many observations of raft may wait. More are dropped, which
	// does no harm: an observation only means "check again".
	observations = 16
)

// runLeadership follows elections until ctx is done.
func (l *leadership) runLeadership(ctx context.Context, r *raft.Raft) {
	seen := make(chan raft.Observation, observations)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.RegisterObserver(observer)
	defer r.DeregisterObserver(observer)
	check := time.NewTicker(lagCheck)
	defer check.Stop()
	late, offered := 0, time.Time{}
	for {
		select {
		case elected := <-r.LeaderCh():
			if !elected {
				l.becomeRole(following)
				l.store.logger.Info("no longer the leader")
				continue
			}
			l.takeOver(ctx, r)
		case <-seen:
			l.leaderMayHaveMoved()
		case <-check.C:
			if role(l.role.Load()) == following && r.State() == raft.Leader {
				l.takeOver(ctx, r) // the attempt after its election failed
			}
			late = l.checkDisk(ctx, r, late)
			l.checkServing(ctx, r)
			offered = l.store.times.checkClock(ctx, r, offered)
		case <-ctx.Done():
			return
		}
	}
}

// takeOver makes this server, which raft elected, lead. If that fails while raft still
// holds it for the leader, the next check tries again.
func (l *leadership) takeOver(ctx context.Context, r *raft.Raft) {
	l.becomeRole(assuming)
	err := l.assume(ctx, r)
	if err == nil {
		return
	}
	level := slog.LevelWarn
	if errors.Is(err, errHandedOn) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrRaftShutdown) {
		level = slog.LevelInfo // another server leads, or this one stops
	}
	l.store.logger.Log(ctx, level, "elected, but could not take over", "because", err)
	l.becomeRole(following)
}

// assume makes an elected leader one that takes changes.
func (l *leadership) assume(ctx context.Context, r *raft.Raft) error {
	if err := r.Barrier(enqueueTimeout).Error(); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if l.store.Head().Cluster.IsZero() {
		cluster := window.NewID(l.store.cfg.Now())
		future := r.Apply(command.EncodeGenesis(cluster, min(l.store.cfg.Features, log.FeatureVersion)), enqueueTimeout)
		if err := future.Error(); err != nil {
			return fmt.Errorf("give the cluster its identity: %w", err)
		}
		if err, failed := future.Response().(error); failed {
			return err
		}
		l.store.logger.Info("cluster founded", "cluster", l.store.Head().Cluster)
	}
	if err := l.store.times.assumeTime(ctx, r); err != nil {
		return err
	}
	l.becomeRole(leading)
	l.store.logger.Info("leader", "term", r.CurrentTerm(), "seq", l.store.Head().Seq)
	return nil
}

// checkDisk counts the checks in a row that found the leader's persister too far behind,
// and hands the leadership on at lagPatience.
func (l *leadership) checkDisk(ctx context.Context, r *raft.Raft, late int) int {
	if !l.leading() || !l.store.persister.Behind() {
		return 0
	}
	if late++; late < lagPatience {
		return late
	}
	l.store.logger.Warn("changes.db stays too far behind: giving the leadership away")
	if err := l.handOverToBest(ctx, r); err != nil {
		l.store.logger.Warn("no server took the leadership", "error", err)
	}
	return 0
}

// checkServing hands the leadership on if this server must not serve.
func (l *leadership) checkServing(ctx context.Context, r *raft.Raft) {
	err := l.store.Serving()
	if err == nil || r.State() != raft.Leader {
		return
	}
	l.store.logger.Warn("giving the leadership away", "because", err)
	if err := l.handOverToBest(ctx, r); err != nil {
		l.store.logger.Warn("no server took the leadership", "error", err)
	}
}

// handOver hands the leadership to another voter before a clean stop, so that clients do
// not wait for an election timeout.
func (l *leadership) handOver(r *raft.Raft) {
	if r.State() != raft.Leader {
		return
	}
	voters := 0
	for _, server := range r.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters < 2 {
		return
	}
	if l.store.disks.stalled() != nil {
		l.store.disks.findSuccessor(context.Background(), r)
		return
	}
	if err := l.handOverToBest(context.Background(), r); err != nil {
		// The others may be stopping as well; raft elects one if they are not.
		l.store.logger.Info("stopping without having handed the leadership over", "because", err)
	}
}

// runReady waits until this server has applied the leader's commit once, and then
// compares its state with the others before it counts as ready.
func (l *leadership) runReady(ctx context.Context, r *raft.Raft) {
	for l.store.stopCause() == nil && ctx.Err() == nil {
		moved := l.leaderMoved()
		seq, err := l.store.Consistent(ctx)
		if err != nil && l.store.Serving() != nil {
			_ = l.store.pause(ctx, moved)
		}
		if err == nil {
			l.store.comparison.compare(ctx, r)
			l.ready.Store(true)
			l.store.logger.Info("caught up with the cluster", "seq", seq)
			return
		}
	}
}
