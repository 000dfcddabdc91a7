package tlsgate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/budget"
)

// Bounds of the handshakes of a listener, and their reasons.
const (
	// MaxHandshakes bounds the pending handshakes of one listener, including
	// connections that have sent nothing yet: about 20 MB. At the bound, a handshake
	// that waits for its other side is closed, or new connections wait in the kernel's
	// queue.
	MaxHandshakes = 1024
	// busyTime bounds a handshake that begins when half of the slots are taken.
	busyTime = 3 * time.Second
	// silentTime and replyTime are how long the other side has for its first message,
	// and for its reply to ours, before another connection may take its slot. A machine
	// under load needs that long.
	silentTime = 500 * time.Millisecond
	replyTime  = 3 * time.Second

	// FailedRate bounds the handshakes of one address per second that failed, or showed
	// no certificate; FailedBurst bounds those at once. Over the bound, connections are
	// closed before the handshake, because each handshake costs the listener a
	// signature.
	FailedRate  = 20
	FailedBurst = 100
	// AllFailedRate and AllFailedBurst are the same for all unknown addresses together:
	// those without a recent successful handshake. So failing clients from many
	// addresses do not take the processors from known clients.
	AllFailedRate  = 150
	AllFailedBurst = 300
	// ArrivalRate bounds the connections of one compute node per second, ArrivalBurst
	// those at once: a node keeps one connection, and people on it use tools. Over the
	// bound a connection is closed, and counts as failed.
	ArrivalRate  = 2
	ArrivalBurst = 100
	// maxArriving bounds the nodes whose connections are counted.
	maxArriving = 16384
	// knownTime is how long an address is known after a successful handshake; maxKnown
	// bounds the known addresses.
	knownTime = time.Hour
	maxKnown  = 16384
	// maxFailing bounds the addresses whose failures are remembered, because an
	// attacker chooses them.
	maxFailing = 8192

	// addressBits6 is the prefix length of one IPv6 site: its addresses count as one.
	addressBits6 = 64
)

// Reasons why a connection was closed without a handshake.
var (
	errBusy    = errors.New("tlsgate: others need the place of one that does not answer")
	errFailing = errors.New("tlsgate: too many handshakes of this address failed")
	errOften   = errors.New("tlsgate: this compute node connects too often")
)

// handshakeTable holds the pending handshakes of a listener.
type handshakeTable struct {
	now func() time.Time
	// processors is held while a handshake computes: at most half of the processors, so that
	// accepted connections keep the others under any load.
	processors chan struct{}
	left       chan struct{} // has an element when a handshake has ended

	mu      sync.Mutex // protects what follows, and the pending handshakes
	pending map[*handshakeConn]struct{}
	of      map[netip.Addr]int // pending handshakes of each address
	// failing and all are the handshakes that may still fail. A failure is counted when
	// it happens. So more of the pending handshakes may fail than were left, and the
	// balance may fall below 0, by at most MaxHandshakes. Then clients wait until it is
	// above 0 again.
	failing map[netip.Addr]*budget.Bucket
	all     budget.Bucket               // of all unknown addresses
	arrived map[log.UUID]*budget.Bucket // connections of compute nodes
	known   map[netip.Addr]time.Time    // time of the last successful handshake
}

// handshakeConn is a connection during its handshake. It is the net.Conn below TLS, so that it
// sees when this server's first reply is sent.
type handshakeConn struct {
	net.Conn
	table   *handshakeTable
	address netip.Addr
	time    time.Duration // for its handshake

	stage  stage
	since  time.Time // of the stage
	reason error     // why it was closed
}

// stage is the progress of a handshake.
type stage uint8

const (
	silent    stage = iota // its first message has not arrived
	computing              // it waits for a processor slot, or has it
	replied                // this server's reply is sent, and the client's has not arrived
	through                // it is complete, and waits for Accept
)

// become changes the stage. The caller holds mu.
func (g *handshakeConn) become(s stage) { g.stage, g.since = s, g.table.now() }

func newHandshakeTable(now func() time.Time) *handshakeTable {
	return &handshakeTable{
		now: now, processors: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)), left: make(chan struct{}, 1),
		pending: make(map[*handshakeConn]struct{}), of: make(map[netip.Addr]int), failing: make(map[netip.Addr]*budget.Bucket),
		arrived: make(map[log.UUID]*budget.Bucket),
		all:     budget.Bucket{Left: AllFailedBurst, At: now()}, known: make(map[netip.Addr]time.Time),
	}
}

// enter gives a connection a slot: a free one, or that of a handshake whose client is
// too slow. If there is none it waits for one, or for done. errFailing: the address has
// failed too often.
func (c *handshakeTable) enter(raw net.Conn, done <-chan struct{}) (*handshakeConn, error) {
	g := &handshakeConn{Conn: raw, table: c, address: siteOf(raw.RemoteAddr()), time: HandshakeTime}
	for {
		c.mu.Lock()
		if !c.mayFail(g.address) {
			c.mu.Unlock()
			return nil, errFailing
		}
		next := c.makeRoom()
		if next == 0 {
			if len(c.pending) >= MaxHandshakes/2 {
				g.time = busyTime
			}
			g.become(silent)
			c.pending[g] = struct{}{}
			c.of[g.address]++
			c.mu.Unlock()
			return g, nil
		}
		c.mu.Unlock()
		select {
		case <-c.left:
		case <-time.After(next):
		case <-done:
			return nil, net.ErrClosed
		}
	}
}

// makeRoom returns 0 if there is a free slot, else the time to wait before the next
// call. Of the handshakes whose clients are too slow it closes the oldest one of the
// address that has the most. The caller holds c.mu.
func (c *handshakeTable) makeRoom() time.Duration {
	if len(c.pending) < MaxHandshakes {
		return 0
	}
	var worst *handshakeConn
	next, now := silentTime, c.now()
	for g := range c.pending {
		patience := silentTime
		switch g.stage {
		case computing, through:
			continue // it waits for this server
		case replied:
			patience = replyTime
		}
		if left := patience - now.Sub(g.since); left > 0 {
			next = min(next, left)
			continue
		}
		if worst == nil || c.of[g.address] > c.of[worst.address] || c.of[g.address] == c.of[worst.address] && g.since.Before(worst.since) {
			worst = g
		}
	}
	if worst == nil {
		return next
	}
	worst.reason = errBusy
	worst.Close()
	c.forget(worst)
	return 0
}

// forget frees the slot of a handshake. The caller holds c.mu.
func (c *handshakeTable) forget(g *handshakeConn) {
	if _, ok := c.pending[g]; ok {
		delete(c.pending, g)
		drop(c.of, g.address)
	}
}

func drop(counts map[netip.Addr]int, key netip.Addr) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// done records the result of a handshake, and returns the error to report. A client
// without a certificate is admitted on a port that allows it, and counts as a failure:
// its number is not bounded otherwise.
func (c *handshakeTable) done(g *handshakeConn, who matrix.Identity, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.releaseProcessor()
	g.become(through)
	switch {
	case g.reason != nil:
		err = g.reason // it was closed, even if it had just succeeded
	case err == nil && !who.UUID.IsZero() && !c.mayArrive(who.UUID):
		err = errOften
	}
	if err == nil && who.Serial != "" {
		c.succeeded(g.address)
	} else {
		c.failed(g.address)
	}
	return err
}

// mayArrive counts a connection of a compute node, and reports whether it is within the
// bound. The caller holds c.mu.
func (c *handshakeTable) mayArrive(node log.UUID) bool {
	now := c.now()
	f := c.arrived[node]
	if f == nil {
		if len(c.arrived) >= maxArriving {
			clear(c.arrived) // active nodes are counted again soon
		}
		f = &budget.Bucket{Left: ArrivalBurst, At: now}
		c.arrived[node] = f
	}
	if f.Fill(now, ArrivalRate, ArrivalBurst); f.Left < 1 {
		return false
	}
	f.Left--
	return true
}

// leave frees the slot of a handshake: it is a plain connection from now on.
func (c *handshakeTable) leave(g *handshakeConn) {
	c.mu.Lock()
	c.forget(g)
	c.mu.Unlock()
	g.table = nil
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// close ends all handshakes.
func (c *handshakeTable) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.pending {
		g.Close()
	}
}

// mayFail reports whether an address may fail once more. The caller holds c.mu.
func (c *handshakeTable) mayFail(address netip.Addr) bool {
	now := c.now()
	if c.all.Fill(now, AllFailedRate, AllFailedBurst); c.all.Left < 1 && !c.isKnown(address) {
		return false
	}
	f := c.failing[address]
	if f == nil {
		return true
	}
	f.Fill(now, FailedRate, FailedBurst)
	if f.Left >= FailedBurst {
		delete(c.failing, address)
	}
	return f.Left >= 1
}

// isKnown reports whether an address had a successful handshake recently. The caller
// holds c.mu.
func (c *handshakeTable) isKnown(address netip.Addr) bool {
	return c.now().Sub(c.known[address]) <= knownTime
}

// failed counts a failure. The caller holds c.mu.
func (c *handshakeTable) failed(address netip.Addr) {
	if !c.isKnown(address) {
		c.all.Left--
	}
	f := c.failing[address]
	if f == nil {
		if len(c.failing) >= maxFailing {
			clear(c.failing) // active addresses are counted again soon
		}
		f = &budget.Bucket{Left: FailedBurst, At: c.now()}
		c.failing[address] = f
	}
	f.Left--
}

// succeeded makes an address known. The caller holds c.mu.
func (c *handshakeTable) succeeded(address netip.Addr) {
	now := c.now()
	if _, ok := c.known[address]; !ok && len(c.known) >= maxKnown {
		for a, at := range c.known {
			if now.Sub(at) > knownTime {
				delete(c.known, a)
			}
		}
		if len(c.known) >= maxKnown {
			return
		}
	}
	c.known[address] = now
}

// acquireProcessor waits until the reply to the client's first message may be computed.
func (g *handshakeConn) acquireProcessor(ctx context.Context) error {
	c := g.table
	select {
	case c.processors <- struct{}{}:
	default:
		c.mu.Lock()
		g.become(computing)
		c.mu.Unlock()
		select {
		case c.processors <- struct{}{}:
		case <-ctx.Done():
			c.mu.Lock()
			g.become(replied)
			c.mu.Unlock()
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.become(computing)
	return nil
}

// releaseProcessor releases the processor slot, if the handshake holds it. The caller holds mu,
// and the handshake is in no call of turn.
func (g *handshakeConn) releaseProcessor() {
	if g.stage == computing {
		g.become(replied)
		<-g.table.processors
	}
}

// Write implements net.Conn. It releases the processor slot when the reply is sent.
func (g *handshakeConn) Write(b []byte) (int, error) {
	if c := g.table; c != nil {
		c.mu.Lock()
		g.releaseProcessor()
		c.mu.Unlock()
	}
	return g.Conn.Write(b)
}

// siteOf returns the address of the other side; for IPv6 its /64 network, because one
// site owns it whole.
func siteOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if network, err := address.Prefix(addressBits6); err == nil && address.Is6() {
		address = network.Addr()
	}
	return address
}
