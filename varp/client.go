package varp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
)

// The client's errors, in addition to those of the codec.
var (
	// ErrNotFound: the server has no such mapping. It is an answer, and no other server
	// is asked.
	ErrNotFound = errors.New("varp: not found")
	// ErrStatus: the server answered with a status that is neither OK nor
	// NOTFOUND; the text names it.
	ErrStatus = errors.New("varp: server reports failure")
	// ErrNoServer: no server answered in time; the text has the last cause.
	ErrNoServer = errors.New("varp: no server answered")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("varp: client closed")
)

// ClientConfig has the servers and the timeouts of a Client. Zero means the default
// that is named with each field.
type ClientConfig struct {
	// Servers are asked in this order of preference, as host:port. A name stands for
	// all its addresses, which are tried one after the other. Required.
	Servers []string

	// ResolveEvery is when a name is looked up again while it is used. If a
	// connection's address is no longer one of the name's, the connection ends after
	// the requests that are in flight on it. Default 30 s, as illumos.
	ResolveEvery time.Duration

	// Resolve looks a name up; default: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	// Timeout bounds a request over all servers and attempts. Default 5 s, longer than
	// linux keeps a neighbour in INCOMPLETE.
	Timeout time.Duration

	// AttemptTimeout bounds the time of one server: connecting to it, or its silence
	// while it owes an answer. Then the connection is closed and the next server is
	// asked. It applies to each address of a name. Default 1 s.
	AttemptTimeout time.Duration

	// MaxPending bounds the requests in flight on one connection; further requests
	// wait. Default 1,024.
	MaxPending int

	// MinBackoff and MaxBackoff bound the pause before a new connection to a server
	// that failed: doubled each time, less up to a half at random. Defaults 50 ms and 2
	// s.
	MinBackoff, MaxBackoff time.Duration

	// Dial makes the connections; default: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Logger gets failures of servers. Default: none.
	Logger *slog.Logger
}

func (c ClientConfig) withDefaults() ClientConfig {
	setDuration := func(d *time.Duration, byDefault time.Duration) {
		if *d == 0 {
			*d = byDefault
		}
	}
	setDuration(&c.Timeout, 5*time.Second)
	setDuration(&c.AttemptTimeout, time.Second)
	setDuration(&c.ResolveEvery, 30*time.Second)
	setDuration(&c.MinBackoff, 50*time.Millisecond)
	setDuration(&c.MaxBackoff, 2*time.Second)
	if c.MaxPending == 0 {
		c.MaxPending = 1024
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c ClientConfig) check() error {
	if len(c.Servers) == 0 {
		return errors.New("varp: ClientConfig.Servers is empty: name at least one, as in 10.0.0.1:1296")
	}
	for _, addr := range c.Servers {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return fmt.Errorf("varp: server %q: want host:port, as in svp.example.com:1296 or [fd00::1]:1296", addr)
		}
	}
	if c.Timeout < 0 || c.AttemptTimeout < 0 || c.ResolveEvery < 0 || c.MinBackoff < 0 || c.MaxBackoff < 0 || c.MaxPending < 0 {
		return errors.New("varp: ClientConfig has a negative limit: want a positive one, or 0 for the default")
	}
	return nil
}

// maxRounds is how often all servers are tried for one request. SVP requests may be
// repeated. Two rounds are enough for a server that closed an idle connection or was
// just restarted, and the failure is still reported soon.
const maxRounds = 2

// Client asks SVP servers. Its methods may be called from any goroutine; concurrent
// requests are pipelined on one connection.
type Client struct {
	cfg ClientConfig // immutable

	done    chan struct{}  // closed by Close
	running sync.WaitGroup // goroutines of connections; added to under mu, before done

	mu     sync.Mutex // protects the peers' fields
	peers  []*peer    // in order of preference
	closed bool
}

// NewClient returns a client, or an error that says what cfg lacks. It neither connects
// nor starts anything: the first request connects.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg.withDefaults(), done: make(chan struct{})}
	for _, addr := range cfg.Servers {
		c.peers = append(c.peers, &peer{addr: addr, dialing: make(chan struct{}, 1), lastReply: new(atomic.Int64)})
	}
	return c, nil
}

// Close ends all connections, fails requests in flight with ErrClosed, and returns when
// every goroutine of the client has ended.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.done)
		for _, p := range c.peers {
			if p.cancelDial != nil {
				p.cancelDial()
			}
			if p.conn != nil {
				p.conn.fail(ErrClosed)
			}
		}
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// VL2 returns the underlay of the NIC with this MAC, or ErrNotFound.
func (c *Client) VL2(ctx context.Context, vnet uint32, mac log.MAC) (Underlay, error) {
	body, err := c.ask(ctx, OpVL2Ack, VL2Req{MAC: mac, VNet: vnet}.Append)
	if err != nil {
		return Underlay{}, err
	}
	ack, err := ParseVL2Ack(body)
	if err != nil {
		return Underlay{}, badReply(err)
	}
	return ack.Underlay, statusError(OpVL2Req, ack.Status)
}

// VL3 returns the MAC and the underlay of the overlay address ip, which may be
// IPv4-mapped, or ErrNotFound.
func (c *Client) VL3(ctx context.Context, vnet uint32, ip netip.Addr) (log.MAC, Underlay, error) {
	req := VL3Req{IP: ip.Unmap(), Type: L3TypeIPv6, VNet: vnet}
	if req.IP.Is4() {
		req.Type = L3TypeIPv4
	}
	body, err := c.ask(ctx, OpVL3Ack, req.Append)
	if err != nil {
		return log.MAC{}, Underlay{}, err
	}
	ack, err := ParseVL3Ack(body)
	if err != nil {
		return log.MAC{}, Underlay{}, badReply(err)
	}
	return ack.MAC, ack.Underlay, statusError(OpVL3Req, ack.Status)
}

// Ping returns nil once a server has answered.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, OpPong, func(dst []byte, id uint32) []byte {
		return Append(dst, OpPing, id, nil)
	})
	return err
}

// LogRequest returns records of the shootdown log for the node with underlay address
// cn, in a LOG_ACK of at most maxBytes, which must be from 4 to MaxBody. The same
// records come again until LogRemove names them.
func (c *Client) LogRequest(ctx context.Context, cn netip.Addr, maxBytes int) ([]Record, error) {
	if maxBytes < statusSize || maxBytes > MaxBody {
		return nil, fmt.Errorf("varp: LOG_REQ for %d bytes: want from %d to %d", maxBytes, statusSize, MaxBody)
	}
	body, err := c.ask(ctx, OpLogAck, LogReq{Count: uint32(maxBytes), CN: cn}.Append)
	if err != nil {
		return nil, err
	}
	status, records, err := ParseLogAck(body, nil)
	if err != nil {
		return nil, badReply(err)
	}
	return records, statusError(OpLogReq, status)
}

// maxLogRM is how many ids a LOG_RM of MaxBody bytes holds.
const maxLogRM = (MaxBody - logRMHead) / uuidSize

// LogRemove acknowledges the records of ids, at most 1,023.
func (c *Client) LogRemove(ctx context.Context, ids []log.UUID) error {
	if len(ids) > maxLogRM {
		return fmt.Errorf("varp: LOG_RM of %d ids: at most %d at a time", len(ids), maxLogRM)
	}
	body, err := c.ask(ctx, OpLogRMAck, func(dst []byte, id uint32) []byte {
		return AppendLogRM(dst, id, ids)
	})
	if err != nil {
		return err
	}
	status, err := ParseLogRMAck(body)
	if err != nil {
		return badReply(err)
	}
	return statusError(OpLogRM, status)
}

func statusError(op Op, s Status) error {
	switch s {
	case StatusOK:
		return nil
	case StatusNotFound:
		return fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	return fmt.Errorf("%s: %s: %w", op, s, ErrStatus)
}

// ask sends a request to the first server that accepts it and returns the body of its
// answer, whose op is want.
func (c *Client) ask(ctx context.Context, want Op, encode encoder) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var last error
	for range maxRounds {
		body, err := c.askEach(bounded, want, encode, &last)
		switch {
		case err == nil:
			return body, nil
		case errors.Is(err, ErrClosed):
			return nil, ErrClosed
		case ctx.Err() != nil && last != nil: // the caller gave up: the error says what it waited for
			return nil, fmt.Errorf("varp: %w: %w", ctx.Err(), last)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("varp: %w", ctx.Err())
		case bounded.Err() != nil:
			return nil, noServer(cmp.Or(last, err))
		}
	}
	return nil, noServer(last)
}

func noServer(last error) error {
	return fmt.Errorf("%w: %w", ErrNoServer, last)
}

// askEach tries each server once, except those in backoff. If all of them are, it waits
// for the first to leave backoff. It stores in last why a server failed.
func (c *Client) askEach(ctx context.Context, want Op, encode encoder, last *error) ([]byte, error) {
	if err := c.awaitPeer(ctx); err != nil {
		return nil, err
	}
	for _, p := range c.peers {
		conn, err := c.connect(ctx, p)
		if errors.Is(err, errBackingOff) {
			if *last == nil {
				*last = err
			}
			continue
		}
		if err == nil {
			var body []byte
			if body, err = conn.roundTrip(ctx, want, encode); err == nil {
				return body, nil
			}
		}
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return nil, err
		}
		*last = fmt.Errorf("server %s: %w", p.addr, err)
	}
	return nil, *last
}

// awaitPeer returns when at least one server may be tried.
func (c *Client) awaitPeer(ctx context.Context) error {
	c.mu.Lock()
	var first time.Time
	for i, p := range c.peers {
		if i == 0 || p.notBefore.Before(first) {
			first = p.notBefore
		}
	}
	c.mu.Unlock()
	pause := time.Until(first)
	if pause <= 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return ErrClosed
	}
}

// backoff returns the pause after a number of failures in a row, from 1: half of it is
// fixed, half random, so that the clients of a server that comes back do not all
// connect at once.
func (c *Client) backoff(failures int) time.Duration {
	d := c.cfg.MinBackoff
	for i := 1; i < failures && d < c.cfg.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, c.cfg.MaxBackoff)
	return d/2 + rand.N(d/2+1)
}
