// Package orphan lets the followers of a leader whose process has ended stand for
// election at once.
//
// A follower takes its leader for dead after a heartbeat timeout of silence. The timeout
// must be long enough for a busy disk or a busy machine. The end of a process shows
// earlier: its connections break, and its port refuses new ones. A follower that sees
// both stands for election at once. This does not weaken Raft: an election may be held at
// any time, and the log decides which server can win it. A host that is down, or cut off,
// refuses no connection; for it, followers wait for the timeout as before.
//
// Upstream: hashicorp/raft 1.7.3 uses only the heartbeat. We know of no issue of raft
// about it. Figure: from SIGKILL to the next acknowledged write at most 0.2 to 1.0 s, and
// 1.9 s without (bench: make bench-store PART=failover).
//
// Tests that fail without it: raftstore.TestEndedLeaderIsReplacedAtOnce,
// raftstore.TestFollowerThatLacksEntriesStandsFirst, TestVoteRequestBeforeTheLeaderIsFoundEnded,
// TestPortThatClosesLate; and for what it must not do
// raftstore.TestBrokenConnectionsReplaceNobody, TestCandidateHasItsTime.
//
// To be taken out when raft stands for election as soon as a leader's port refuses, or
// when heartbeats may be so short that this package gains nothing.
package orphan

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// apart is the time between the elections that the followers of a dead leader hold, so
// that the first has ended before the next follower checks.
const apart = 150 * time.Millisecond

// closing is the number of pauses in which a process that has closed a connection may
// close its port too.
const closing = 4

// Watch watches the leader's process from a follower. All fields must be set.
type Watch struct {
	ID, Address string        // of this server
	Wait        time.Duration // bounds the check whether a port refuses
	Raft        *raft.Raft
	// Connected returns a channel that is closed when the connection for requests to a
	// peer ends.
	Connected func(ctx context.Context, address string) (ended <-chan struct{}, err error)
	// Dial opens a new connection to a peer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Moved returns a channel that is closed when the leader may have changed.
	Moved func() <-chan struct{}
	// Pause waits for a short time, or until moved is closed, which may be nil.
	Pause func(ctx context.Context, moved <-chan struct{}) error
	// Stopping reports whether the server stops.
	Stopping func() bool
	// Unfit returns why this server should not lead; nil if it may.
	Unfit func() error
	// Stand makes raft stand for election.
	Stand  func() error
	Logger *slog.Logger
}

// Run watches the leader's process from a follower, until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil && !w.Stopping() {
		moved := w.Moved()
		leader, _ := w.Raft.LeaderWithID()
		if leader == "" || string(leader) == w.Address {
			if !comes(ctx, moved) {
				return
			}
			continue
		}
		if !w.leaderEnded(ctx, string(leader), moved) {
			_ = w.Pause(ctx, moved)
			continue
		}
		if !w.standFor(ctx, leader, moved) || !comes(ctx, moved) {
			_ = w.Pause(ctx, moved)
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

// leaderEnded waits until the connection to the leader ends. It returns true if the
// connection broke and the port refuses a new one.
//
// A request for a vote makes raft forget its leader, and often arrives before this
// server finds that the leader has ended. So only another leader ends the wait.
func (w *Watch) leaderEnded(ctx context.Context, address string, moved <-chan struct{}) bool {
	ended, err := w.Connected(ctx, address)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	for {
		select {
		case <-ended:
			return w.closes(ctx, address)
		case <-moved:
			moved = w.Moved()
			now, _ := w.Raft.LeaderWithID()
			if now != "" && string(now) != address || w.Stopping() {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// closes reports whether a peer's port refuses connections, now or soon: a process that
// is killed may close its connections before its port.
func (w *Watch) closes(ctx context.Context, address string) bool {
	for range closing {
		if w.refused(ctx, address) {
			return true
		}
		if w.Pause(ctx, nil) != nil {
			return false
		}
	}
	return w.refused(ctx, address)
}

// refused reports whether a peer's port refuses connections.
func (w *Watch) refused(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	conn, err := w.Dial(ctx, address)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// standFor stands for election after the leader's process ended, if this server has a
// vote and no other server leads. It reports whether it did. A server that stood earlier
// and does not lead yet may never win: if its log ends before this server's log, this
// server refused it, and stands now.
func (w *Watch) standFor(ctx context.Context, ended raft.ServerAddress, moved <-chan struct{}) bool {
	rank := w.rankBehind(ended)
	if rank < 0 || w.Unfit() != nil {
		return false
	}
	vacant := func() bool {
		now, _ := w.Raft.LeaderWithID()
		return (now == ended || now == "") && w.Raft.State() == raft.Follower
	}
	wait, requested := time.After(time.Duration(rank)*apart), false
	for wait != nil {
		// The first request for a vote makes raft forget its leader. From then on the
		// server that sent it has its time to win, however late it is.
		if now, _ := w.Raft.LeaderWithID(); now == "" && !requested {
			requested, rank = true, max(rank, 1)
			wait = time.After(time.Duration(rank) * apart)
		}
		select {
		case <-moved:
			moved = w.Moved()
			if !vacant() || w.Stopping() {
				return false
			}
		case <-ctx.Done():
			return false
		case <-wait:
			wait = nil
		}
	}
	if !vacant() || rank > 0 && !w.refused(ctx, string(ended)) {
		return false
	}
	w.Logger.Info("the leader's process has ended; standing for election", "leader", ended)
	if err := w.Stand(); err != nil {
		w.Logger.Info("could not stand for election", "because", err)
		return false
	}
	return true
}

// rankBehind returns the index of this server among the voters other than the leader
// that ended; -1 if it has no vote.
func (w *Watch) rankBehind(ended raft.ServerAddress) int {
	var voters []string
	for _, m := range w.Raft.GetConfiguration().Configuration().Servers {
		if m.Suffrage == raft.Voter && m.Address != ended {
			voters = append(voters, string(m.ID))
		}
	}
	slices.Sort(voters)
	return slices.Index(voters, w.ID)
}
