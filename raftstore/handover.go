package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// A leader hands over by itself: it takes no more changes, waits until the other
// one has its whole log, and tells it to stand for election (section 3.10 of the
// Raft dissertation). Raft 1.7.3 can do that as well, but its own way may never
// end: a transfer that timed out leaves its question behind, the next one waits
// to ask another (leadershipTransfer, triggerDeferErrorCh), and once the
// leadership is lost nobody takes either. From then on that server refuses
// everything with "leadership transfer in progress", also when it is elected
// again, until it is started anew (hashicorp/raft issue 696; docs/upstream.md).

const (
	// handOverLook bounds the question who could take over.
	handOverLook = 200 * time.Millisecond
	// handOverPoll is the time between two looks how far that server is.
	handOverPoll = 2 * time.Millisecond
)

var (
	errTransferring = errors.New("the leadership is being handed over already")
	errNobodyTook   = errors.New("it was not elected: it is cut off from the others, or busy")
)

// stand returns the request that makes the server which gets it stand for election.
func (s *Store) stand(transport raft.Transport) *raft.TimeoutNowRequest {
	self := raft.ServerID(s.cfg.ID)
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: transport.EncodePeer(self, raft.ServerAddress(s.address)),
	}}
}

// giveAway makes another voter the leader, the one that has most of the log.
func (s *Store) giveAway(ctx context.Context, r *raft.Raft) error {
	heir, err := s.heir(ctx, r)
	if err != nil {
		return err
	}
	return s.handTo(ctx, r, heir)
}

// heir returns the voter besides this server that has most of the log, of those
// that answer in time and whose clock is not known to be wrong; one whose disk hangs
// or has no room only if all others' do.
func (s *Store) heir(ctx context.Context, r *raft.Raft) (heir Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, handOverLook)
	defer cancel()
	type answer struct {
		member   Member
		last     uint64
		troubled bool
		err      error
	}
	answers, asked := make(chan answer), 0
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if m.Suffrage != raft.Voter || string(m.ID) == s.cfg.ID || s.clocks.agreement.Load().wrong(string(m.ID)) {
			continue
		}
		asked++
		go func() {
			i, err := s.identityOf(ctx, string(m.Address))
			answers <- answer{Member{string(m.ID), string(m.Address)}, i.last(), i.troubled(), err}
		}()
	}
	var all []answer
	for range asked {
		if a := <-answers; a.err == nil {
			all = append(all, a)
		} else {
			err = errors.Join(err, fmt.Errorf("%s: %w", a.member.ID, a.err))
		}
	}
	if len(all) == 0 {
		return heir, errors.Join(errors.New("no other voter answers"), err)
	}
	if slices.ContainsFunc(all, func(a answer) bool { return !a.troubled }) { // else there is no better one
		all = slices.DeleteFunc(all, func(a answer) bool { return a.troubled })
	}
	best := slices.MaxFunc(all, func(a, b answer) int { return int(int64(a.last - b.last)) })
	return best.member, nil
}

// handTo makes m, a voter, the leader. If that fails this server leads on, unless
// it lost the leadership otherwise: then there is no error.
func (s *Store) handTo(ctx context.Context, r *raft.Raft, m Member) error {
	transport := s.transport.Load()
	if r.State() != raft.Leader || transport == nil {
		return nil
	}
	was, ok := s.becomeLeaving()
	if !ok {
		return errTransferring
	}
	defer func() {
		if r.State() == raft.Leader {
			s.becomeStaying(was)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Election)
	defer cancel()
	if err := s.awaitHeir(ctx, r, m); err != nil {
		return fmt.Errorf("hand over to %s: %w", m.ID, err)
	}
	told := make(chan error, 1)
	if !s.tasks.Start(func() {
		told <- transport.TimeoutNow(raft.ServerID(m.ID), raft.ServerAddress(m.Address), s.stand(transport), new(raft.TimeoutNowResponse))
	}) {
		return ErrStopped
	}
	for r.State() == raft.Leader {
		moved := s.leaderMoved()
		timer := time.NewTimer(handOverPoll)
		select {
		case err := <-told:
			if told = nil; err != nil {
				timer.Stop()
				return fmt.Errorf("hand over to %s: %w", m.ID, err)
			}
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("hand over to %s: %w", m.ID, errNobodyTook)
		}
		timer.Stop()
	}
	return nil
}

// awaitHeir waits until nothing of this leader is on its way, and m has it all.
func (s *Store) awaitHeir(ctx context.Context, r *raft.Raft, m Member) error {
	for r.State() == raft.Leader {
		last := r.LastIndex()
		i, err := s.identityOf(ctx, m.Address)
		if err != nil {
			return err
		}
		if i.last() >= last && s.queue.idle() && r.LastIndex() == last {
			return nil
		}
		timer := time.NewTimer(handOverPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("it has raft index %d of %d: %w", i.last(), last, ErrNotCaughtUp)
		}
	}
	return nil
}
