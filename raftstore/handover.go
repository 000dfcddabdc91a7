package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The store hands over the leadership itself: the leader takes no more changes, waits
// until the successor has its whole log, and requests it to stand for election (section
// 3.10 of the Raft dissertation). Raft 1.7.3 has a transfer too, which may never end.
// A transfer that timed out leaves a request in a channel, and the next transfer waits to
// put its own there (leadershipTransfer, triggerDeferErrorCh). Once the leadership is
// lost, neither is read. From then on that server refuses everything with "leadership
// transfer in progress", also after it is elected again, until it is restarted
// (hashicorp/raft issue 696; docs/upstream.md).

const (
	// handOverLook bounds the requests that find out which server could take over.
	handOverLook = 200 * time.Millisecond
	// handOverPoll is the time between two checks of the successor's progress.
	handOverPoll = 2 * time.Millisecond
)

var (
	errTransferring = errors.New("the leadership is being handed over already")
	errNobodyTook   = errors.New("it was not elected: it is cut off from the others, or busy")
)

// stand returns the request that makes its receiver stand for election.
func (l *leadership) stand(transport raft.Transport) *raft.TimeoutNowRequest {
	self := raft.ServerID(l.store.cfg.ID)
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: transport.EncodePeer(self, raft.ServerAddress(l.store.address)),
	}}
}

// handOverToBest hands the leadership to the voter that has most of the log.
func (l *leadership) handOverToBest(ctx context.Context, r *raft.Raft) error {
	best, err := l.successor(ctx, r)
	if err != nil {
		return err
	}
	return l.handOverTo(ctx, r, best)
}

// successor returns the other voter that has most of the log, among those that answer in time
// and whose clock is not known to be wrong. It returns a server whose disk hangs or is
// nearly full only if there is no better one.
func (l *leadership) successor(ctx context.Context, r *raft.Raft) (to Member, err error) {
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
		if m.Suffrage != raft.Voter || string(m.ID) == l.store.cfg.ID || l.store.times.clocks.Agreement.Load().Wrong(string(m.ID)) {
			continue
		}
		asked++
		go func() {
			i, err := l.store.members.identityOf(ctx, string(m.Address))
			answers <- answer{Member{ID: string(m.ID), Address: string(m.Address)}, i.last(), i.troubled(), err}
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
		return to, errors.Join(errors.New("no other voter answers"), err)
	}
	if slices.ContainsFunc(all, func(a answer) bool { return !a.troubled }) { // else all are troubled
		all = slices.DeleteFunc(all, func(a answer) bool { return a.troubled })
	}
	best := slices.MaxFunc(all, func(a, b answer) int { return int(int64(a.last - b.last)) })
	return best.member, nil
}

// handOverTo makes m, a voter, the leader. If that fails, this server goes on leading, unless
// it lost the leadership in another way: then there is no error.
func (l *leadership) handOverTo(ctx context.Context, r *raft.Raft, m Member) error {
	transport := l.store.transport.Load()
	if r.State() != raft.Leader || transport == nil {
		return nil
	}
	was, ok := l.becomeLeaving()
	if !ok {
		return errTransferring
	}
	defer func() {
		if r.State() == raft.Leader {
			l.becomeStaying(was)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, l.store.cfg.Election)
	defer cancel()
	if err := l.awaitSuccessor(ctx, r, m); err != nil {
		return fmt.Errorf("hand over to %s: %w", m.ID, err)
	}
	requested := make(chan error, 1)
	if !l.store.tasks.Start(func() {
		requested <- transport.TimeoutNow(raft.ServerID(m.ID), raft.ServerAddress(m.Address), l.stand(transport), new(raft.TimeoutNowResponse))
	}) {
		return ErrStopped
	}
	for r.State() == raft.Leader {
		moved := l.leaderMoved()
		timer := time.NewTimer(handOverPoll)
		select {
		case err := <-requested:
			if requested = nil; err != nil {
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

// awaitSuccessor waits until this leader has no change under way, and m has the whole log.
func (l *leadership) awaitSuccessor(ctx context.Context, r *raft.Raft, m Member) error {
	for r.State() == raft.Leader {
		last := r.LastIndex()
		i, err := l.store.members.identityOf(ctx, m.Address)
		if err != nil {
			return err
		}
		if i.last() >= last && l.store.proposer.queue.Idle() && r.LastIndex() == last {
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

// memberReport is what another member reports about itself.
type memberReport struct {
	identity
	address string
	voter   bool
}

// reports asks all other members for their identity, and returns those that answer
// within handOverLook, in no order.
func (ms *Membership) reports(ctx context.Context, r *raft.Raft) (all []memberReport) {
	ctx, cancel := context.WithTimeout(ctx, handOverLook)
	defer cancel()
	var mu sync.Mutex // protects all
	var asked sync.WaitGroup
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) == ms.store.cfg.ID {
			continue
		}
		asked.Go(func() {
			i, err := ms.identityOf(ctx, string(m.Address))
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, memberReport{i, string(m.Address), m.Suffrage == raft.Voter})
		})
	}
	asked.Wait()
	return all
}

// sortByLog sorts members, those with most of the log first.
func sortByLog(all []memberReport) {
	slices.SortFunc(all, func(a, b memberReport) int { return cmp.Or(cmp.Compare(b.last(), a.last()), cmp.Compare(a.ID, b.ID)) })
}
