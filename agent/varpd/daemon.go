package varpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/miss"
)

const (
	// maxQueued bounds the misses between those that hear them and the loop.
	maxQueued = 16384
	// scanPause is the least time between two looks at the links, and scanShare
	// how often the time of the last one goes into it: a look costs a millisecond
	// for each namespace or so, and links of others may come and go all the time.
	scanPause = 20 * time.Millisecond
	scanShare = 4
	// sweepEvery is how often the kernel is compared with the tables although
	// nobody said that anything changed.
	sweepEvery = time.Minute
	// tickEvery is how often old entries are looked for.
	tickEvery = 500 * time.Millisecond
	// batchDelay bounds the answers that go to the kernel together.
	batchDelay = 1024
)

// Daemon is the stand-in. One that New made works when Run is called.
type Daemon struct {
	cfg   Config // immutable
	stats counters

	misses      chan miss.Miss
	wakes       chan struct{}
	lost        chan struct{}   // misses were lost
	resolutions chan resolution // room for all that are under way: who answers never waits
	records     chan *batch
	localAddrs  atomic.Pointer[[]netip.Addr] // the underlay addresses of this node

	ready   chan struct{}  // closed when the links were looked at first
	running sync.WaitGroup // questions under way

	// The rest belongs to the goroutine of loop.

	links     links
	tables    tables
	queries   queries
	deferred  []miss.Miss             // of links that the last look did not show
	unknown   map[linkIndex]time.Time // links that a look did not show, and when
	dirty     bool                    // the links are to be looked at
	scannedAt time.Time               // when the last look ended
	scanTook  time.Duration
	troubles  map[string]bool // said, and not over yet
}

// New returns a daemon, or an error that names what cfg lacks. It starts
// nothing.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Daemon{
		cfg: cfg, misses: make(chan miss.Miss, maxQueued), wakes: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		ready: make(chan struct{}), resolutions: make(chan resolution, cfg.MaxInFlight), records: make(chan *batch),
		tables: newTables(), queries: queries{byKey: map[key]*query{}}, troubles: map[string]bool{}, unknown: map[linkIndex]time.Time{},
	}, nil
}

// Ready returns what is closed once Run has looked at the links.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// ErrNoServer: no server answered the first PING.
var ErrNoServer = errors.New("varpd: no SVP server answers")

// Run works until ctx ends, and returns once all that it started has ended. Like
// linux-cn-varpd it returns an error at once, ErrNoServer, if no server answers
// a PING; later it outlives any silence. What is in the kernel stays there, so
// that traffic goes on while a new version starts.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.pingFirst(ctx); err != nil {
		return err
	}
	if err := d.scan(ctx); err != nil {
		return ended(err)
	}
	d.cfg.Logger.Info("varpd runs", "fabrics", len(d.links.fabrics), "vnets", len(d.links.vxlans), "taken over", len(d.tables.neighs)+len(d.tables.forwards))
	close(d.ready)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.cfg.Listen(ctx, missListener{d}) })
	g.Go(func() error { return d.cfg.Watch(ctx, d.Rescan) })
	g.Go(func() error { return d.loop(ctx) })
	if d.cfg.PollEvery > 0 {
		g.Go(func() error { return d.pollAll(ctx) })
	}
	err := g.Wait()
	d.running.Wait()
	return ended(err)
}

// ended is the error of what ctx may have ended.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pingFirst asks for a PONG.
func (d *Daemon) pingFirst(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Greeting)
	defer cancel()
	var cause error
	for cause == nil || bounded.Err() == nil {
		err := d.cfg.Resolver.Ping(bounded)
		if err == nil {
			return nil
		}
		// One that the end of the time cut short may know less than one before it.
		if cause == nil || bounded.Err() == nil {
			cause = err
		}
		wait(bounded, scanPause)
	}
	if ctx.Err() != nil {
		return nil // look ends with it
	}
	return fmt.Errorf("%w a PING within %s: %w", ErrNoServer, d.cfg.Greeting, cause)
}

// wait returns after t, or when ctx ends.
func wait(ctx context.Context, t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// missListener is the Daemon as what listens for misses sees it.
type missListener struct{ *Daemon }

// Resolve implements miss.Resolver. It never blocks.
func (d missListener) Resolve(_ context.Context, misses []miss.Miss) {
	d.stats.misses.Add(uint64(len(misses)))
	for _, m := range misses {
		select {
		case d.misses <- m:
		default:
			d.stats.dropped.Add(1)
			d.noteLost()
		}
	}
}

// Lost implements miss.Resolver.
func (d missListener) Lost(context.Context) {
	d.stats.lost.Add(1)
	d.noteLost()
}

func (d missListener) noteLost() {
	select {
	case d.lost <- struct{}{}:
	default:
	}
}

// Rescan has the links looked at soon. It may be called from any goroutine, and
// never blocks.
func (d *Daemon) Rescan() {
	select {
	case d.wakes <- struct{}{}:
	default:
	}
}

// loop owns the tables and the kernel.
func (d *Daemon) loop(ctx context.Context) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	again := time.NewTimer(scanPause) // for a look that came too early
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-d.misses:
			d.takeMisses(m)
		case a := <-d.resolutions:
			d.takeResolutions(ctx, a)
		case b := <-d.records:
			d.takeRecords(b)
		case <-d.lost:
			d.readPending(d.links.namespaces)
		case <-d.wakes:
			d.dirty = true
			clear(d.unknown)
		case <-again.C:
		case now := <-tick.C:
			d.refresh(now)
			d.dirty = d.dirty || now.Sub(d.scannedAt) >= sweepEvery
		}
		if d.dirty {
			if pause := max(scanPause, scanShare*d.scanTook) - time.Since(d.scannedAt); pause > 0 {
				again.Reset(pause)
			} else if err := d.scan(ctx); err != nil {
				return err
			}
		}
		d.send(ctx)
	}
}

// takeMisses takes the first miss and those that wait behind it.
func (d *Daemon) takeMisses(m miss.Miss) {
	now := time.Now()
	for n := 0; ; n++ {
		d.takeMiss(m, now)
		if n == batchDelay {
			return
		}
		select {
		case m = <-d.misses:
		default:
			return
		}
	}
}

// unknownFor is how long misses of a link that a look did not show are passed
// over without another look. What changes links ends it.
const unknownFor = 5 * time.Second

// takeMiss makes a question of a miss.
func (d *Daemon) takeMiss(m miss.Miss, now time.Time) {
	from := linkIndex{m.Namespace, m.Link}
	p, isFabric := d.links.fabrics[from]
	vnet, isDevice := d.links.devices[from]
	switch {
	case isFabric && m.Kind == miss.Neighbour:
		if m.IP.IsLinkLocalUnicast() || m.IP.IsMulticast() {
			d.stats.foreign.Add(1) // nobody's NIC in SVP
			return
		}
		if a := d.askMiss(key{vnet: d.links.vnetOf[p], ip: m.IP.Unmap()}, now); a != nil {
			a.link(p)
		}
	case isDevice && m.Kind == miss.Forward:
		if a := d.askMiss(key{vnet: vnet, mac: m.MAC}, now); a != nil {
			a.direct = true
		}
	case isFabric || isDevice || now.Sub(d.unknown[from]) < unknownFor || len(d.deferred) >= batchDelay:
		d.stats.foreign.Add(1)
	default:
		d.deferred, d.dirty = append(d.deferred, m), true
	}
}

// askMiss notes a question about what is missed, and returns it, unless the
// answer is known to be that nobody has it.
func (d *Daemon) askMiss(k key, now time.Time) *query {
	if d.tables.isAbsent(k, now) {
		d.stats.believed.Add(1)
		return nil
	}
	return d.ask(k, false)
}

// readPending takes what links miss just now.
func (d *Daemon) readPending(namespaces map[string]int32) {
	now := time.Now()
	for name, number := range namespaces {
		misses, err := d.cfg.Pending(name)
		if err != nil {
			d.cfg.Logger.Debug("varpd: pending neighbours", "namespace", name, "error", err)
			continue // it went; or they come again in a second
		}
		for _, m := range misses {
			m.Namespace = number
			d.takeMiss(m, now)
		}
	}
}

// refresh asks again for what is old, and forgets what is not believed any more.
func (d *Daemon) refresh(now time.Time) {
	d.tables.expireAbsent(now)
	for e := d.tables.ages.Front(); e != nil; {
		old := e.Value.(*aged)
		// Misses go first: what is refreshed fills the queue only so far.
		if now.Sub(old.checked) < d.cfg.RefreshEvery || len(d.queries.queue) >= d.cfg.MaxInFlight || d.ask(old.key, false) == nil {
			break
		}
		d.stats.refreshed.Add(1)
		next := e.Next()
		d.tables.checked(e, now)
		e = next
	}
	d.stats.neighs.Store(int64(len(d.tables.neighs)))
	d.stats.forwards.Store(int64(len(d.tables.forwards)))
}

// trouble says once that something goes wrong, and over that it does no longer.
func (d *Daemon) trouble(what string, err error) {
	if err == nil {
		if d.troubles[what] {
			delete(d.troubles, what)
			d.cfg.Logger.Info("varpd: over: " + what)
		}
		return
	}
	if !d.troubles[what] {
		d.troubles[what] = true
		d.cfg.Logger.Warn("varpd: "+what, "error", err)
	}
}

// readLocalAddrs returns the underlay addresses of this node.
func (d *Daemon) readLocalAddrs() []netip.Addr {
	if p := d.localAddrs.Load(); p != nil {
		return slices.Clone(*p)
	}
	return nil
}
