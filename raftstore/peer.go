package raftstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// A frame between peers, big endian. A connection carries many requests at
// once; an answer bears its request's number.
//
//	0        4          12     13
//	| length | number   | type | payload |
//
// length counts what follows it.
const (
	frameHeader = 13
	maxFrame    = log.MaxChangeBytes + 1<<10
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

// maxPeerRequests bounds the requests of all peers that are worked on at once;
// beyond, connections are not read.
const maxPeerRequests = 4096

// outgoing is how many frames may wait for a connection's writer.
const outgoing = 256

type frame struct {
	number  uint64
	kind    byte
	payload []byte
}

// appendFrame appends the wire form of f.
func appendFrame(b []byte, f frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(frameHeader-4+len(f.payload)))
	b = binary.BigEndian.AppendUint64(b, f.number)
	b = append(b, f.kind)
	return append(b, f.payload...)
}

// readFrame reads one frame; io.EOF only between frames.
func readFrame(r *bufio.Reader) (frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n < frameHeader-4 || n > maxFrame {
		return frame{}, fmt.Errorf("peer frame of %d bytes: %w", n, log.ErrTooLarge)
	}
	f := frame{number: binary.BigEndian.Uint64(header[4:]), kind: header[12], payload: make([]byte, n-(frameHeader-4))}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, fmt.Errorf("peer frame: %w", io.ErrUnexpectedEOF)
	}
	return f, nil
}

// sender writes frames to a connection, those that wait together in one write.
type sender struct {
	conn net.Conn
	out  chan frame
	done chan struct{} // closed when the connection is given up
	once sync.Once
}

func newSender(conn net.Conn) *sender {
	return &sender{conn: conn, out: make(chan frame, outgoing), done: make(chan struct{})}
}

// send queues f, and reports whether the connection still stood.
func (s *sender) send(ctx context.Context, f frame) bool {
	select {
	case s.out <- f:
		return true
	case <-s.done:
		return false
	case <-ctx.Done():
		return false
	}
}

func (s *sender) close() {
	s.once.Do(func() {
		close(s.done)
		s.conn.Close()
	})
}

// run writes until the connection is given up.
func (s *sender) run() {
	defer s.close()
	w := bufio.NewWriterSize(s.conn, 64<<10)
	var b []byte
	for {
		var f frame
		select {
		case f = <-s.out:
		default:
			if w.Flush() != nil {
				return
			}
			select {
			case f = <-s.out:
			case <-s.done:
				return
			}
		}
		b = appendFrame(b[:0], f)
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

// servePeer answers the requests of one connection until it ends.
func (s *Store) servePeer(ctx context.Context, conn net.Conn) {
	out := newSender(conn)
	defer out.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.tasks.start(out.run) {
		return
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.logger.Debug("peer connection ended", "peer", conn.RemoteAddr(), "error", err)
			}
			return
		}
		select {
		case s.peerSlots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		started := s.tasks.start(func() {
			defer func() { <-s.peerSlots }()
			out.send(ctx, s.answer(ctx, f))
		})
		if !started {
			return
		}
	}
}

// answer does what a request asks, on the leader.
func (s *Store) answer(ctx context.Context, f frame) frame {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ProposeTimeout)
	defer cancel()
	var payload []byte
	var err error
	switch f.kind {
	case askPropose:
		payload, err = s.answerPropose(ctx, f.payload)
	case askBarrier:
		var seq log.Seq
		seq, err = s.barrierLocal(ctx)
		payload = changesdb.SeqKey(seq)
	case askAdmin:
		err = s.answerAdmin(ctx, f.payload)
	case askPoint:
		payload, err = s.answerPoint(f.payload)
	case askForeign:
		payload, err = s.answerForeign(ctx, f.payload)
	case askClock:
		payload = s.answerClock()
	case askIdentity:
		payload, err = json.Marshal(s.identity())
	default:
		err = fmt.Errorf("peer request of type %d is not known to this server: upgrade it", f.kind)
	}
	if kind := answerOf(err); kind == answerOverloaded {
		return frame{f.number, kind, overloadedPayload(err)}
	} else if err != nil {
		return frame{f.number, kind, []byte(err.Error())}
	}
	return frame{f.number, answerOK, payload}
}

func (s *Store) answerPropose(ctx context.Context, payload []byte) ([]byte, error) {
	c, err := log.DecodeChange(payload)
	if err != nil {
		return nil, err
	}
	result, err := s.proposeLocal(ctx, c)
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

func errorOf(f frame) error {
	switch f.kind {
	case answerOK:
		return nil
	case answerNotLeader:
		return errNotLeader
	case answerOverloaded:
		return overloadedError(f.payload)
	case answerNoRoom:
		return fmt.Errorf("%w: %s", ErrNoRoom, strings.TrimPrefix(string(f.payload), ErrNoRoom.Error()+": "))
	case answerClock:
		return fmt.Errorf("%w (%s)", ErrClock, f.payload)
	case answerUnknown:
		return fmt.Errorf("%w (%s)", ErrUnknown, f.payload)
	default:
		return errors.New(string(f.payload))
	}
}

// peers holds one connection for requests to each server.
type peers struct {
	tasks *tasks
	// dial opens a connection for requests, dialImage one for an image.
	dial, dialImage func(ctx context.Context, address string) (net.Conn, error)

	mu    sync.Mutex
	lines map[string]*line
}

// line is a connection to a peer with the requests that wait for an answer.
type line struct {
	*sender
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan frame // nil once the connection is lost
}

// errNotSent: the request did not leave this server.
var errNotSent = errors.New("raftstore: peer not reached")

// call sends a request and waits for its answer. errNotSent means that the peer
// has not got it; any other error of the connection wraps ErrUnknown.
func (p *peers) call(ctx context.Context, address string, kind byte, payload []byte) (frame, error) {
	l, err := p.line(ctx, address)
	if err != nil {
		return frame{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	answer := make(chan frame, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return frame{}, fmt.Errorf("%w: connection to %s lost", errNotSent, address)
	}
	l.next++
	number := l.next
	l.waiting[number] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, number)
		l.mu.Unlock()
	}()
	if !l.send(ctx, frame{number, kind, payload}) {
		return frame{}, fmt.Errorf("%w: connection to %s lost", errNotSent, address)
	}
	select {
	case f, ok := <-answer:
		if !ok {
			return frame{}, fmt.Errorf("%w: connection to %s lost", ErrUnknown, address)
		}
		return f, errorOf(f)
	case <-ctx.Done():
		return frame{}, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// line returns the connection to address, made anew if need be.
func (p *peers) line(ctx context.Context, address string) (*line, error) {
	p.mu.Lock()
	l := p.lines[address]
	p.mu.Unlock()
	if l != nil {
		return l, nil
	}
	conn, err := p.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	l = &line{sender: newSender(conn), waiting: make(map[uint64]chan frame)}
	p.mu.Lock()
	if other := p.lines[address]; other != nil {
		p.mu.Unlock()
		conn.Close()
		return other, nil
	}
	if p.lines == nil {
		p.lines = make(map[string]*line)
	}
	p.lines[address] = l
	p.mu.Unlock()
	if !p.tasks.start(l.run) || !p.tasks.start(func() { p.listen(address, l) }) {
		l.close()
		return nil, ErrStopped
	}
	return l, nil
}

// listen hands out answers until the connection ends, and then tells whoever waits.
func (p *peers) listen(address string, l *line) {
	r := bufio.NewReaderSize(l.conn, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		l.mu.Lock()
		answer := l.waiting[f.number]
		delete(l.waiting, f.number)
		l.mu.Unlock()
		if answer != nil {
			answer <- f
		}
	}
	l.close()
	p.mu.Lock()
	if p.lines[address] == l {
		delete(p.lines, address)
	}
	p.mu.Unlock()
	l.mu.Lock()
	lost := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, answer := range lost {
		close(answer)
	}
}

// callPeer sends a request to another server: see peers.call.
func (s *Store) callPeer(ctx context.Context, address string, kind byte, payload []byte) (frame, error) {
	p := s.peers.Load()
	if p == nil {
		return frame{}, fmt.Errorf("%w: %w", errNotSent, ErrStopped)
	}
	return p.call(ctx, address, kind, payload)
}
