package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/window"
)

// phase is where Run is: opened → running → stopping → stopped.
type phase int32

const (
	opened phase = iota
	running
	stopping
	stopped
)

func (s *Store) becomeRunning() bool {
	return s.phase.CompareAndSwap(int32(opened), int32(running))
}

func (s *Store) becomeStopping() {
	s.phase.Store(int32(stopping))
	close(s.ending)
	s.leaderMayHaveMoved()
}

func (s *Store) becomeStopped() {
	s.phase.Store(int32(stopped))
	s.leaderMayHaveMoved()
}

// stopCause returns ErrStopped, with the failure if there was one, once Run has
// begun to stop.
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

// pause waits until the leader may have changed, or for a moment. The error is
// that of ctx, or ErrStopped.
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

// role is this server's in the cluster: following ⇄ assuming → leading ⇄ leaving.
type role int32

const (
	following role = iota
	// assuming: raft made it the leader; what its predecessors committed is
	// being applied, and the cluster gets its identity if it has none.
	assuming
	leading
	// leaving: it leads, and takes nothing new, since it is handing over.
	leaving
)

func (s *Store) becomeRole(r role) {
	s.role.Store(int32(r))
	s.leaderMayHaveMoved()
}

// becomeLeaving returns what this server was, and false if it is leaving already.
// One that was elected and could not take over may hand over as well.
func (s *Store) becomeLeaving() (was role, ok bool) {
	for {
		was = role(s.role.Load())
		if was == leaving {
			return was, false
		}
		if s.role.CompareAndSwap(int32(was), int32(leaving)) {
			return was, true
		}
	}
}

// becomeStaying ends a leaving that led nowhere.
func (s *Store) becomeStaying(was role) {
	if s.role.CompareAndSwap(int32(leaving), int32(was)) {
		s.leaderMayHaveMoved()
	}
}

// leading reports whether this server takes changes.
func (s *Store) leading() bool {
	return role(s.role.Load()) == leading && phase(s.phase.Load()) == running && s.Serving() == nil && s.stalled() == nil
}

// leaderAddress returns the peer address of the leader, or "".
func (s *Store) leaderAddress() string {
	r := s.raft.Load()
	if r == nil {
		return ""
	}
	address, _ := r.LeaderWithID()
	if heir := s.stall.heir.Load(); heir != nil && s.stalled() != nil {
		return *heir // raft may be stuck, and not have heard of it
	}
	return string(address)
}

// leaderMoved returns a channel that is closed when the leader may have changed.
func (s *Store) leaderMoved() <-chan struct{} {
	s.moveMu.Lock()
	defer s.moveMu.Unlock()
	return s.moved
}

func (s *Store) leaderMayHaveMoved() {
	s.moveMu.Lock()
	close(s.moved)
	s.moved = make(chan struct{})
	s.moveMu.Unlock()
}

const (
	// lagCheck is how often the leader looks at its own disk, and lagPatience
	// how many times it may be found too far behind before it gives the
	// leadership away: it answers ErrOverloaded all that time (SAFETY P2).
	lagCheck    = time.Second
	lagPatience = 5
	// observations is how many of raft's may wait; what is dropped beyond
	// matters not, since only "look again" is taken from them.
	observations = 16
)

// runLeadership follows elections until ctx is done.
func (s *Store) runLeadership(ctx context.Context, r *raft.Raft) {
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
				s.becomeRole(following)
				s.logger.Info("no longer the leader")
				continue
			}
			s.takeOver(ctx, r)
		case <-seen:
			s.leaderMayHaveMoved()
		case <-check.C:
			if role(s.role.Load()) == following && r.State() == raft.Leader {
				s.takeOver(ctx, r) // it failed when it was elected
			}
			late = s.checkDisk(ctx, r, late)
			s.checkServing(ctx, r)
			offered = s.checkClock(ctx, r, offered)
		case <-ctx.Done():
			return
		}
	}
}

// takeOver makes this server lead, which raft elected. If that fails, and raft
// still wants it, it is tried again at the next check.
func (s *Store) takeOver(ctx context.Context, r *raft.Raft) {
	s.becomeRole(assuming)
	err := s.assume(ctx, r)
	if err == nil {
		return
	}
	level := slog.LevelWarn
	if errors.Is(err, errGivenOn) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrRaftShutdown) {
		level = slog.LevelInfo // another one leads, or this one stops
	}
	s.logger.Log(ctx, level, "elected, but could not take over", "because", err)
	s.becomeRole(following)
}

// assume makes an elected leader one that takes changes.
func (s *Store) assume(ctx context.Context, r *raft.Raft) error {
	if err := r.Barrier(enqueueTimeout).Error(); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if s.Head().Cluster.IsZero() {
		cluster := window.NewID(s.cfg.Now())
		future := r.Apply(command.EncodeGenesis(cluster, min(s.cfg.features, log.FeatureVersion)), enqueueTimeout)
		if err := future.Error(); err != nil {
			return fmt.Errorf("give the cluster its identity: %w", err)
		}
		if err, failed := future.Response().(error); failed {
			return err
		}
		s.logger.Info("cluster founded", "cluster", s.Head().Cluster)
	}
	if err := s.assumeTime(ctx, r); err != nil {
		return err
	}
	s.becomeRole(leading)
	s.logger.Info("leader", "term", r.CurrentTerm(), "seq", s.Head().Seq)
	return nil
}

// checkDisk counts how often the leader's persister was found behind, and gives
// leadership away at the limit.
func (s *Store) checkDisk(ctx context.Context, r *raft.Raft, late int) int {
	if !s.leading() || !s.persister.Behind() {
		return 0
	}
	if late++; late < lagPatience {
		return late
	}
	s.logger.Warn("changes.db stays too far behind: giving the leadership away")
	if err := s.giveAway(ctx, r); err != nil {
		s.logger.Warn("nobody took the leadership", "error", err)
	}
	return 0
}

// checkServing gives the leadership away if this server must not serve.
func (s *Store) checkServing(ctx context.Context, r *raft.Raft) {
	err := s.Serving()
	if err == nil || r.State() != raft.Leader {
		return
	}
	s.logger.Warn("giving the leadership away", "because", err)
	if err := s.giveAway(ctx, r); err != nil {
		s.logger.Warn("nobody took the leadership", "error", err)
	}
}

// handOver gives the leadership to another voter before a clean stop, so that
// nobody has to wait for an election timeout.
func (s *Store) handOver(r *raft.Raft) {
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
	if s.stalled() != nil {
		s.findHeir(context.Background(), r)
		return
	}
	if err := s.giveAway(context.Background(), r); err != nil {
		// The others may be stopping as well; raft elects one if they are not.
		s.logger.Info("stopping without having handed the leadership over", "because", err)
	}
}

// runReady waits until this server has applied the leader's commit once, and
// compares what it then has with the others before it is asked for it.
func (s *Store) runReady(ctx context.Context, r *raft.Raft) {
	for s.stopCause() == nil && ctx.Err() == nil {
		moved := s.leaderMoved()
		seq, err := s.Consistent(ctx)
		if err != nil && s.Serving() != nil {
			_ = s.pause(ctx, moved)
		}
		if err == nil {
			s.compare(ctx, r)
			s.ready.Store(true)
			s.logger.Info("caught up with the cluster", "seq", seq)
			return
		}
	}
}
