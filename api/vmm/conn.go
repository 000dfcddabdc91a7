package vmm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"rutter/log"
	"rutter/log/feed"
)

// Errors of requests to a CN.
var (
	// ErrUnreachable: the CN could not be reached, or did not answer. A request to
	// change something may have been executed.
	ErrUnreachable = errors.New("vmm: the compute node cannot be reached")
	// errNotSent: the request was certainly not sent by this route.
	errNotSent = errors.New("vmm: not sent")
)

// Conn is a CN's connection with this server. Its methods may be called from any
// goroutine, and never block.
type Conn struct {
	s    *Service
	cn   log.UUID
	able bool
	send func(*feed.Request) error

	mu     sync.Mutex // protects what follows
	closed bool
	number uint64
	open   map[uint64]chan *feed.Response
	// unplaced are VMMs, each with its VM, which the log did not have on the CN.
	unplaced map[log.UUID]log.UUID

	reported reported
}

// Connect registers a connection of a CN. send sends requests and must not block; able
// says that the CN answers requests. Close must be called at its end.
func (s *Service) Connect(cn log.UUID, able bool, send func(*feed.Request) error) *Conn {
	l := &Conn{s: s, cn: cn, able: able, send: send, open: make(map[uint64]chan *feed.Response), unplaced: make(map[log.UUID]log.UUID)}
	s.mu.Lock()
	s.conns[cn] = l
	s.mu.Unlock()
	s.pulls.reachable(cn)
	return l
}

func (s *Service) conn(cn log.UUID) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[cn]
}

// Close ends the connection: pending requests fail.
func (l *Conn) Close() {
	l.s.mu.Lock()
	if l.s.conns[l.cn] == l {
		delete(l.s.conns, l.cn)
	}
	l.s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for number, answer := range l.open {
		delete(l.open, number)
		close(answer)
	}
}

// Answer takes the CN's answer to a request. An answer without a pending request is
// dropped.
func (l *Conn) Answer(m *feed.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer := l.open[m.Number]; answer != nil {
		delete(l.open, m.Number)
		answer <- m // has room for one
	}
}

// Ring takes the CN's rings. The CN repeats those that are not taken.
func (l *Conn) Ring(m *feed.Ring) {
	for _, id := range m.VMMs {
		if err := l.s.Ring(id, l.cn); err != nil {
			l.s.logger.Warn("a ring was not taken", "vmm", id, "cn", l.cn, "error", err)
			return
		}
	}
}

// ask sends a request to the CN and waits for the answer, until ctx ends. Errors:
// errNotSent, ErrUnreachable.
func (l *Conn) ask(ctx context.Context, r *feed.Request) (*feed.Response, error) {
	answer := make(chan *feed.Response, 1)
	l.mu.Lock()
	if l.closed || !l.able || len(l.open) >= maxOpen {
		defer l.mu.Unlock()
		return nil, fmt.Errorf("%w: the connection of CN %s takes no request (closed %t, answers %t, %d open)", errNotSent, l.cn, l.closed, l.able, len(l.open))
	}
	l.number++
	numbered := *r
	numbered.Number = l.number
	l.open[numbered.Number] = answer
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		delete(l.open, numbered.Number)
		l.mu.Unlock()
	}
	if err := l.send(&numbered); err != nil {
		forget()
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%w: its connection ended before the answer", ErrUnreachable)
		}
		return m, nil
	case <-ctx.Done():
		forget()
		return nil, fmt.Errorf("%w: no answer on its connection in time", ErrUnreachable)
	}
}
