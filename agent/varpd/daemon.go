package varpd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/miss"
)

const (
	// maxQueued bounds the misses between the listeners and the loop.
	maxQueued = 16384
	// scanPause is the least time between two scans of the links, and scanShare the
	// divisor of the time that scans may take. A scan costs about 1 ms for each
	// namespace, and links of others may come and go all the time.
	scanPause = 20 * time.Millisecond
	scanShare = 4
	// sweepEvery is how often the kernel is compared with the tables without a known
	// change.
	sweepEvery = time.Minute
	// tickEvery is how often old entries are looked for.
	tickEvery = 500 * time.Millisecond
	// batchDelay bounds the answers that are programmed together.
	batchDelay = 1024
)

// Daemon resolves the kernel's misses. New makes it, Run starts it.
type Daemon struct {
	cfg   Config // immutable
	stats counters

	misses      chan miss.Miss
	wakes       chan struct{}
	lost        chan struct{}   // misses were lost
	resolutions chan resolution // room for all that are in flight, so that senders never wait
	records     chan *batch
	localAddrs  atomic.Pointer[map[netip.Addr]string] // the underlay addresses of this node, and how they are known
	unpolled    atomic.Pointer[[]Unpolled]            // devices without one

	logTurn   sync.Mutex // held by the poller that asks and acknowledges
	pollersMu sync.Mutex // protects pollers
	pollers   map[*poller]bool

	pending miss.Readers
	ready   chan struct{}  // closed after the first scan of the links
	running sync.WaitGroup // questions in flight

	// The rest belongs to the goroutine of loop.

	links     links
	tables    tables
	queries   queries
	deferred  []miss.Miss             // of links that the last scan did not show
	unknown   map[linkIndex]time.Time // links that a scan did not show, and when
	doubts    map[key]*doubt
	vnetSince map[uint32]time.Time // since when a vnet has fabric links here
	soughtAt  time.Time            // when underlay addresses were looked up last
	dirty     bool                 // a scan of the links is needed
	scannedAt time.Time            // when the last scan ended
	scanTook  time.Duration
	troubles  map[string]bool // logged, and not over yet
}

// New returns a daemon, or an error that names what cfg lacks. It starts nothing.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Daemon{
		cfg: cfg, misses: make(chan miss.Miss, maxQueued), wakes: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		ready: make(chan struct{}), resolutions: make(chan resolution, cfg.MaxInFlight), records: make(chan *batch),
		tables: newTables(), queries: queries{byKey: map[key]*query{}}, troubles: map[string]bool{}, unknown: map[linkIndex]time.Time{},
		doubts: map[key]*doubt{}, pollers: map[*poller]bool{},
	}, nil
}

// Ready returns a channel that is closed after Run's first scan of the links.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// ErrNoServer: no server answered the first PING.
var ErrNoServer = errors.New("varpd: no SVP server answers")

// Run works until ctx ends, and returns once everything that it started has ended. As
// in linux-cn-varpd, it returns an error at once, ErrNoServer, if no server answers a
// PING; later it continues without any server. The kernel's entries stay, so that
// traffic continues while a new version starts.
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

// ended returns the error for work that ctx may have ended.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pingFirst waits for the first PONG.
func (d *Daemon) pingFirst(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Greeting)
	defer cancel()
	var cause error
	for cause == nil || bounded.Err() == nil {
		err := d.cfg.Resolver.Ping(bounded)
		if err == nil {
			return nil
		}
		// An error from the end of the time may say less than the one before.
		if cause == nil || bounded.Err() == nil {
			cause = err
		}
		wait(bounded, scanPause)
	}
	if ctx.Err() != nil {
		return nil // scan ends with it
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

// missListener is the Daemon's side for the listeners of misses.
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

// Rescan schedules a scan of the links. It may be called from any goroutine, and never
// blocks.
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
	again := time.NewTimer(scanPause) // for a scan that came too early
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
			d.readPending(ctx, d.links.namespaces)
		case <-d.wakes:
			d.dirty = true
			clear(d.unknown)
		case <-again.C:
		case now := <-tick.C:
			d.refresh(now)
			d.askDoubts(now)
			d.followUnderlay(now)
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

// takeMisses takes the first miss and those queued behind it.
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

// unknownFor is how long misses of a link that a scan did not show are ignored without
// another scan. A change of the links ends it.
const unknownFor = 5 * time.Second

// takeMiss asks a question for a miss.
func (d *Daemon) takeMiss(m miss.Miss, now time.Time) {
	from := linkIndex{m.Namespace, m.Link}
	p, isFabric := d.links.fabrics[from]
	vnet, isDevice := d.links.devices[from]
	switch {
	case isFabric && m.Kind == miss.Neighbour:
		if m.IP.IsLinkLocalUnicast() || m.IP.IsMulticast() {
			d.stats.foreign.Add(1) // not a NIC of SVP
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

// askMiss adds a question about what is missed, and returns it, unless the answer is
// known to be NOTFOUND.
func (d *Daemon) askMiss(k key, now time.Time) *query {
	if d.tables.isAbsent(k, now) {
		d.stats.believed.Add(1)
		return nil
	}
	return d.ask(k, false)
}

// readPending reads what links miss now, and passes it to the loop.
func (d *Daemon) readPending(ctx context.Context, namespaces map[string]int32) {
	if len(namespaces) == 0 {
		return
	}
	numbers := maps.Clone(namespaces)
	d.running.Go(func() {
		d.pending.Each(ctx, slices.Sorted(maps.Keys(numbers)), d.cfg.Pending, func(name string, misses []miss.Miss, err error) {
			if err != nil {
				d.cfg.Logger.Debug("varpd: pending neighbours", "namespace", name, "error", err)
				return // it is gone; or the misses come again in a second
			}
			for i := range misses {
				misses[i].Namespace = numbers[name]
			}
			missListener{d}.Resolve(ctx, misses)
		})
	})
}

// refresh asks again for old entries, and forgets expired NOTFOUND answers.
func (d *Daemon) refresh(now time.Time) {
	d.tables.expireAbsent(now)
	for e := d.tables.ages.Front(); e != nil; {
		old := e.Value.(*aged)
		// Misses go first: refreshing fills only a part of the queue.
		if now.Sub(old.checked) < d.cfg.RefreshEvery || len(d.queries.queue) >= d.cfg.MaxInFlight {
			break
		}
		// The answers about the addresses of a MAC have its underlay. So the server's
		// cache for MACs keeps none that is old when a shootdown names it.
		if len(d.tables.users[old.key]) == 0 {
			if d.ask(old.key, false) == nil {
				break
			}
			d.stats.refreshed.Add(1)
		}
		next := e.Next()
		d.tables.checked(e, now)
		e = next
	}
	d.stats.neighs.Store(int64(len(d.tables.neighs)))
	d.stats.forwards.Store(int64(len(d.tables.forwards)))
}

// trouble logs once that something fails, and once that it works again.
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
