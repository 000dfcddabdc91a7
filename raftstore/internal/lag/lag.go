// Package lag measures how far a server's state is behind the leader's, in time, and
// judges with hysteresis whether that is too far.
//
// It owns the measure and the judgement. Asking the leader is left to its caller.
//
// Concurrency: a Meter may be used from any goroutine.
package lag

import (
	"sync"
	"time"

	"rutter/log"
)

// Default is how far a replica may be behind before it is not asked: 10 s. A client that
// waits for compute nodes waits 10 s (backend.WaitTime), so the nodes of a replica that is
// further behind would fail each such wait. Under full load a replica 100 ms away is less
// than 1 s behind, and no pause of a healthy server is longer than 1 s.
const Default = 10 * time.Second

// Bounds of the period between two questions to the leader: a tenth of the bound, within
// these.
const (
	leastEvery = 100 * time.Millisecond
	mostEvery  = time.Second
)

// maxSamples bounds the positions of the leader that a meter remembers. A server that is
// further behind than so many periods is beyond any bound, and only the oldest counts.
const maxSamples = 64

// sample is a position that the leader had reached at a time.
type sample struct {
	at  time.Time
	seq log.Seq
}

// Meter measures one server.
type Meter struct {
	bound time.Duration

	mu       sync.Mutex // protects what follows
	samples  []sample   // positions of the leader that this server has not reached, the oldest first
	observed time.Time  // when the leader's position was known last
	calm     time.Time  // since when the lag is small enough to end the excess; zero: it is not
	lag      time.Duration
	over     bool
	times    uint64 // that over began
}

// New returns the meter of a server that is up to date at now. bound is the longest lag.
func New(bound time.Duration, now time.Time) *Meter { return &Meter{bound: bound, observed: now} }

// Every is the time between two questions to the leader.
func (m *Meter) Every() time.Duration { return min(max(m.bound/10, leastEvery), mostEvery) }

// Bound is the longest lag, beyond which a replica is not asked.
func (m *Meter) Bound() time.Duration { return m.bound }

// Observed notes that the leader's state was at seq at a time.
func (m *Meter) Observed(at time.Time, seq log.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observed = at
	if n := len(m.samples); n > 0 && m.samples[n-1].seq >= seq || n >= maxSamples {
		return // a later time of the same position says nothing more
	}
	m.samples = append(m.samples, sample{at, seq})
}

// Judge takes this server's own position, and reports whether the judgement changed. The
// lag is the time since the oldest position of the leader that this server has not reached,
// or since the leader's position was known, if that is longer than three periods ago.
//
// The server is over once the lag exceeds the bound. It is no longer over once the lag has
// been at most half of the bound for half of the bound.
func (m *Meter) Judge(now time.Time, own log.Seq) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.samples) > 0 && m.samples[0].seq <= own {
		m.samples = m.samples[1:]
	}
	m.lag = 0
	if len(m.samples) > 0 {
		m.lag = now.Sub(m.samples[0].at)
	}
	if silent := now.Sub(m.observed); silent > 3*m.Every() {
		m.lag = max(m.lag, silent)
	}
	switch {
	case m.lag > m.bound/2:
		m.calm = time.Time{}
	case m.calm.IsZero():
		m.calm = now
	}
	switch {
	case !m.over && m.lag > m.bound:
		m.over = true
		m.times++
		return true
	case m.over && !m.calm.IsZero() && now.Sub(m.calm) >= m.bound/2:
		m.over = false
		return true
	}
	return false
}

// Reset ends the measure, for a server that is no replica. It reports whether the server
// was over.
func (m *Meter) Reset(now time.Time) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = m.over
	m.samples, m.observed, m.calm, m.lag, m.over = nil, now, time.Time{}, 0, false
	return changed
}

// Status is what a meter has found.
type Status struct {
	Lag   time.Duration
	Over  bool   // it is not asked
	Times uint64 // that this began
}

// Status returns the result of the last judgement.
func (m *Meter) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Status{m.lag, m.over, m.times}
}
