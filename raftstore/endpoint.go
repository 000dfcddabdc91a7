package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/log/budget"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/peer"
	"rutter/raftstore/internal/peer/orphan"
	"rutter/raftstore/internal/raftlog"
)

// Types of requests and of answers.
const (
	askPropose byte = 1 // an encoded change; answered with an encoded result
	askBarrier byte = 2 // nothing; answered with a seq (8)
	askAdmin   byte = 3 // JSON of an adminRequest; answered with nothing
	// askIdentity asks for the server's identity: nothing; answered with JSON of an
	// identity.
	askIdentity byte = 16
	askPoint    byte = 4 // a raft index (8); answered with a point at or below it: see comparison
	askForeign  byte = 5 // a request of another package; answered by the function given to AnswerWith
	// askClock asks what the server's clock shows: nothing; answered as clockwatch.go
	// describes.
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

// endpoint receives the requests of other servers, and sends requests to them.
type endpoint struct {
	store    *Store
	listener net.Listener
	peers    atomic.Pointer[peer.Client] // set by Run
	// foreign answers the requests of another package: see AnswerWith. Set before Run.
	foreign func(context.Context, []byte) ([]byte, error)
}

// openPort listens on the peer port, and sets the address that the others dial.
func (e *endpoint) openPort() (err error) {
	if e.listener, err = e.store.cfg.Network.Listen(e.store.cfg.Listen); err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	e.store.address = e.store.cfg.Advertise
	if e.store.address == "" {
		e.store.address = e.listener.Addr().String()
	}
	host, _, err := net.SplitHostPort(e.store.address)
	if err != nil {
		return fmt.Errorf("peer port: address %q: %w: want HOST:PORT", e.store.address, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("peer port: no other server can dial %q: set Advertise to this machine's address", e.store.address)
	}
	for _, m := range e.store.cfg.InitialMembers {
		if m.ID == e.store.cfg.ID && m.Address != e.store.address {
			return fmt.Errorf("peer port: the initial members have %s at %s, and it listens on %s: make them agree, or set Advertise", m.ID, m.Address, e.store.address)
		}
	}
	return nil
}

// answer executes a request and returns the answer.
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

// callPeer sends a request to another server and returns the payload of its answer, also
// if the answer is an error. errNotSent means that the other server did not get the
// request; any other error of the connection wraps ErrUnknown.
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

// overloadedPayload is the answer to a peer whose change was not taken. It names the
// budget that was exceeded, if there was one. Older servers read only that the change was
// not taken.
func overloadedPayload(err error) []byte {
	var exceeded *budget.Exceeded
	if errors.As(err, &exceeded) {
		if b, err := json.Marshal(exceeded); err == nil {
			return b
		}
	}
	return []byte(err.Error())
}

// overloadedError decodes overloadedPayload.
func overloadedError(payload []byte) error {
	exceeded := new(budget.Exceeded)
	if json.Unmarshal(payload, exceeded) == nil && exceeded.Name != "" {
		return fmt.Errorf("%w: %w", ErrOverloaded, exceeded)
	}
	return ErrOverloaded
}

// newPort returns the peer port of a run, with the handlers of its connections.
func (e *endpoint) newPort(life context.Context) *peer.Port {
	server := peer.NewServer(e.store.tasks, e.store.logger, e.answer)
	return peer.NewPort(life, peer.PortOptions{
		Listener: e.listener, Dial: e.store.cfg.Network.Dial, Address: e.store.address, Tasks: e.store.tasks, Logger: e.store.logger,
		Cluster:  func() log.UUID { return e.store.Head().Cluster },
		Note:     e.store.skipping.skipNote,
		Admit:    e.store.skipping.sameSkips,
		Requests: func(conn net.Conn) { server.Serve(life, conn) },
		Image:    func(conn net.Conn) { e.store.rebuilder.serveImage(life, conn) },
	})
}

// newTransport returns raft's transport over the peer port.
func (e *endpoint) newTransport(port *peer.Port) *peer.Transport {
	return peer.NewTransport(peer.TransportOptions{
		Port: port, Log: e.store.raftLog, TermKey: raftlog.KeyCurrentTerm,
		Raft: e.store.raft.Load, Unfit: e.store.disks.stalled, Logger: e.store.logger,
	})
}

// leaderWatch returns the watch of the leader's process, for a follower.
func (s *Store) leaderWatch(r *run) *orphan.Watch {
	peers := s.endpoint.peers.Load()
	return &orphan.Watch{
		ID: s.cfg.ID, Address: s.address, Wait: s.cfg.Heartbeat, Raft: r.raft, Logger: s.logger,
		Connected: peers.Connected, Dial: peers.Dial,
		Moved: s.lead.leaderMoved, Pause: s.pause,
		Stopping: func() bool { return s.stopCause() != nil },
		Unfit:    func() error { return errors.Join(s.Serving(), s.disks.stalled()) },
		Stand: func() error {
			return r.transport.TimeoutNow(raft.ServerID(s.cfg.ID), raft.ServerAddress(s.address), s.lead.stand(r.transport), new(raft.TimeoutNowResponse))
		},
	}
}

// maxForeign bounds a request or an answer of another package, in bytes.
const maxForeign = peer.MaxPayload

// AnswerWith sets the function that answers requests which other servers send with Ask.
// It must be called before Run. fn runs in a goroutine of its own for each request; the
// caller of Ask gets its error as text.
func (s *Store) AnswerWith(fn func(ctx context.Context, request []byte) ([]byte, error)) {
	s.endpoint.foreign = fn
}

// Ask sends a request, which is opaque to this package, to the server at a peer address,
// or to the leader if address is "". It returns the answer. After an error the request
// may have been executed. Errors: ErrNoLeader, and the other server's error.
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

// Confirmation says in which term a server leads, and how fresh the proof of it is.
type Confirmation struct {
	Term uint64
	// At is the latest time at which a majority is known to have elected no later leader,
	// by the monotonic clock. A server that is elected later than that is elected after
	// At. It is the zero time until a majority has accepted a request of this term.
	At time.Time
	// Others are the peer addresses of the other members.
	Others []string
}

// Confirmed returns the proof that this server leads; ok is false if it does not lead by
// what it knows itself. It costs no message: the proof is in the answers to heartbeats,
// which a leader sends each member every Config.Heartbeat/10 to Config.Heartbeat/5.
func (s *Store) Confirmed() (c Confirmation, ok bool) {
	r, transport, now := s.raft.Load(), s.transport.Load(), time.Now()
	if r == nil || transport == nil {
		return c, false
	}
	c.Term = r.CurrentTerm()
	var voters []raft.ServerID
	votes := false
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) == s.cfg.ID {
			votes = m.Suffrage == raft.Voter
			continue
		}
		c.Others = append(c.Others, string(m.Address))
		if m.Suffrage == raft.Voter {
			voters = append(voters, m.ID)
		}
	}
	c.At = transport.Confirmed(c.Term, voters, now)
	return c, votes && r.State() == raft.Leader && r.CurrentTerm() == c.Term
}

// LeaderMoved returns a channel that is closed when the leader may have changed.
func (s *Store) LeaderMoved() <-chan struct{} { return s.lead.leaderMoved() }
