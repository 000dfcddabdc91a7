package raftstore

import (
	"context"
	"errors"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/peer"
)

// maxForeign bounds a request or an answer of another package, in bytes.
const maxForeign = peer.MaxPayload

// AnswerWith has fn answer what other servers ask with Ask. It is called before
// Run. fn runs in a goroutine of its own for each request; its error reaches
// the asker as text.
func (s *Store) AnswerWith(fn func(ctx context.Context, request []byte) ([]byte, error)) {
	s.endpoint.foreign = fn
}

// Ask sends a request, which this package does not look into, to the server at
// a peer address, or to the leader if address is "", and returns its answer. It
// may have been acted on even if an error came back. Errors: ErrNoLeader, and
// what the other server said.
func (s *Store) Ask(ctx context.Context, address string, request []byte) ([]byte, error) {
	if len(request) > maxForeign {
		return nil, fmt.Errorf("raftstore: request of %d bytes, over %d: %w", len(request), maxForeign, log.ErrTooLarge)
	}
	if address == "" {
		if address = s.lead.leaderAddress(); address == "" {
			return nil, ErrNoLeader
		}
	}
	if address == s.Address() {
		return s.endpoint.answerForeign(ctx, request)
	}
	return s.endpoint.callPeer(ctx, address, askForeign, request)
}

func (e *endpoint) answerForeign(ctx context.Context, request []byte) ([]byte, error) {
	if e.foreign == nil {
		return nil, errors.New("raftstore: this server answers no such requests: upgrade it")
	}
	answer, err := e.foreign(ctx, request)
	if err == nil && len(answer) > maxForeign {
		return nil, fmt.Errorf("raftstore: answer of %d bytes, over %d: %w", len(answer), maxForeign, log.ErrTooLarge)
	}
	return answer, err
}

// Leading reports whether this server leads, has applied all that was committed
// before, and takes changes; and in which term.
func (s *Store) Leading() (term uint64, ok bool) {
	r := s.raft.Load()
	if r == nil {
		return 0, false
	}
	term = r.CurrentTerm()
	return term, s.lead.leading() && r.CurrentTerm() == term
}

// LeaderMoved returns a channel that is closed when the leader may have changed.
func (s *Store) LeaderMoved() <-chan struct{} { return s.lead.leaderMoved() }
