package underlay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

// maxPeers bounds the VTEPs that are looked at: a route request takes 10 µs, so a look at
// so many takes 40 ms.
const maxPeers = 4096

// Defaults of Config.
const (
	defaultEvery      = 10 * time.Second
	checkEvery        = time.Second // between checks of the log and of the one interface
	defaultProbeEvery = time.Hour
	defaultAgainEvery = 5 * time.Minute
	refusedEvery      = 10 * time.Minute // between reports that servers refuse
	reportBurst       = 5                // reports at once
	reportEvery       = 30 * time.Second // between reports after these
	repeatEvery       = time.Minute      // until a report that was taken is sent again, if the log does not show it
)

// Config configures a Monitor. CN, View, Submit and NewID must be given.
type Config struct {
	CN     log.UUID
	View   func(fn func(*projections.State)) // calls fn with the state, which stays as it is meanwhile
	Submit func(ctx context.Context, c *log.Change) (log.Result, error)
	NewID  func() log.UUID
	Prober *Prober // nil: paths are not probed
	Logger *slog.Logger

	// Every is how often interfaces and routes are looked at, when neither the log nor the
	// interface of the VTEP changed. Default 10 s.
	Every time.Duration
	// ProbeEvery is how often a path is probed; one that is narrow each AgainEvery, so that
	// a mend is seen. Defaults 1 h and 5 min.
	ProbeEvery, AgainEvery time.Duration
}

// Monitor keeps what the log has of a node's underlay in step with what is there.
type Monitor struct {
	cfg   Config
	woken chan struct{} // holds a token when a probe found something

	mu     sync.Mutex // protects what follows
	status Status
	// unreported is why the log does not have what was found; "" if it does.
	unreported string
	need       need
	peers      []peer // by address
	link       Link   // of the VTEP, as it was; no Index: not known
	probed     map[netip.Addr]probe
}

// Status is what a Monitor found.
type Status struct {
	Address   netip.Addr `json:"address,omitzero"` // of the node's VTEP
	Interface string     `json:"interface,omitempty"`
	MTU       uint32     `json:"mtu"`    // bytes, of the interface to the other VTEPs; 0: not known
	VTEPs     int        `json:"vteps"`  // others, that the log has
	Probed    int        `json:"probed"` // of them, that answered a probe
	// Paths carry less than MTU, the narrowest first (log.PathTo).
	Paths   []string `json:"paths,omitempty"`
	Failure string   `json:"error,omitempty"` // why nothing is known, or not reported
}

// need is what the largest packets of the node's links take of the underlay.
type need struct {
	bytes   uint32
	network string // that needs so much
}

// peer is another VTEP, and what leaves for it.
type peer struct {
	addr netip.Addr
	most uint32 // bytes, by interface and route; 0: no route
}

// probe is the result of a probe.
type probe struct {
	most  uint32 // that was tried
	found uint32 // that arrived; 0: no answer
	at    time.Time
}

// New returns a Monitor that has started nothing.
func New(cfg Config) *Monitor {
	cfg.Every, cfg.ProbeEvery, cfg.AgainEvery = cmp.Or(cfg.Every, defaultEvery), cmp.Or(cfg.ProbeEvery, defaultProbeEvery), cmp.Or(cfg.AgainEvery, defaultAgainEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Monitor{cfg: cfg, woken: make(chan struct{}, 1), probed: map[netip.Addr]probe{}}
}

// Status returns what was found last.
func (m *Monitor) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Paths, s.Failure = slices.Clone(s.Paths), m.failure()
	return s
}

// failure is why something is not known, or not in the log; m.mu is held.
func (m *Monitor) failure() string { return cmp.Or(m.status.Failure, m.unreported) }

// Trouble lists what operators must know, one line each.
func (m *Monitor) Trouble() (lines []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if failure := m.failure(); failure != "" {
		lines = append(lines, failure)
	}
	for _, text := range m.status.Paths {
		if path, err := log.ParsePathTo(text); err == nil && path.MTU < m.need.bytes {
			lines = append(lines, fmt.Sprintf("large packets to the VTEP %s are cut or lost: the path there carries %d bytes, and those of network %s take %d (docs/deploy.md, MTU)", path.Addr, path.MTU, m.need.network, m.need.bytes))
		}
	}
	return lines
}

// Run looks, probes and reports until ctx ends; then it returns nil.
func (m *Monitor) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.keep(ctx) })
	if m.cfg.Prober != nil {
		g.Go(func() error { return m.probeAll(ctx) })
	}
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// keep looks and reports.
func (m *Monitor) keep(ctx context.Context) error {
	var last part        // that was looked at
	var full time.Time   // when all is looked at again
	var sent *log.Server // the last report
	var due time.Time    // of the next one, if it says the same
	pace := pace{left: reportBurst}
	woken := true
	for {
		p := m.read()
		if now := time.Now(); woken || now.After(full) || !p.sameWay(last) || m.otherLink() {
			last, full = p, now.Add(m.cfg.Every)
			m.look(p)
		}
		said := m.said(p)
		if said != nil && (sent == nil || !sameReport(said, sent) || time.Now().After(due)) && pace.take(time.Now()) {
			err := m.report(ctx, said)
			pause := repeatEvery
			if refusal := new(log.Refusal); errors.As(err, &refusal) && refusal.Code != log.CodeLimit {
				pause = refusedEvery // servers of before, for one, do not know the fields
			}
			sent, due = said, time.Now().Add(pause)
			m.note(err)
			if err != nil && pause == repeatEvery {
				sent = nil // no server took it: it is sent again soon
			}
		}
		woken = false
		select {
		case <-time.After(checkEvery):
		case <-m.woken:
			woken = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pace bounds reports: an interface or a route whose MTU changes to and fro is reported
// reportBurst times at once, and then each reportEvery.
type pace struct {
	left int
	last time.Time // when one was added last
}

// take reports whether a report is due now, and counts it.
func (p *pace) take(now time.Time) bool {
	if n := int(now.Sub(p.last) / reportEvery); n > 0 {
		p.left, p.last = min(p.left+n, reportBurst), now
	}
	if p.left == 0 {
		return false
	}
	p.left--
	return true
}

// otherLink reports whether the interface of the VTEP has another MTU than it had, or is
// gone.
func (m *Monitor) otherLink() bool {
	m.mu.Lock()
	was := m.link
	m.mu.Unlock()
	if was.Index == 0 {
		return false
	}
	k, err := openKernel()
	if err != nil {
		return false
	}
	defer k.close()
	is, err := k.link(was.Index)
	return err != nil || is != was
}

func sameReport(a, b *log.Server) bool {
	return a.UnderlayMTU == b.UnderlayMTU && slices.Equal(a.UnderlayPaths, b.UnderlayPaths)
}

// note keeps why a report was not taken, for the status.
func (m *Monitor) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	why := err.Error()
	if unknownField(err) {
		why = fmt.Sprintf("the servers take such reports from feature version %d on: upgrade all of them; the next report is within %s", log.FeaturePerNode, refusedEvery)
	}
	m.cfg.Logger.Warn("what the underlay carries is not in the log yet", "error", why)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unreported = "what the underlay carries is not in the log yet: " + why
}

// unknownField reports whether servers refused a field that they do not know: a program of
// before, or a feature version that has not risen.
func unknownField(err error) bool {
	refusal := new(log.Refusal)
	return errors.As(err, &refusal) && slices.ContainsFunc(refusal.Errors, func(e log.FieldError) bool { return e.Code == log.ElementUnknown })
}

func (m *Monitor) report(ctx context.Context, said *log.Server) error {
	_, err := m.cfg.Submit(ctx, &log.Change{ID: m.cfg.NewID(), Ops: []log.Op{{
		Action: log.Update, Kind: log.KindServer, ID: m.cfg.CN.String(), Object: said, Set: []string{"underlay_mtu", "underlay_paths"},
	}}})
	return err
}

// part is what the log has of the node's underlay.
type part struct {
	from   netip.Addr
	peers  []netip.Addr // sorted
	server *log.Server  // nil: the log has none
	need   need
}

// sameWay reports whether packets have the same ends as in q.
func (p *part) sameWay(q part) bool {
	return p.from == q.from && p.need == q.need && slices.Equal(p.peers, q.peers)
}

// read reads the state.
func (m *Monitor) read() (p part) {
	m.cfg.View(func(s *projections.State) {
		own, ok := s.UnderlayOf(m.cfg.CN)
		if !ok {
			return
		}
		p.from = own.Addr
		for _, u := range s.Underlays() {
			if u.CN != m.cfg.CN && u.Addr.Is4() == own.Addr.Is4() && u.Addr != own.Addr && len(p.peers) < maxPeers {
				p.peers = append(p.peers, u.Addr)
			}
		}
		if r, ok := s.Get(log.KindServer, m.cfg.CN.String()); ok {
			p.server = r.Object.(*log.Server)
		}
		seen := map[log.UUID]bool{}
		for r := range projections.NICsOnCN(m.cfg.CN).NICs(s) {
			if r.Home().Type != log.ScopeVNet || seen[r.Network()] {
				continue
			}
			seen[r.Network()] = true
			if net := s.Network(r.Network()); net != nil {
				if bytes := net.MTU + underlay.Headers(own.Addr.Is6(), net.VLANID != 0); bytes > p.need.bytes {
					p.need = need{bytes, net.Name}
				}
			}
		}
	})
	slices.SortFunc(p.peers, netip.Addr.Compare)
	p.peers = slices.Compact(p.peers)
	return p
}

// look reads the kernel, and makes the status.
func (m *Monitor) look(p part) {
	status := Status{Address: p.from, VTEPs: len(p.peers)}
	var peers []peer
	var link Link
	if p.from.IsValid() {
		var found []peer
		var err error
		link, found, err = measure(p.from, p.peers)
		if err == nil && link.MTU != 0 && link.MTU < least4 {
			err = fmt.Errorf("underlay: interface %s has MTU %d: nothing of a vnet fits, raise it", link.Name, link.MTU)
		}
		if err != nil {
			status.Failure = err.Error()
		} else {
			status.Interface, status.MTU, peers = link.Name, min(link.MTU, mostMTU), found
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers, m.need, m.link = peers, p.need, link
	status.Probed, status.Paths = m.narrow(status.MTU)
	m.status = status
}

// said returns what the server object must say; nil if it says so, if the log has none, or
// if nothing is known.
func (m *Monitor) said(p part) *log.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := &log.Server{UUID: m.cfg.CN, UnderlayMTU: m.status.MTU, UnderlayPaths: m.status.Paths}
	if m.status.MTU == 0 || p.server == nil {
		return nil
	}
	if sameReport(said, p.server) {
		m.unreported = ""
		return nil
	}
	return said
}

// narrow returns how many VTEPs answered a probe, and the paths that carry less than the
// interface, the narrowest first; m.mu is held.
func (m *Monitor) narrow(mtu uint32) (probed int, texts []string) {
	var paths []log.PathTo
	for _, to := range m.peers {
		carries := to.most
		if found := m.probed[to.addr]; found.found != 0 && found.most == to.most {
			probed++
			carries = found.found
		}
		if carries != 0 && carries < mtu {
			paths = append(paths, log.PathTo{Addr: to.addr, MTU: max(carries, least4)})
		}
	}
	slices.SortFunc(paths, func(a, b log.PathTo) int { return cmp.Or(cmp.Compare(a.MTU, b.MTU), a.Addr.Compare(b.Addr)) })
	for _, path := range paths[:min(len(paths), log.MaxPaths)] {
		texts = append(texts, path.String())
	}
	return probed, texts
}

// mostMTU is the largest IP packet, in bytes: a loopback has a larger MTU.
const mostMTU = 65535

// measure returns the interface to other VTEPs, and what leaves for each. Of an address on
// a loopback, as with routing daemons, it is the widest interface that a route uses.
func measure(from netip.Addr, to []netip.Addr) (Link, []peer, error) {
	k, err := openKernel()
	if err != nil {
		return Link{}, nil, err
	}
	defer k.close()
	link, err := k.linkOf(from)
	if err != nil {
		return Link{}, nil, err
	}
	own := link
	if link.Loopback {
		link = Link{}
	}
	peers := make([]peer, 0, len(to))
	for _, addr := range to {
		r, err := k.route(from, addr)
		if err != nil {
			peers = append(peers, peer{addr: addr})
			continue
		}
		peers = append(peers, peer{addr, r.carries()})
		if own.Loopback && !r.Link.Loopback && r.Link.MTU > link.MTU {
			link = r.Link
		}
	}
	return link, peers, nil
}

// probeAll probes one path after another.
func (m *Monitor) probeAll(ctx context.Context) error {
	for {
		from, to, ok := m.next(time.Now())
		if !ok {
			select {
			case <-time.After(m.cfg.Every):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		found, err := m.cfg.Prober.Path(ctx, from, to.addr, to.most)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			m.cfg.Logger.Warn("a path of the underlay cannot be probed", "to", to.addr, "error", err)
		}
		if found != 0 && found < to.most {
			m.cfg.Logger.Warn("a path of the underlay carries less than its interface", "to", to.addr, "bytes", found, "interface", to.most)
		}
		m.keepProbe(to, found)
		select {
		case m.woken <- struct{}{}:
		default:
		}
	}
}

// keepProbe keeps the result of a probe. Silence of a VTEP that answered before changes
// nothing: it is off, or its firewall.
func (m *Monitor) keepProbe(to peer, found uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.probed[to.addr]; found == 0 && last.most == to.most {
		found = last.found
	}
	m.probed[to.addr] = probe{to.most, found, time.Now()}
}

// next returns a path that is due: one that was not probed, or not with the interface's
// MTU, and else that which was probed longest ago.
func (m *Monitor) next(now time.Time) (from netip.Addr, to peer, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[netip.Addr]bool, len(m.peers))
	var oldest time.Time
	for _, p := range m.peers {
		there[p.addr] = true
		last := m.probed[p.addr]
		if p.most == 0 || last.most == p.most && now.Before(last.at.Add(m.every(last))) {
			continue
		}
		if last.most != p.most {
			last.at = time.Time{}
		}
		if !ok || last.at.Before(oldest) {
			to, oldest, ok = p, last.at, true
		}
	}
	for addr := range m.probed {
		if !there[addr] {
			delete(m.probed, addr)
		}
	}
	return m.status.Address, to, ok
}

// every is how often a path is probed.
func (m *Monitor) every(last probe) time.Duration {
	if last.found != 0 && last.found < last.most {
		return m.cfg.AgainEvery
	}
	return m.cfg.ProbeEvery
}
