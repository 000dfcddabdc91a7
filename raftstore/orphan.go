package raftstore

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// A follower takes its leader for dead when it was silent for a heartbeat, which
// must be long enough for a busy disk or a busy machine. A process that ended
// tells more: its connections break, and its port refuses new ones. Whoever sees
// both stands for election at once. Raft is as safe as ever: an election may be
// held at any time, and the log decides who can win it. A host that is gone, or
// cut off, refuses nothing, and is waited for as before.

// standApart parts the elections that the followers of a dead leader hold, so
// that the first is over before the next one looks.
const standApart = 150 * time.Millisecond

// runOrphan watches the leader's process from a follower, until ctx is done.
func (s *Store) runOrphan(ctx context.Context, r *raft.Raft, transport raft.Transport) {
	for ctx.Err() == nil && s.stopCause() == nil {
		moved := s.leaderMoved()
		leader, _ := r.LeaderWithID()
		if leader == "" || string(leader) == s.address {
			if !comes(ctx, moved) {
				return
			}
			continue
		}
		if !s.leaderEnded(ctx, string(leader), moved) {
			_ = s.pause(ctx, moved)
			continue
		}
		if !s.standFor(ctx, r, transport, leader, moved) || !comes(ctx, moved) {
			_ = s.pause(ctx, moved)
		}
	}
}

func comes(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// leaderEnded waits on a connection to the leader. True means that it broke, and
// that the port refuses another one.
func (s *Store) leaderEnded(ctx context.Context, address string, moved <-chan struct{}) bool {
	l, err := s.peers.Load().line(ctx, address)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	select {
	case <-l.done:
	case <-moved:
		return false
	case <-ctx.Done():
		return false
	}
	return s.refused(ctx, address)
}

// refused reports whether nobody listens on a peer's port.
func (s *Store) refused(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Heartbeat)
	defer cancel()
	conn, err := s.peers.Load().dial(ctx, address)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// standFor stands for election in the place of a leader that ended, if this
// server has a vote and nobody else leads. It reports whether it did. One who
// stood before and does not lead yet may never: its log may end before this
// server's, which then refused it, and whose turn it is.
func (s *Store) standFor(ctx context.Context, r *raft.Raft, transport raft.Transport, ended raft.ServerAddress, moved <-chan struct{}) bool {
	var voters []string
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if m.Suffrage == raft.Voter && m.Address != ended {
			voters = append(voters, string(m.ID))
		}
	}
	slices.Sort(voters)
	place := slices.Index(voters, s.cfg.ID)
	if place < 0 || s.Serving() != nil || s.stalled() != nil {
		return false
	}
	vacant := func() bool {
		now, _ := r.LeaderWithID()
		return (now == ended || now == "") && r.State() == raft.Follower
	}
	for wait := time.After(time.Duration(place) * standApart); wait != nil; {
		select {
		case <-moved:
			moved = s.leaderMoved()
			if !vacant() || s.stopCause() != nil {
				return false
			}
		case <-ctx.Done():
			return false
		case <-wait:
			wait = nil
		}
	}
	if !vacant() || place > 0 && !s.refused(ctx, string(ended)) {
		return false
	}
	s.logger.Info("the leader's process has ended; standing for election", "leader", ended)
	if err := transport.TimeoutNow(raft.ServerID(s.cfg.ID), raft.ServerAddress(s.address), s.stand(transport), new(raft.TimeoutNowResponse)); err != nil {
		s.logger.Info("could not stand for election", "because", err)
		return false
	}
	return true
}
