package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"rutter/log"
	"rutter/log/budget"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/peer"
)

// Types of requests and of answers.
const (
	askPropose byte = 1 // an encoded change; answered with an encoded result
	askBarrier byte = 2 // nothing; answered with a seq (8)
	askAdmin   byte = 3 // JSON of an adminRequest; answered with nothing
	// askIdentity asks who the server is: nothing; answered with JSON of an identity.
	askIdentity byte = 16
	askPoint    byte = 4 // a raft index (8); answered with a point at or below it: see compare.go
	askForeign  byte = 5 // what another package asks; answered by whom AnswerWith named
	// askClock asks what the server's clock shows: nothing; answered as clocks.go has it.
	askClock byte = 20

	answerOK         byte = 128
	answerNotLeader  byte = 129 // nothing was written
	answerOverloaded byte = 130 // nothing was written
	answerClock      byte = 131 // nothing was written
	answerUnknown    byte = 132 // may have been written
	answerError      byte = 133 // text
	answerNoRoom     byte = 140 // nothing was written
)

// errNotSent: a request did not leave this server.
var errNotSent = peer.ErrNotSent

// endpoint is where other servers reach this one, and how it reaches them.
type endpoint struct {
	store    *Store
	listener net.Listener
	peers    atomic.Pointer[peer.Client] // set by Run
	// foreign answers what another package asks: see AnswerWith; set before Run.
	foreign func(context.Context, []byte) ([]byte, error)
}

// answer does what a request asks, on the leader.
func (e *endpoint) answer(ctx context.Context, f peer.Frame) peer.Frame {
	ctx, cancel := context.WithTimeout(ctx, e.store.cfg.ProposeTimeout)
	defer cancel()
	var payload []byte
	var err error
	switch f.Kind {
	case askPropose:
		payload, err = e.answerPropose(ctx, f.Payload)
	case askBarrier:
		var seq log.Seq
		seq, err = e.store.barriers.barrierLocal(ctx)
		payload = changesdb.SeqKey(seq)
	case askAdmin:
		err = e.store.members.answerAdmin(ctx, f.Payload)
	case askPoint:
		payload, err = e.store.comparison.answerPoint(f.Payload)
	case askForeign:
		payload, err = e.answerForeign(ctx, f.Payload)
	case askClock:
		payload = e.store.times.answerClock()
	case askIdentity:
		payload, err = json.Marshal(e.store.members.identity())
	default:
		err = fmt.Errorf("peer request of type %d is not known to this server: upgrade it", f.Kind)
	}
	if kind := answerOf(err); kind == answerOverloaded {
		return peer.Frame{Number: f.Number, Kind: kind, Payload: overloadedPayload(err)}
	} else if err != nil {
		return peer.Frame{Number: f.Number, Kind: kind, Payload: []byte(err.Error())}
	}
	return peer.Frame{Number: f.Number, Kind: answerOK, Payload: payload}
}

func (e *endpoint) answerPropose(ctx context.Context, payload []byte) ([]byte, error) {
	c, err := log.DecodeChange(payload)
	if err != nil {
		return nil, err
	}
	result, err := e.store.proposer.proposeLocal(ctx, c)
	if err != nil {
		return nil, err
	}
	return log.NewEncoder().Result(&result)
}

// answerOf and errorOf carry the sentinels across a connection.
func answerOf(err error) byte {
	switch {
	case errors.Is(err, errNotLeader):
		return answerNotLeader
	case errors.Is(err, ErrOverloaded):
		return answerOverloaded
	case errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrUnknown):
		return answerNoRoom
	case errors.Is(err, ErrClock):
		return answerClock
	case errors.Is(err, ErrUnknown):
		return answerUnknown
	default:
		return answerError
	}
}

func errorOf(f peer.Frame) error {
	switch f.Kind {
	case answerOK:
		return nil
	case answerNotLeader:
		return errNotLeader
	case answerOverloaded:
		return overloadedError(f.Payload)
	case answerNoRoom:
		return fmt.Errorf("%w: %s", ErrNoRoom, strings.TrimPrefix(string(f.Payload), ErrNoRoom.Error()+": "))
	case answerClock:
		return fmt.Errorf("%w (%s)", ErrClock, f.Payload)
	case answerUnknown:
		return fmt.Errorf("%w (%s)", ErrUnknown, f.Payload)
	default:
		return errors.New(string(f.Payload))
	}
}

// callPeer sends a request to another server and returns the payload of its answer, of
// an error's too. errNotSent means that the other server has not got it; any other
// error of the connection wraps ErrUnknown.
func (e *endpoint) callPeer(ctx context.Context, address string, kind byte, payload []byte) ([]byte, error) {
	p := e.peers.Load()
	if p == nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, ErrStopped)
	}
	answer, err := p.Call(ctx, address, kind, payload)
	if err != nil {
		return nil, err
	}
	return answer.Payload, errorOf(answer)
}

// overloadedPayload is what a peer is told of a change that was not taken: which
// budget, if it was one. Servers of before read no more than that it was not.
func overloadedPayload(err error) []byte {
	var exceeded *budget.Exceeded
	if errors.As(err, &exceeded) {
		if b, err := json.Marshal(exceeded); err == nil {
			return b
		}
	}
	return []byte(err.Error())
}

// overloadedError reads it.
func overloadedError(payload []byte) error {
	exceeded := new(budget.Exceeded)
	if json.Unmarshal(payload, exceeded) == nil && exceeded.Name != "" {
		return fmt.Errorf("%w: %w", ErrOverloaded, exceeded)
	}
	return ErrOverloaded
}
