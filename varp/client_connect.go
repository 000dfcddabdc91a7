package varp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// errBackingOff: the server failed recently and is in backoff. The cause was reported
// to the request that met it.
var errBackingOff = errors.New("varp: server failed a moment ago, left alone for now")

// peer is one server of a Client. Client.mu protects its fields, except the first three.
type peer struct {
	addr      string        // host:port
	dialing   chan struct{} // holds one token: its holder may dial
	lastReply *atomic.Int64 // unix ns of the last valid reply; 0: none

	conn       *clientConn        // nil, or the last connection, alive or not
	cancelDial context.CancelFunc // set during a dial
	failures   int                // in a row
	notBefore  time.Time          // when it may be dialled again

	at        string    // the address of conn; that of addr unless it is a name
	resolved  time.Time // when the name was looked up last
	resolving bool      // it is being looked up

	lastError   error // why the last connection ended, or was not made
	lastErrorAt time.Time
}

// connect returns the live connection to p, or makes it. Of concurrent callers one
// dials and the others wait for it.
func (c *Client) connect(ctx context.Context, p *peer) (*clientConn, error) {
	if conn, err := c.current(p); conn != nil || err != nil {
		return conn, err
	}
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, ErrClosed
	}
	if conn, err := c.current(p); conn != nil || err != nil {
		return conn, err
	}
	return c.dial(ctx, p)
}

// current returns p's connection if it is alive, an error if p may not be dialled now,
// and neither if it may be dialled.
func (c *Client) current(p *peer) (*clientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if p.conn != nil {
		cause, answered := p.conn.ended()
		if cause == nil {
			c.resolveAgainLocked(p)
			return p.conn, nil
		}
		p.lastError, p.lastErrorAt = cause, p.conn.endedAt()
		p.conn = nil
		if answered {
			p.failures = 0 // it worked until now: try again at once
		} else {
			c.failedLocked(p, cause)
		}
	}
	if time.Now().Before(p.notBefore) {
		return nil, errBackingOff
	}
	return nil, nil
}

// failedLocked records that p could not be reached, or closed the connection at once.
func (c *Client) failedLocked(p *peer, cause error) {
	p.failures++
	p.lastError, p.lastErrorAt = cause, time.Now()
	pause := c.backoff(p.failures)
	p.notBefore = time.Now().Add(pause)
	level := slog.LevelDebug
	if p.failures&(p.failures-1) == 0 { // the first failure, and then more and more rarely
		level = slog.LevelInfo
	}
	c.cfg.Logger.Log(context.Background(), level, "SVP: server failed", "server", p.addr, "in a row", p.failures, "pause", pause, "error", cause)
}

// dial connects to p and starts its connection. The caller holds the token.
func (c *Client) dial(ctx context.Context, p *peer) (*clientConn, error) {
	dialCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	p.cancelDial = cancel
	c.mu.Unlock()

	nc, at, err := c.dialAny(dialCtx, p)

	c.mu.Lock()
	defer c.mu.Unlock()
	p.cancelDial = nil
	if c.closed {
		if err == nil {
			_ = nc.Close()
		}
		return nil, ErrClosed
	}
	if err != nil {
		if ctx.Err() == nil { // otherwise our caller gave up, which says nothing about p
			c.failedLocked(p, err)
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	conn := newClientConn(nc, c.cfg.MaxPending, c.cfg.AttemptTimeout, p.lastReply)
	p.conn, p.at = conn, at
	c.running.Go(conn.readReplies)
	c.running.Go(conn.writeRequests)
	return conn, nil
}

// ServerState is what a Client knows of one of its servers.
type ServerState struct {
	Server    string    `json:"server"`            // as it was configured
	Address   string    `json:"address,omitempty"` // of the connection, host:port; "" without one
	LastReply time.Time `json:"last_reply"`        // the last valid reply; zero: none
	LastError string    `json:"last_error,omitempty"`
	// LastErrorAt is when the connection failed or could not be made; zero: never.
	LastErrorAt time.Time `json:"last_error_at"`
}

// Servers returns the state of each server, in the order of preference.
func (c *Client) Servers() []ServerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]ServerState, 0, len(c.peers))
	for _, p := range c.peers {
		s := ServerState{Server: p.addr, LastErrorAt: p.lastErrorAt}
		if at := p.lastReply.Load(); at != 0 {
			s.LastReply = time.Unix(0, at)
		}
		if p.lastError != nil {
			s.LastError = p.lastError.Error()
		}
		if p.conn != nil {
			if cause, _ := p.conn.ended(); cause == nil {
				s.Address = p.at
			} else {
				s.LastError, s.LastErrorAt = cause.Error(), p.conn.endedAt()
			}
		}
		states = append(states, s)
	}
	return states
}
