package peer

import (
	"context"
	"time"
)

// A connection that a firewall or the peer's host forgot carries nothing more, and TCP itself
// takes a quarter of an hour to say so (tcp_retries2). All requests to a peer share one
// connection, so each of them would end by its own time until then. A peer whose disk hangs
// leaves requests unanswered as well, for as long as a change may wait: it must not lose its
// connection for that, because the changes that wait would end with an unknown fate. A probe
// tells the two apart.
const (
	// silence is how long a peer may answer nothing before a call that ends without an answer
	// causes a probe: three times what a request waits that a server answers from memory
	// (raftstore's identityWait), so that one lost segment of a slow network causes none.
	silence = 3 * time.Second
	// probeWait is how long a peer has then to answer anything. TCP sends a lost segment again
	// after 0.2 s, 0.6 s and 1.4 s.
	probeWait = 3 * time.Second
	// probeKind is the kind of a request that asks for nothing. No server knows it, and each
	// says so at once, from memory; also those of older programs.
	probeKind byte = 0
)

// sent notes that a request goes out. The caller has locked l.mu.
func (l *connection) sent() {
	if l.silent.IsZero() {
		l.silent = time.Now()
	}
}

// answered notes that an answer came. The caller has locked l.mu.
func (l *connection) answered() { l.silent = time.Time{} }

// suspect reports whether the peer has answered nothing for so long that the caller must probe.
func (l *connection) suspect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.probing || l.silent.IsZero() || time.Since(l.silent) < silence {
		return false
	}
	l.probing = true
	return true
}

// Probes returns how many probes were begun, and how many of them gave up their connection.
func (c *Client) Probes() (begun, givenUp uint64) { return c.probes.Load(), c.silent.Load() }

// probe gives up the connection if nothing is heard of the peer within probeWait.
func (c *Client) probe(address string, l *connection) {
	ctx, cancel := context.WithTimeout(c.port.ctx, probeWait)
	defer cancel()
	answer := make(chan Frame, 1)
	l.mu.Lock()
	since := l.silent
	if l.waiting == nil || since.IsZero() {
		l.probing = false
		l.mu.Unlock()
		return // it was lost, or an answer came
	}
	l.next++
	number := l.next
	l.waiting[number] = answer
	l.mu.Unlock()
	c.probes.Add(1)
	if l.send(ctx, Frame{Number: number, Kind: probeKind}) {
		select {
		case <-answer:
		case <-l.done:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.probing = false
	dead := l.waiting != nil && l.silent.Equal(since)
	delete(l.waiting, number)
	l.mu.Unlock()
	if dead {
		c.silent.Add(1)
		c.port.opts.Logger.Info("the connection to a peer is given up: it answers nothing", "peer", address, "for", time.Since(since).Truncate(time.Second))
		l.close()
	}
}
