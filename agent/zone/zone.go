package zone

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"rutter/log/zonename"
)

// Defaults of Config.
const (
	// DefaultEvery: 2,000 nodes away from their zone ask each server of it 100 times a
	// second, and a node is back within two minutes.
	DefaultEvery = 20 * time.Second
	// DefaultSettle: a server that was just started is not at once the only one of many.
	DefaultSettle = 30 * time.Second
	// DefaultSpread: 2,000 nodes come back at 33 a second, which is a hundredth of what a
	// server takes.
	DefaultSpread = time.Minute
	// askWithin bounds one question: a server that takes longer is not near.
	askWithin = 2 * time.Second
)

// Config configures a Chooser.
type Config struct {
	Servers []string // at least one, as Ask takes them
	// Node names the node: equal servers are tried in an order of its own, which is the
	// same after each start and whatever the order of Servers; "": that of Servers.
	Node string
	Zone string // of the node; "": none, and Ask is not called
	// Ask asks a server for its zone ("": it has none). An error means that the server is
	// not ready; the zone counts if it is not "". It may be called from several goroutines
	// at once.
	Ask func(ctx context.Context, server string) (zone string, err error)

	Every  time.Duration // between two questions of a node that is away; 0: DefaultEvery
	Settle time.Duration // for which a server is ready before a node goes back; 0: DefaultSettle
	Spread time.Duration // over which the nodes of a zone go back; 0: DefaultSpread
	// Jitter returns a random duration from 0 up to d; nil: math/rand.
	Jitter func(d time.Duration) time.Duration
	Logger *slog.Logger // nil discards
}

// place is what a node knows of a server.
type place struct {
	known  bool   // it has said its zone, or that it has none
	zone   string // the last one that it said
	asked  bool
	ready  bool // at the last question
	failed int  // attempts since a server fed the node
}

// Chooser chooses for one node. See the package comment.
type Chooser struct {
	cfg Config

	mu      sync.Mutex // protects what follows
	places  []place    // of cfg.Servers
	current int        // the server that Next returned last
	from    int        // where equals begin: at current, or behind it after it failed
	started bool
}

// New returns a Chooser, or an error about its configuration. It starts nothing.
func New(cfg Config) (*Chooser, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("zone: no servers: name at least one to follow")
	}
	if cfg.Zone != "" {
		if err := zonename.Check(cfg.Zone); err != nil {
			return nil, err
		}
		if cfg.Ask == nil {
			return nil, errors.New("zone: a node with a zone needs a way to ask servers for theirs")
		}
	}
	if cfg.Every < 0 || cfg.Settle < 0 || cfg.Spread < 0 {
		return nil, errors.New("zone: a time is negative")
	}
	cfg.Every, cfg.Settle, cfg.Spread = cmp.Or(cfg.Every, DefaultEvery), cmp.Or(cfg.Settle, DefaultSettle), cmp.Or(cfg.Spread, DefaultSpread)
	if cfg.Jitter == nil {
		cfg.Jitter = func(d time.Duration) time.Duration { return rand.N(d + 1) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Node != "" {
		cfg.Servers = orderOf(cfg.Node, cfg.Servers)
	}
	return &Chooser{cfg: cfg, places: make([]place, len(cfg.Servers))}, nil
}

// orderOf returns the servers in the order of a node: by a hash of the node and the server.
// So as many nodes begin at one server as at another, those of a server that fails share the
// others, and a server that is added or removed changes nothing between two others.
func orderOf(node string, servers []string) []string {
	type hashed struct {
		sum    [sha256.Size]byte
		server string
	}
	all := make([]hashed, 0, len(servers))
	for _, s := range servers {
		all = append(all, hashed{sha256.Sum256([]byte(node + "\x00" + s)), s})
	}
	slices.SortStableFunc(all, func(a, b hashed) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	order := make([]string, 0, len(servers))
	for _, h := range all {
		order = append(order, h.server)
	}
	return order
}

// Prefer makes a server, by its index in Config.Servers if there is no Config.Node, the first
// of its equals. It is called before Next.
func (c *Chooser) Prefer(server int) { c.from = server % len(c.places) }

// Next returns the server to try now. The first call of a node with a zone asks all servers,
// for askWithin at most.
func (c *Chooser) Next(ctx context.Context) string {
	c.mu.Lock()
	first := !c.started
	c.started = true
	c.mu.Unlock()
	if first && c.cfg.Zone != "" {
		c.ask(ctx, func(place) bool { return true })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.places)
	best := c.from
	for i := 1; i < n; i++ {
		if at := (c.from + i) % n; c.before(at, best) {
			best = at
		}
	}
	c.current, c.from = best, best
	return c.cfg.Servers[best]
}

// before reports whether the server a is tried before b, if they are not equals.
func (c *Chooser) before(a, b int) bool {
	return cmp.Or(cmp.Compare(c.places[a].failed, c.places[b].failed), cmp.Compare(c.rank(a), c.rank(b))) < 0
}

// rank orders the servers of the same number of failures.
func (c *Chooser) rank(server int) int {
	const others, unready = 2, 3
	p, rank := c.places[server], others
	switch {
	case c.cfg.Zone == "":
		return 0
	case !p.known:
		rank = 1
	case p.zone == c.cfg.Zone:
		rank = 0
	}
	if p.asked && !p.ready {
		rank += unready
	}
	return rank
}

// Failed says that the server of the last Next does not feed the node: it could not be
// reached, or sent the node away.
func (c *Chooser) Failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.places[c.current]
	p.failed++
	p.asked, p.ready = true, false
	c.from = (c.current + 1) % len(c.places)
}

// Fed says that the server of the last Next feeds the node.
func (c *Chooser) Fed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgive()
	c.places[c.current].ready = true
}

// forgive forgets the failures.
func (c *Chooser) forgive() {
	for i := range c.places {
		c.places[i].failed = 0
	}
}

// Home reports whether the server of the last Next is of the node's zone. It is true for a
// node without a zone.
func (c *Chooser) Home() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.home(c.current)
}

func (c *Chooser) home(server int) bool {
	p := c.places[server]
	return c.cfg.Zone == "" || p.known && p.zone == c.cfg.Zone
}

// ask asks the servers that want selects, all at once.
func (c *Chooser) ask(ctx context.Context, want func(place) bool) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c.mu.Lock()
	places := slices.Clone(c.places)
	c.mu.Unlock()
	var asking sync.WaitGroup
	for i, p := range places {
		if !want(p) {
			continue
		}
		asking.Go(func() {
			zone, err := c.cfg.Ask(ctx, c.cfg.Servers[i])
			c.mu.Lock()
			defer c.mu.Unlock()
			p := &c.places[i]
			p.asked, p.ready = true, err == nil
			if err == nil || zone != "" {
				p.known, p.zone = true, zone
			}
		})
	}
	asking.Wait()
}

// readyAtHome asks the servers of the node's zone and those of an unknown one. It returns
// whether one of the node's zone is ready, and one such at random, so that the nodes that go
// back share the servers of their zone.
func (c *Chooser) readyAtHome(ctx context.Context) (server int, ok bool) {
	c.ask(ctx, func(p place) bool { return !p.known || p.zone == c.cfg.Zone })
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []int
	for i := range c.places {
		if c.home(i) && c.places[i].ready {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[rand.IntN(len(all))], true
}

// Away runs while the node follows a server, beside it. It returns a server of the node's
// own zone when the node is to go back to it: the caller connects to that server, and then
// calls Moved or Refused. It returns "" when ctx ends, and once the node is known to be at
// home.
func (c *Chooser) Away(ctx context.Context) string {
	var since time.Time // since when a server is ready at each question
	for !c.Home() {
		if !pause(ctx, c.cfg.Every/2+c.cfg.Jitter(c.cfg.Every)) {
			return ""
		}
		_, ok := c.readyAtHome(ctx)
		switch {
		case !ok:
			since = time.Time{}
			continue
		case since.IsZero():
			since = time.Now()
		}
		if time.Since(since) < c.cfg.Settle {
			continue
		}
		if !pause(ctx, c.cfg.Jitter(c.cfg.Spread)) {
			return ""
		}
		if server, ok := c.readyAtHome(ctx); ok && !c.Home() {
			return c.cfg.Servers[server]
		}
		since = time.Time{}
	}
	return ""
}

// Moved says that the node goes on at a server that Away returned: as after a Next that
// returned it.
func (c *Chooser) Moved(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgive()
	c.current = slices.Index(c.cfg.Servers, server)
	c.from = c.current
}

// Refused says that a server that Away returned could not be connected to.
func (c *Chooser) Refused(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[slices.Index(c.cfg.Servers, server)].ready = false
}

// pause waits for d, and reports whether ctx lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
