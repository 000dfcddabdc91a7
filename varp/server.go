package varp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log/refusals"
	"rutter/varp/internal/evloop"
)

// Config configures a Server. Zero means the default that is named with each field.
type Config struct {
	// Lookup answers VL2 and VL3. Required.
	Lookup Lookup

	// Events answers LOG_REQ and LOG_RM. nil: the log is always empty, which is a valid
	// answer; old clients then notice moves only by asking again.
	Events EventLog

	// Allow lists the addresses that may connect, because SVP has neither encryption
	// nor names. Empty: all may.
	Allow []netip.Prefix

	// Serving returns nil while answers may be sent: otherwise no connection is taken,
	// and open ones end without another answer. It is called for each write, and must
	// not wait. nil means always.
	Serving func() error

	// Peers identifies a peer; nil: all peers may connect (within Allow) and see every
	// vnet, which is fine on loopback. A peer that may not see a vnet is answered as if
	// the vnet were empty.
	Peers Peers

	// MaxConns bounds the open connections. Default 4,096: four times the nodes of a
	// large cell. A connection of an old client holds a few KB of buffers, a hostile
	// one at most 160 KB.
	MaxConns int

	// MaxConnsPerPeer bounds those of one peer address, so that one faulty node leaves
	// connections for all others. Default 256, and never more than MaxConns; old
	// clients open one for each server that they know.
	MaxConnsPerPeer int

	// MessageTimeout is how long a request may take from its first byte to its
	// last. Default 10 s: no old client pauses within a message.
	MessageTimeout time.Duration

	// WriteTimeout is how long a peer may leave answers unread: it is cut off after at
	// least half of this and at most all of it. Default 10 s.
	WriteTimeout time.Duration

	// IdleTimeout is the time without a request after which a connection may be closed
	// to make room for a new one when MaxConns are open. Default 10 min. If there is
	// room, an idle connection stays: linux-cn-varpd is silent for hours on a quiet
	// node, and loops without end after a FIN.
	IdleTimeout time.Duration

	// Age returns how long this node has received nothing of the log: what was applied
	// is at most that old. It is called once every ten seconds and by Stats, and must
	// not wait. nil means that the node is never cut off.
	Age func() time.Duration

	// MaxAge is the age of answers from which the server reports it, in the log and in
	// Stats. It still answers: an old mapping is right more often than none. Default 1
	// min.
	MaxAge time.Duration

	// Logger gets connections that were closed for a fault, at debug level because any
	// stranger can cause them, and when answers become older than MaxAge and fresh
	// again. Default: none.
	Logger *slog.Logger
}

// Peers identifies nodes by the addresses from which they connect, because SVP has no
// names. Its methods are called for each connection and each request, from any
// goroutine, and must not wait.
type Peers interface {
	// Allow reports whether an address is one of a known node.
	Allow(peer netip.Addr) bool
	// Sees reports whether a node at that address has a NIC on a vnet.
	Sees(peer netip.Addr, vnet uint32) bool
	// Speaks reports whether a node at that address has the underlay address whose log
	// it requests.
	Speaks(peer, underlay netip.Addr) bool
}

// withDefaults returns c with each zero replaced.
func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = 4096
	}
	if c.MaxConnsPerPeer == 0 {
		c.MaxConnsPerPeer = 256
	}
	c.MaxConnsPerPeer = min(c.MaxConnsPerPeer, c.MaxConns)
	if c.MaxAge == 0 {
		c.MaxAge = time.Minute
	}
	if c.MessageTimeout == 0 {
		c.MessageTimeout = 10 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 10 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// check names an invalid field.
func (c Config) check() error {
	switch {
	case c.Lookup == nil:
		return errors.New("varp: Config.Lookup is nil: give it what VL2 and VL3 are answered from")
	case c.MaxConns < 0:
		return fmt.Errorf("varp: Config.MaxConns is %d: want at least 1, or 0 for the default", c.MaxConns)
	case c.MaxConnsPerPeer < 0:
		return fmt.Errorf("varp: Config.MaxConnsPerPeer is %d: want at least 1, or 0 for the default", c.MaxConnsPerPeer)
	case c.MessageTimeout < 0, c.WriteTimeout < 0, c.IdleTimeout < 0, c.MaxAge < 0:
		return errors.New("varp: Config has a negative time: want a positive one, or 0 for the default")
	}
	for _, p := range c.Allow {
		if !p.IsValid() {
			return fmt.Errorf("varp: Config.Allow has the invalid prefix %q: want one as in 10.0.0.0/8", p)
		}
	}
	return nil
}

// Bounds of the pause after an error of the listener, such as a lack of file
// descriptors: long enough not to spin, short enough to go unnoticed.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// The kernel finds dead peers: a node that lost its power sends no FIN, and without a
// request in flight nothing times out. 60 s and four probes 15 s apart give it two
// minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// Server answers SVP. NewServer makes it, Run starts it.
type Server struct {
	cfg Config // immutable

	// Counts. Each is added to from any goroutine.
	counts       counters
	accepted     atomic.Uint64
	acceptErrors atomic.Uint64
	closed       [numReasons]atomic.Uint64

	loops evloop.Group // serve lookups

	refused refusals.Counter // by address, for the log

	stale atomic.Bool // it was logged that answers are older than MaxAge

	mu    sync.Mutex // protects what follows
	conns map[*conn]struct{}
	peers map[netip.Addr]int // how many of them are from each address
}

// NewServer returns a server, or an error that names the field of cfg that is missing
// or invalid. It starts nothing.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg.withDefaults(), conns: make(map[*conn]struct{}), peers: make(map[netip.Addr]int)}, nil
}

// Run serves the connections of ln until ctx ends, then closes ln and every connection,
// and returns nil once all goroutines that it started have ended. It returns an error
// only if ln was closed from outside. It may be called for several listeners at the
// same time; the limits count over all of them.
//
// A panic in Lookup or EventLog is not recovered: it is our own bug, and a server that
// hides it answers from a wrong state.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		<-ctx.Done()
		_ = ln.Close()
		s.closeAll(ln)
	})
	if _, tcp := ln.(*net.TCPListener); tcp { // the loops take connections of no other sort
		if err := s.loops.Start(); err != nil {
			s.cfg.Logger.Warn("SVP: each connection waits for itself, which is slower", "error", err)
		}
		defer s.loops.Stop()
	}
	if s.cfg.Age != nil {
		running.Go(func() { s.watchAge(ctx) })
	}
	err := s.acceptAll(ctx, ln, &running)
	cancel()
	running.Wait()
	return err
}

// acceptAll takes connections until ctx ends or ln is closed.
func (s *Server) acceptAll(ctx context.Context, ln net.Listener, running *sync.WaitGroup) error {
	pause := minAcceptPause
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("varp: listener %s: %w", ln.Addr(), err)
		case err != nil:
			s.acceptErrors.Add(1)
			s.cfg.Logger.Warn("SVP: cannot accept", "listen", ln.Addr(), "pause", pause, "error", err)
			wait(ctx, pause)
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = minAcceptPause
		if c := s.admit(ctx, ln, nc); c != nil {
			running.Go(func() { s.serve(c) })
		}
	}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// admit registers nc as a connection of ln, or closes it and returns nil.
func (s *Server) admit(ctx context.Context, ln net.Listener, nc net.Conn) *conn {
	s.accepted.Add(1)
	if !s.allowed(nc.RemoteAddr()) {
		s.refuse(nc, ClosedNotAllowed)
		return nil
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true)
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	if s.serving() != nil {
		_ = nc.Close() // the client asks another server
		return nil
	}
	if sock := s.loops.Take(nc); sock != nil {
		nc = sock
	}
	c := newConn(s, ln, nc)

	s.mu.Lock()
	why, ok := s.placeLocked(c)
	if ok && ctx.Err() != nil { // closeAll may have run already
		why, ok = ClosedShutdown, false
	}
	if ok {
		s.conns[c] = struct{}{}
		s.peers[c.peer]++
	}
	s.mu.Unlock()

	if !ok {
		s.refuse(nc, why)
		c.release()
		return nil
	}
	return c
}

// placeLocked reports whether there is room for c, and if not, why. The longest idle
// connection may be closed for it: of the same peer if that has too many, of all if
// there are too many.
func (s *Server) placeLocked(c *conn) (CloseReason, bool) {
	bound := s.cfg.MaxConnsPerPeer
	ofPeer := func(old *conn) bool { return old.peer == c.peer }
	if bound < s.cfg.MaxConns && s.peers[c.peer] >= bound && !s.evictLocked(ofPeer) {
		return ClosedPeerLimit, false
	}
	if len(s.conns) >= s.cfg.MaxConns && !s.evictLocked(func(*conn) bool { return true }) {
		return ClosedNoPlace, false
	}
	return 0, true
}

// refuse closes a connection that was never served.
func (s *Server) refuse(nc net.Conn, why CloseReason) {
	s.closed[why].Add(1)
	defer nc.Close()
	peer := addrOf(nc.RemoteAddr())
	limit, advice := s.cfg.MaxConnsPerPeer, "end the program there that opens them, or let it use fewer; old clients need one"
	switch why {
	case ClosedPeerLimit:
	case ClosedNoPlace:
		limit, advice = s.cfg.MaxConns, "let clients use more servers, or find who holds them (ss -tn)"
	case ClosedNotAllowed:
		if n := s.refused.Count(peer, time.Now()); n > 0 {
			s.cfg.Logger.Warn("SVP: connections refused: this address may not ask", "peer", peer, "reason", why, "refused", n, "do", "if a node asks from there, give it a NIC with this address in the log, underlay or admin")
		}
		return
	default:
		s.cfg.Logger.Debug("SVP: connection refused", "peer", nc.RemoteAddr(), "reason", why)
		return
	}
	if n := s.refused.Count(peer, time.Now()); n > 0 {
		s.cfg.Logger.Warn("SVP: connections refused: as many are open as the limit allows", "peer", peer, "reason", why, "limit", limit, "refused", n, "do", advice)
	}
}

// evictLocked closes the connection that has been idle for the longest, of the eligible
// ones, and reports whether there was one that had been idle for IdleTimeout.
func (s *Server) evictLocked(eligible func(*conn) bool) bool {
	var oldest *conn
	for c := range s.conns {
		if eligible(c) && (oldest == nil || c.lastUse.Load() < oldest.lastUse.Load()) {
			oldest = c
		}
	}
	if oldest == nil || time.Since(time.Unix(0, oldest.lastUse.Load())) < s.cfg.IdleTimeout {
		return false
	}
	s.removeLocked(oldest)
	oldest.evicted.Store(true)
	_ = oldest.nc.Close()
	return true
}

// removeLocked forgets c; it may have been forgotten before.
func (s *Server) removeLocked(c *conn) {
	if _, held := s.conns[c]; !held {
		return
	}
	delete(s.conns, c)
	if s.peers[c.peer]--; s.peers[c.peer] == 0 {
		delete(s.peers, c.peer)
	}
}

// closeAll closes the connections that came through ln.
func (s *Server) closeAll(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.ln == ln {
			_ = c.nc.Close()
		}
	}
}

// allowed reports whether Config.Allow lets this peer in.
func (s *Server) allowed(peer net.Addr) bool {
	ip := addrOf(peer)
	if s.cfg.Peers != nil && !s.cfg.Peers.Allow(ip) {
		return false
	}
	if len(s.cfg.Allow) == 0 {
		return true
	}
	for _, p := range s.cfg.Allow {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// addrOf returns the plain address of a TCP peer, the zero Addr for others.
func addrOf(peer net.Addr) netip.Addr {
	if tcp, ok := peer.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve runs c to its end and counts why it ended.
func (s *Server) serve(c *conn) {
	err := c.run()
	why := reasonOf(err)
	if c.evicted.Load() {
		why = ClosedIdle
	}
	if tcp, ok := c.nc.(interface{ SetLinger(seconds int) error }); ok && why == ClosedSlowReader {
		// Else the kernel would keep what the peer does not read, for minutes.
		_ = tcp.SetLinger(0)
	}
	_ = c.nc.Close()
	c.release()

	s.mu.Lock()
	s.removeLocked(c)
	s.mu.Unlock()

	s.closed[why].Add(1)
	if why != ClosedByPeer && why != ClosedShutdown {
		s.cfg.Logger.Debug("SVP: connection closed", "peer", c.nc.RemoteAddr(), "reason", why, "error", err)
	}
}

// Stats returns the counts as they are now. It may be called at any time.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	st := Stats{
		Accepted:     s.accepted.Load(),
		Open:         open,
		Pings:        s.counts[countPing].Load(),
		VL2:          s.counts[countVL2].Load(),
		VL2Misses:    s.counts[countVL2Miss].Load(),
		VL3:          s.counts[countVL3].Load(),
		VL3Misses:    s.counts[countVL3Miss].Load(),
		LogReqs:      s.counts[countLogReq].Load(),
		LogRecords:   s.counts[countLogRecord].Load(),
		LogRMs:       s.counts[countLogRM].Load(),
		Writes:       s.counts[countWrite].Load(),
		AcceptErrors: s.acceptErrors.Load(),
	}
	st.Age, st.Stale = s.age()
	for i := range s.closed {
		st.Closed[i] = s.closed[i].Load()
	}
	return st
}

// serving returns why no answer may be sent, nil if it may.
func (s *Server) serving() error {
	if s.cfg.Serving == nil {
		return nil
	}
	return s.cfg.Serving()
}

// ageCheck is how often a server checks the age of its answers. It is short compared
// with any useful MaxAge, and costs nothing.
const ageCheck = 10 * time.Second

// age returns Config.Age, and whether it is more than MaxAge.
func (s *Server) age() (time.Duration, bool) {
	if s.cfg.Age == nil {
		return 0, false
	}
	age := s.cfg.Age()
	return age, age > s.cfg.MaxAge
}

// watchAge logs once when answers become old, and once when they are fresh again, until
// ctx ends. If several run for one server, one logs.
func (s *Server) watchAge(ctx context.Context) {
	tick := time.NewTicker(ageCheck)
	defer tick.Stop()
	for {
		age, stale := s.age()
		if s.stale.CompareAndSwap(!stale, stale) {
			if stale {
				s.cfg.Logger.Warn("SVP: answers may be old: nothing came from the log", "for", age, "bound", s.cfg.MaxAge)
			} else {
				s.cfg.Logger.Info("SVP: answers are fresh again", "age", age)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
