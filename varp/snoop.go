package varp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// SnoopConfig has where a Snoop forwards traffic, and where it prints.
type SnoopConfig struct {
	// Upstream is the SVP server, host:port; the name is resolved for each connection.
	// Required.
	Upstream string

	// Out gets the trace, one or more lines in one Write. A slow Out loses lines, and
	// gets their count; it never delays the traffic. Required.
	Out io.Writer

	// MaxConns bounds the forwarded connections. Default 256.
	MaxConns int

	// DialTimeout bounds connecting to Upstream. Default 5 s.
	DialTimeout time.Duration
}

func (c SnoopConfig) withDefaults() SnoopConfig {
	if c.MaxConns == 0 {
		c.MaxConns = 256
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	return c
}

func (c SnoopConfig) check() error {
	if _, _, err := net.SplitHostPort(c.Upstream); err != nil {
		return fmt.Errorf("varp: SnoopConfig.Upstream %q: want HOST:PORT, as in 10.0.0.1:1296: %w", c.Upstream, err)
	}
	switch {
	case c.Out == nil:
		return errors.New("varp: SnoopConfig.Out is nil: give it what the trace is written to")
	case c.MaxConns < 0, c.DialTimeout < 0:
		return errors.New("varp: SnoopConfig has a negative bound: want a positive one, or 0 for the default")
	}
	return nil
}

// snoopLines is how many pieces of the trace may wait for SnoopConfig.Out.
const snoopLines = 4096

// Snoop forwards TCP connections to an SVP server and prints their messages: each
// request with its answer and the time that it took. It forwards unknown bytes
// unchanged, and prints them as hexadecimal digits.
type Snoop struct {
	cfg   SnoopConfig // immutable
	lines chan string
	lost  atomic.Uint64 // pieces of the trace that Out was too slow for

	mu    sync.Mutex // protects conns
	conns map[net.Conn]struct{}
}

// NewSnoop returns a snoop, or an error that names the field of cfg that is missing or
// invalid. It starts nothing.
func NewSnoop(cfg SnoopConfig) (*Snoop, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Snoop{cfg: cfg.withDefaults(), lines: make(chan string, snoopLines), conns: make(map[net.Conn]struct{})}, nil
}

// Run forwards what comes to ln until ctx ends, or Out or ln fails. Then it closes ln
// and every connection, and returns when everything that it started has ended: nil if
// ctx ended. It is called once.
func (s *Snoop) Run(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var printing, running sync.WaitGroup
	printing.Go(func() {
		if err := s.print(); err != nil {
			cancel(fmt.Errorf("varp: trace: %w", err))
		}
	})
	running.Go(func() {
		<-ctx.Done()
		_ = ln.Close()
		s.closeAll()
	})
	var taken atomic.Int64
	for ctx.Err() == nil {
		nc, err := ln.Accept()
		switch {
		case err == nil && taken.Load() >= int64(s.cfg.MaxConns):
			s.printLine(snoopLine(nc.RemoteAddr(), "refused: %d connections are open", s.cfg.MaxConns))
			_ = nc.Close()
		case err == nil:
			taken.Add(1)
			running.Go(func() { defer taken.Add(-1); s.pass(ctx, nc) })
		case errors.Is(err, net.ErrClosed):
			cancel(fmt.Errorf("varp: listener %s: %w", ln.Addr(), err))
		default:
			wait(ctx, minAcceptPause)
		}
	}
	running.Wait()
	close(s.lines)
	printing.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// print writes the trace until no more comes, or Out fails; later lines are lost.
func (s *Snoop) print() error {
	for line := range s.lines {
		if lost := s.lost.Swap(0); lost > 0 {
			line += fmt.Sprintf("%s (%d lines lost here: the reader is too slow)\n", snoopTime(time.Now()), lost)
		}
		if _, err := io.WriteString(s.cfg.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// printLine adds text, which ends a line, to the trace.
func (s *Snoop) printLine(text string) {
	select {
	case s.lines <- text:
	default:
		s.lost.Add(1)
	}
}

// track records an open connection, so that the end closes it; false if the end has
// come.
func (s *Snoop) track(ctx context.Context, nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[nc] = struct{}{}
	return ctx.Err() == nil
}

func (s *Snoop) untrack(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
	_ = nc.Close()
}

func (s *Snoop) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.conns {
		_ = nc.Close()
	}
}

// pass serves one client.
func (s *Snoop) pass(ctx context.Context, client net.Conn) {
	peer := client.RemoteAddr()
	defer s.untrack(client)
	if !s.track(ctx, client) {
		return
	}
	dialer := net.Dialer{Timeout: s.cfg.DialTimeout}
	server, err := dialer.DialContext(ctx, "tcp", s.cfg.Upstream)
	if err != nil {
		s.printLine(snoopLine(peer, "no server: %v", err))
		return
	}
	defer s.untrack(server)
	if !s.track(ctx, server) {
		return
	}
	s.printLine(snoopLine(peer, "connected, to %s", server.RemoteAddr()))
	t := newTrace(s, peer)
	var answers sync.WaitGroup
	answers.Go(func() { pump(client, server, func([]byte, time.Time) {}, t.answer) })
	pump(server, client, t.request, func([]byte, time.Time) {})
	answers.Wait()
	t.end()
}

// snoopRead is how many bytes are forwarded at once.
const snoopRead = 32 << 10

// pump forwards the bytes of from until it ends. An orderly end is forwarded as one,
// any other end as a reset of both. before and after get the bytes before and after
// they are forwarded, because a request must be known before its answer comes.
func pump(to, from net.Conn, before, after func(b []byte, at time.Time)) {
	buf := make([]byte, snoopRead)
	for {
		n, err := from.Read(buf)
		at := time.Now()
		if n > 0 {
			before(buf[:n], at)
			if _, werr := to.Write(buf[:n]); werr != nil && err == nil {
				err = werr
			}
			after(buf[:n], at)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		}
		for _, nc := range []net.Conn{to, from} {
			if tcp, ok := nc.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = nc.Close()
		}
		return
	}
}
