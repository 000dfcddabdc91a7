// Package network is a simulated TCP network between the hosts of a simulated cluster: delay,
// loss as TCP shows it, one-way cuts, connections that are half open or reset, hosts that are
// paused, killed or down. It carries bytes and knows nothing of what they mean.
//
// It is made for bubbles of testing/synctest: it waits on channels and timers of the bubble
// only, and everything that it decides comes from the seed. Nothing runs on its own: a byte that
// is under way is a number in a queue until a reader's timer finds that it has arrived, so that
// there is no goroutine and no timer per packet, and nothing to stop but Net.Close.
//
// A Write puts bytes into a bounded queue and returns at once while there is room, as into the
// buffers of two sockets. A full queue blocks it until its reader has taken some, or until its
// deadline, as a kernel does. In a bubble, time stands still while a goroutine waits for a
// mutex: if a mutex is held by a Write that waits for a full queue, and is asked for by another
// goroutine, then time goes on only if the reader can run in the same instant.
package network

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// Base is the delay of each way between two hosts that no Link adds to. It is not zero,
	// or two programs that answer each other would stop the bubble's clock.
	Base = 200 * time.Microsecond
	// Buffer bounds the bytes that were written and not read, in each direction of a
	// connection. It is in the range of Linux's buffers of a sender and a receiver together.
	Buffer = 256 << 10
	// RTO is the time after which TCP sends a segment again, the least of Linux. It doubles
	// each time, up to MaxRTO.
	RTO = 200 * time.Millisecond
	// MaxRTO is the most that TCP waits before it sends again (TCP_RTO_MAX of Linux).
	MaxRTO = 120 * time.Second
	// SYNTime is the time after which an unanswered SYN is sent again; it doubles each time.
	SYNTime = time.Second
	// KeepAlive is the interval of the keep-alive probes that Go's sockets send when idle.
	KeepAlive = 15 * time.Second
	// Silence is how long a connection lives whose path is dead: ten KeepAlive, as of a
	// socket of Go.
	Silence = 10 * KeepAlive
	// Backlog bounds the connections that wait for Accept, as net.core.somaxconn.
	Backlog = 4096
	// segment is the most that is delayed or lost at once, in bytes: a few segments of
	// Ethernet. The scopes and images of small clusters must have several, so that a
	// connection can end within one.
	segment = 4 << 10
	// maxLosses bounds the losses of one segment in a row.
	maxLosses = 6
)

// Link is how one direction between two hosts differs from a good network.
type Link struct {
	Delay  time.Duration // in addition to Base
	Jitter time.Duration // at most this much more, drawn for each segment
	Loss   int           // percent of the segments that are sent again, after RTO
	Cut    bool          // everything is dropped, and no end is told
}

// plus returns the link that suffers from both.
func (l Link) plus(m Link) Link {
	return Link{Delay: l.Delay + m.Delay, Jitter: l.Jitter + m.Jitter, Loss: max(l.Loss, m.Loss), Cut: l.Cut || m.Cut}
}

type way struct{ from, to string }

// Net is a network. Its methods, and those of everything that it makes, may be called at the
// same time by goroutines of the bubble in which it was made.
type Net struct {
	seed uint64

	mu      sync.Mutex
	hosts   map[string]*Host
	byIP    map[string]*Host
	rules   map[way]Link
	links   map[way]Link // rules, put together; made when they are asked for
	ends    map[*conn]struct{}
	numbers map[way]uint64 // connections that were made so far
	counts  map[string]int
	closed  bool
}

// New returns an empty network, in which nothing goes wrong yet.
func New(seed uint64) *Net {
	return &Net{
		seed: seed, hosts: make(map[string]*Host), byIP: make(map[string]*Host), rules: make(map[way]Link), links: make(map[way]Link),
		ends: make(map[*conn]struct{}), numbers: make(map[way]uint64), counts: make(map[string]int),
	}
}

// Host returns the host of a name. The first call makes it, with the next address of 10.0.0.0/8.
func (n *Net) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[name]; h != nil {
		return h
	}
	i := len(n.hosts) + 1
	h := &Host{n: n, name: name, ip: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).To4(), listeners: make(map[int]*listener), port: firstPort}
	n.hosts[name], n.byIP[h.ip.String()] = h, h
	return h
}

// Set makes one way between two hosts what l says; "" is every host. A later call with the same
// names replaces an earlier one, and the zero Link ends it. Where several rules meet, their
// delays add up, the higher loss counts, and one cut is enough.
func (n *Net) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l == (Link{}) {
		delete(n.rules, way{from, to})
	} else {
		n.rules[way{from, to}] = l
	}
	clear(n.links)
	n.changed(from, to)
}

// Reset resets the connections that exist between two hosts; "" is every host. What is under
// way is lost.
func (n *Net) Reset(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.between(from, to) {
		now := time.Now()
		c.in.drop(now)
		c.in.reset(now)
		n.counts["connections reset by a fault"]++
	}
	n.changed(from, to)
}

// HalfOpen makes the connections that exist between two hosts carry nothing more; neither
// end is told. They end by Silence.
func (n *Net) HalfOpen(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.between(from, to) {
		c.halfOpen = true
		n.counts["connections half open"]++
	}
	n.changed(from, to)
}

// Counts returns how often what happened since New: of coverage, and of bounds.
func (n *Net) Counts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	counts := maps.Clone(n.counts)
	for c := range n.ends {
		counts["connections open"]++
		counts["bytes queued"] += c.out.queued()
	}
	counts["connections open"] /= 2
	return counts
}

// Close ends everything: each operation of each connection, listener and dial returns an error.
func (n *Net) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, h := range n.hosts {
		h.end()
	}
	for c := range n.ends {
		c.state = buried
		c.wake()
	}
}

// link returns what the rules say of one way.
func (n *Net) link(from, to string) Link {
	if from == to {
		return Link{}
	}
	l, ok := n.links[way{from, to}]
	if !ok {
		for _, r := range []way{{from, to}, {from, ""}, {"", to}, {"", ""}} {
			l = l.plus(n.rules[r])
		}
		n.links[way{from, to}] = l
	}
	return l
}

// between returns the ends of connections between two hosts, on either side.
func (n *Net) between(a, b string) []*conn {
	is := func(name string, h *Host) bool { return name == "" || name == h.name }
	var found []*conn
	for c := range n.ends {
		if is(a, c.host) && is(b, c.peer.host) || is(b, c.host) && is(a, c.peer.host) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return found
}

// changed lets the connections between two hosts find out what can still arrive.
func (n *Net) changed(a, b string) {
	now := time.Now()
	for _, c := range n.between(a, b) {
		c.resume(now)
	}
}

// draw returns the random numbers of the next thing that happens on a way.
func (n *Net) draw(from, to string) *rand.Rand {
	n.numbers[way{from, to}]++
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\x00%s\x00%d", from, to, n.numbers[way{from, to}])
	return rand.New(rand.NewPCG(n.seed, sum.Sum64()))
}

// travel returns how long a segment takes on a link, with what is sent again.
func (n *Net) travel(l Link, rng *rand.Rand, local bool) time.Duration {
	if local {
		return 0
	}
	took := Base + l.Delay
	if l.Jitter > 0 {
		took += time.Duration(rng.Int64N(int64(l.Jitter)))
	}
	for i := 0; i < maxLosses && l.Loss > 0 && rng.IntN(100) < l.Loss; i++ {
		took += RTO << i
		n.counts["segments sent again"]++
	}
	return took
}

// again returns the first time after now at which TCP sends again what it sent first at since.
func again(since, now time.Time) time.Time {
	for wait := RTO; ; wait = min(2*wait, MaxRTO) {
		if since = since.Add(wait); since.After(now) {
			return since
		}
	}
}
