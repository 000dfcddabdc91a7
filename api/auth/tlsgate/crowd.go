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

// Bounds of those who knock at a listener, and why.
const (
	// MaxHandshakes bounds the handshakes of one listener that are under way, with
	// those that have said nothing yet: about 20 MB. Beyond, one that waits for
	// its other side is closed, or connections wait in the kernel's queue.
	MaxHandshakes = 1024
	// crowdedTime bounds a handshake that begins when half of the places are taken.
	crowdedTime = 3 * time.Second
	// silentTime and answerTime are how long the other side has for its first
	// message, and for its answer to ours, before its place may go to another: a
	// machine that has much to do at once needs that long.
	silentTime = 500 * time.Millisecond
	answerTime = 3 * time.Second

	// FailedRate bounds the handshakes of one address per second that failed, or
	// showed no certificate, FailedBurst those at once. Who is over it is closed
	// unheard: each handshake costs the listener a signature.
	FailedRate  = 20
	FailedBurst = 100
	// AllFailedRate and AllFailedBurst are the same of all addresses together that
	// nobody was let in from lately: beyond, those are closed unheard, so that
	// strangers from everywhere leave those who are in their processors.
	AllFailedRate  = 150
	AllFailedBurst = 300
	// ArrivalRate and ArrivalBurst bound the connections of one compute node per
	// second, and those at once: it keeps one, and people on it use tools. Who is
	// over it is closed, and counts as one that failed.
	ArrivalRate  = 2
	ArrivalBurst = 100
	// maxArriving bounds the nodes whose connections are counted.
	maxArriving = 16384
	// knownTime is how long an address is known that somebody was let in from,
	// maxKnown how many of them are.
	knownTime = time.Hour
	maxKnown  = 16384
	// maxFailing bounds the addresses whose failures are remembered. Strangers
	// choose them.
	maxFailing = 8192

	// addressBits6 is what one site has of IPv6: all of it is one address here.
	addressBits6 = 64
)

// Why a connection was closed without a handshake.
var (
	errCrowded = errors.New("tlsgate: others need the place of one that does not answer")
	errFailing = errors.New("tlsgate: too many handshakes of this address failed")
	errOften   = errors.New("tlsgate: this compute node connects too often")
)

// crowd is who knocks at a listener and was not let in yet.
type crowd struct {
	now func() time.Time
	// turns is held while a handshake computes: half of the processors at most, so
	// that those who are in have theirs, whoever knocks.
	turns chan struct{}
	left  chan struct{} // has one when somebody has left

	mu     sync.Mutex // protects what follows, and the guests
	guests map[*guest]struct{}
	of     map[netip.Addr]int // guests of each address
	// failing and all are the handshakes that may fail yet. Those that fail are counted
	// when they have, so of many under way at once more may fail than there was left:
	// then what is left is below 0, by MaxHandshakes at most, and that is waited for.
	failing map[netip.Addr]*budget.Bucket
	all     budget.Bucket               // of all addresses that are not known
	arrived map[log.UUID]*budget.Bucket // connections of compute nodes
	known   map[netip.Addr]time.Time    // when somebody was let in last
}

// guest is a connection during its handshake. It is the net.Conn below TLS, so
// that it sees when our first answer leaves.
type guest struct {
	net.Conn
	crowd   *crowd
	address netip.Addr
	time    time.Duration // for its handshake

	stage  stage
	since  time.Time // of the stage
	reason error     // why it was closed
}

// stage is how far a guest is.
type stage uint8

const (
	silent    stage = iota // its first message has not come
	computing              // it waits for its turn, or has it
	answering              // our answer is out, and the other side's has not come
	through                // it is done, and waits to be accepted
)

// become changes the guest's stage. The crowd's mu is held.
func (g *guest) become(s stage) { g.stage, g.since = s, g.crowd.now() }

func newCrowd(now func() time.Time) *crowd {
	return &crowd{
		now: now, turns: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)), left: make(chan struct{}, 1),
		guests: make(map[*guest]struct{}), of: make(map[netip.Addr]int), failing: make(map[netip.Addr]*budget.Bucket),
		arrived: make(map[log.UUID]*budget.Bucket),
		all:     budget.Bucket{Left: AllFailedBurst, At: now()}, known: make(map[netip.Addr]time.Time),
	}
}

// enter gives a connection a place: a free one, or that of another that has kept
// us waiting; else it waits for one, or for done. errFailing: it is not wanted.
func (c *crowd) enter(raw net.Conn, done <-chan struct{}) (*guest, error) {
	g := &guest{Conn: raw, crowd: c, address: siteOf(raw.RemoteAddr()), time: HandshakeTime}
	for {
		c.mu.Lock()
		if !c.mayFail(g.address) {
			c.mu.Unlock()
			return nil, errFailing
		}
		next := c.makeRoom()
		if next == 0 {
			if len(c.guests) >= MaxHandshakes/2 {
				g.time = crowdedTime
			}
			g.become(silent)
			c.guests[g] = struct{}{}
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

// makeRoom sees to it that there is a place, and returns 0, or when to look
// again. Of those who have kept us waiting too long it closes the one that waits
// longest, of the address that has most. c.mu is held.
func (c *crowd) makeRoom() time.Duration {
	if len(c.guests) < MaxHandshakes {
		return 0
	}
	var worst *guest
	next, now := silentTime, c.now()
	for g := range c.guests {
		patience := silentTime
		switch g.stage {
		case computing, through:
			continue // it waits for us
		case answering:
			patience = answerTime
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
	worst.reason = errCrowded
	worst.Close()
	c.forget(worst)
	return 0
}

// forget takes a guest's place away. c.mu is held.
func (c *crowd) forget(g *guest) {
	if _, ok := c.guests[g]; ok {
		delete(c.guests, g)
		drop(c.of, g.address)
	}
}

func drop(counts map[netip.Addr]int, key netip.Addr) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// done notes what came of a guest's handshake, and returns the error to speak of.
// Whoever showed no certificate is let in where a port takes such, and counts as
// one that failed: strangers can be that as often as they like.
func (c *crowd) done(g *guest, who matrix.Identity, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.endTurn()
	g.become(through)
	switch {
	case g.reason != nil:
		err = g.reason // it was closed, even if it had just succeeded
	case err == nil && who.Role == matrix.CN && !c.mayArrive(who.UUID):
		err = errOften
	}
	if err == nil && who.Serial != "" {
		c.succeeded(g.address)
	} else {
		c.failed(g.address)
	}
	return err
}

// mayArrive counts a connection of a compute node, and reports whether it is not
// one too many. c.mu is held.
func (c *crowd) mayArrive(node log.UUID) bool {
	now := c.now()
	f := c.arrived[node]
	if f == nil {
		if len(c.arrived) >= maxArriving {
			clear(c.arrived) // those who go on are found again
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

// leave takes a guest's place away: it is a plain connection from now on.
func (c *crowd) leave(g *guest) {
	c.mu.Lock()
	c.forget(g)
	c.mu.Unlock()
	g.crowd = nil
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// close ends all handshakes.
func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.guests {
		g.Close()
	}
}

// mayFail reports whether an address has failures left. c.mu is held.
func (c *crowd) mayFail(address netip.Addr) bool {
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

// isKnown reports whether somebody was let in from an address lately. c.mu is held.
func (c *crowd) isKnown(address netip.Addr) bool {
	return c.now().Sub(c.known[address]) <= knownTime
}

// failed counts a failure. c.mu is held.
func (c *crowd) failed(address netip.Addr) {
	if !c.isKnown(address) {
		c.all.Left--
	}
	f := c.failing[address]
	if f == nil {
		if len(c.failing) >= maxFailing {
			clear(c.failing) // those who go on are found again
		}
		f = &budget.Bucket{Left: FailedBurst, At: c.now()}
		c.failing[address] = f
	}
	f.Left--
}

// succeeded makes an address known. c.mu is held.
func (c *crowd) succeeded(address netip.Addr) {
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

// turn waits until the guest, whose first message has come, may have our answer
// computed.
func (g *guest) turn(ctx context.Context) error {
	c := g.crowd
	select {
	case c.turns <- struct{}{}:
	default:
		c.mu.Lock()
		g.become(computing)
		c.mu.Unlock()
		select {
		case c.turns <- struct{}{}:
		case <-ctx.Done():
			c.mu.Lock()
			g.become(answering)
			c.mu.Unlock()
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.become(computing)
	return nil
}

// endTurn ends the guest's turn, if it has it. The crowd's mu is held, and the
// handshake is in no call of turn.
func (g *guest) endTurn() {
	if g.stage == computing {
		g.become(answering)
		<-g.crowd.turns
	}
}

// Write implements net.Conn: with our answer the turn is over.
func (g *guest) Write(b []byte) (int, error) {
	if c := g.crowd; c != nil {
		c.mu.Lock()
		g.endTurn()
		c.mu.Unlock()
	}
	return g.Conn.Write(b)
}

// siteOf is the address that a connection came from; of IPv6 its network, which
// one site has whole.
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
