package agentsim

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"rutter/agent/zone"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
	"rutter/log/feed"
)

// Dialer opens a connection of the feed; *client.Client does.
type Dialer interface {
	Feed(ctx context.Context, server string) (net.Conn, error)
}

// Config is the configuration of a fleet.
type Config struct {
	Agents int
	// Dialer is used by all agents. If DialerOf is not nil, each agent has its own.
	Dialer   Dialer
	DialerOf func(cn log.UUID) Dialer
	Servers  []string
	// First is the first server of agent i: Servers[First(i)]. nil spreads the agents
	// evenly.
	First func(i int) int
	// Zone is the zone of agent i; nil: none has one. Ask asks a server for its own, and
	// the times are those of zone.Config.
	Zone                              func(i int) string
	Ask                               func(ctx context.Context, server string) (string, error)
	ZoneEvery, ZoneSettle, ZoneSpread time.Duration
	// The delay of an entry is measured from the entry's own time, which is this
	// machine's clock if the leader runs here.
	BackoffMin, BackoffMax time.Duration // defaults 100 ms and 5 s; those of package agent are 100 ms and 2 s
}

// Fleet is the agents.
type Fleet struct {
	cfg    Config
	agents []*agent
	stamps stamps

	entries, bookmarks, scopes, objects, connects, drains, failures, moves atomic.Uint64

	renewed atomic.Uint64 // agents that dropped their state, and have had a bookmark since
	live    atomic.Int64  // agents that have had a bookmark on their connection
}

// Counts are the counts of a fleet since New.
type Counts struct {
	Entries   uint64 `json:"entries"`
	Bookmarks uint64 `json:"bookmarks"`
	Scopes    uint64 `json:"scopes"`  // sent whole
	Objects   uint64 `json:"objects"` // of those
	Connects  uint64 `json:"connects"`
	Drains    uint64 `json:"drains"`
	Failures  uint64 `json:"failures"` // connections that ended, or could not be made
	Moves     uint64 `json:"moves"`    // of agents back to their zone
	Live      int64  `json:"live"`     // agents that are connected and have had a bookmark since
}

// New returns a fleet; it starts nothing. It panics if cfg has no servers, or wrong names of
// zones: a bench is a program of ours.
func New(cfg Config) *Fleet {
	if cfg.BackoffMin == 0 {
		cfg.BackoffMin, cfg.BackoffMax = 100*time.Millisecond, 5*time.Second
	}
	f := &Fleet{cfg: cfg}
	for i := range cfg.Agents {
		a := &agent{fleet: f, cn: CN(i), incarnation: uint64(time.Now().UnixMilli()), dialer: cfg.Dialer, choose: cfg.chooser(i)}
		if cfg.DialerOf != nil {
			a.dialer = cfg.DialerOf(a.cn)
		}
		f.agents = append(f.agents, a)
	}
	return f
}

// chooser returns what chooses the servers of agent i.
func (c *Config) chooser(i int) *zone.Chooser {
	of := zone.Config{Servers: c.Servers, Ask: c.Ask, Every: c.ZoneEvery, Settle: c.ZoneSettle, Spread: c.ZoneSpread}
	if c.Zone != nil {
		of.Zone = c.Zone(i)
	}
	choose, err := zone.New(of)
	if err != nil {
		panic(err)
	}
	if c.First != nil {
		i = c.First(i)
	}
	choose.Prefer(i)
	return choose
}

// Following returns how many agents are connected to each server.
func (f *Fleet) Following() map[string]int {
	all := make(map[string]int)
	for _, a := range f.agents {
		a.mu.Lock()
		if a.conn != nil {
			all[a.server]++
		}
		a.mu.Unlock()
	}
	return all
}

// CN returns the UUID of the i-th compute node.
func CN(i int) log.UUID {
	id := log.UUID{0: 0xa6, 6: 0x40, 8: 0x80}
	binary.BigEndian.PutUint32(id[12:], uint32(i+1))
	return id
}

// Run runs the agents until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, a := range f.agents {
		running.Go(func() { a.run(ctx) })
	}
	running.Go(func() { f.sendDueWatermarks(ctx) })
	running.Wait()
}

// sendDueWatermarks sends the watermarks that had to wait.
func (f *Fleet) sendDueWatermarks(ctx context.Context) {
	tick := time.NewTicker(feed.TellLazily)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, a := range f.agents {
			if a.watermarkDue.Load() {
				a.sendWatermark(true)
			}
		}
	}
}

// Counts returns the counts so far.
func (f *Fleet) Counts() Counts {
	return Counts{
		Entries: f.entries.Load(), Bookmarks: f.bookmarks.Load(), Scopes: f.scopes.Load(), Objects: f.objects.Load(), Connects: f.connects.Load(),
		Drains: f.drains.Load(), Failures: f.failures.Load(), Moves: f.moves.Load(), Live: f.live.Load(),
	}
}

// Forget makes all agents drop their state and their connections. They connect again as
// nodes with empty disks.
func (f *Fleet) Forget() {
	for _, a := range f.agents {
		a.dropState.Store(true)
		a.mu.Lock()
		if a.conn != nil {
			a.conn.Close()
		}
		a.mu.Unlock()
	}
}

// AwaitLive waits until n agents are connected and have had a bookmark.
func (f *Fleet) AwaitLive(ctx context.Context, n int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for f.live.Load() < int64(n) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// AwaitSeq waits until every agent has had a bookmark at or beyond seq.
func (f *Fleet) AwaitSeq(ctx context.Context, seq log.Seq) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, a := range f.agents {
		for log.Seq(a.marked.Load()) < seq {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// Delays returns the delays of the entries since the last call, at all agents.
func (f *Fleet) Delays() *load.Histogram {
	all := new(load.Histogram)
	for _, a := range f.agents {
		a.mu.Lock()
		if a.delays != nil {
			all.Merge(a.delays)
			a.delays = nil
		}
		a.mu.Unlock()
	}
	return all
}

func (f *Fleet) backoff(attempts int) time.Duration {
	d := f.cfg.BackoffMin
	for n := len(f.cfg.Servers); n < attempts && d < f.cfg.BackoffMax; n++ {
		d = min(2*d, f.cfg.BackoffMax)
	}
	return d - rand.N(d/2+1)
}

// stamps keeps the times of entries, so that each entry is decoded once and not by each
// agent.
type stamps struct {
	slots [1 << 16]struct {
		seq atomic.Uint64
		at  atomic.Int64
	}
}

// of returns the time of an entry, given by its seq and its encoded event.
func (s *stamps) of(seq log.Seq, event func() []byte) log.Time {
	slot := &s.slots[uint64(seq)%uint64(len(s.slots))]
	if slot.seq.Load() == uint64(seq) {
		return log.Time(slot.at.Load())
	}
	e, err := log.DecodeEvent(event())
	if err != nil {
		return 0
	}
	slot.at.Store(int64(e.Time))
	slot.seq.Store(uint64(seq))
	return e.Time
}
