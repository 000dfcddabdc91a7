package peer

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// acks notes for each server when the last request began that it accepted from this
// server as the leader of a term. It is safe for concurrent use. The zero value is ready.
//
// Such a server was in no later term when the request began, and so had given its vote to
// no later leader. Raft's VerifyLeader proves less: it counts answers to requests from
// before its call (SAFETY R1).
type acks struct {
	mu sync.Mutex
	of map[raft.ServerID]ack
}

// ack is one acceptance.
type ack struct {
	term  uint64
	begun time.Time // before the request was sent, by the monotonic clock
}

func (a *acks) note(id raft.ServerID, term uint64, begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = make(map[raft.ServerID]ack)
	}
	if last, ok := a.of[id]; !ok || term > last.term || term == last.term && begun.After(last.begun) {
		a.of[id] = ack{term, begun}
	}
}

// quorum returns the latest time at which a majority of voters had elected no leader
// after a term: others are the voters besides this server, which was in the term at now.
// It is the zero time if too few of them have accepted a request of that term.
func (a *acks) quorum(term uint64, others []raft.ServerID, now time.Time) time.Time {
	need := (len(others) + 1) / 2 // besides this server
	if need == 0 {
		return now
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := make([]time.Time, 0, len(others))
	for _, id := range others {
		if last, ok := a.of[id]; ok && last.term == term {
			begun = append(begun, last.begun)
		}
	}
	if len(begun) < need {
		return time.Time{}
	}
	slices.SortFunc(begun, func(x, y time.Time) int { return y.Compare(x) })
	return begun[need-1]
}

// Confirmed returns the latest time at which a majority of the voters is known to have
// elected no leader after a term; the zero time: none is known. Others are the voters
// besides this server, which was in that term at now.
func (t *Transport) Confirmed(term uint64, others []raft.ServerID, now time.Time) time.Time {
	return t.acks.quorum(term, others, now)
}
