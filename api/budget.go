package api

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/matrix"
	"rutter/api/rest"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// budgets are the accounts of what reads look at and what answers send. They are
// this server's: what it does for one party is bounded, whatever others do for it.
type budgets struct {
	meters map[budget.Name]*budget.Meter
	all    []*budget.Meter // in the order of the table

	mu sync.Mutex // protects shut
	// shut are those whose writes the leader has just refused, with until when: what
	// they send is refused before it is parsed, which costs more than to send it.
	shut map[string]shutOut
}

// shutOut is the refusal of an author that has used up a budget.
type shutOut struct {
	until    time.Time
	exceeded *budget.Exceeded
}

// maxShut bounds for how long a refusal stands for others of the same author, of
// which a smaller one might have found room, and maxShutOuts how many there are.
const (
	maxShut     = 5 * time.Second
	maxShutOuts = 10_000
)

// shutOut has the writes of who refused for as long as err, a budget's, says.
func (b *budgets) shutOut(who matrix.Identity, exceeded *budget.Exceeded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.shut) >= maxShutOuts {
		clear(b.shut)
	}
	b.shut[who.Key()] = shutOut{time.Now().Add(min(exceeded.Wait, maxShut)), exceeded}
}

// mayWrite is nil, or the refusal that a write of who has got a moment ago.
func (b *budgets) mayWrite(who matrix.Identity) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, ok := b.shut[who.Key()]
	if !ok {
		return nil
	}
	if left := time.Until(out.until); left > 0 {
		again := *out.exceeded
		again.Wait = max(left, again.Wait-maxShut)
		return &again
	}
	delete(b.shut, who.Key())
	return nil
}

func newBudgets(set budget.Set) *budgets {
	b := &budgets{meters: make(map[budget.Name]*budget.Meter), shut: make(map[string]shutOut)}
	for _, name := range []budget.Name{
		budget.OperatorEntries, budget.ReaderEntries, budget.TenantEntries, budget.ReaderBytes, budget.TenantBytes,
	} {
		m := budget.NewMeter(set.Get(name), time.Now)
		b.meters[name] = m
		b.all = append(b.all, m)
	}
	return b
}

// accounts are those of one request: of who asks, and of the tenants that it is
// limited to, since they may have many readers. The zero value has no bounds.
type accounts struct {
	entries, bytes *budget.Meter // nil: not counted
	keys           []string
}

// of returns the accounts of who.
func (b *budgets) of(who matrix.Identity) accounts {
	a := accounts{keys: []string{who.Key()}}
	switch {
	case who.Role == matrix.Local:
		return accounts{}
	case who.Role == matrix.Operator || who.Role == matrix.Server:
		a.entries = b.meters[budget.OperatorEntries]
	case who.Role == matrix.Reader && len(who.Owners) > 0:
		a.entries, a.bytes = b.meters[budget.TenantEntries], b.meters[budget.TenantBytes]
		for _, owner := range who.Owners {
			a.keys = append(a.keys, "tenant:"+owner.String())
		}
	default:
		a.entries, a.bytes = b.meters[budget.ReaderEntries], b.meters[budget.ReaderBytes]
	}
	return a
}

// admit refuses who has nothing left; the error is a *budget.Exceeded.
func (a accounts) admit() error {
	for _, m := range []*budget.Meter{a.entries, a.bytes} {
		if m == nil {
			continue
		}
		if err := m.Admit(a.keys...); err != nil {
			return err
		}
	}
	return nil
}

// look counts entries or objects that were looked at, and returns how many may
// still be.
func (a accounts) look(n int) (left int64) {
	if a.entries == nil {
		return 1 << 62
	}
	return a.entries.Charge(int64(n), a.keys...)
}

// sent counts bytes of an answer, and returns how many may still be sent.
func (a accounts) sent(n int) (left int64) {
	if a.bytes == nil {
		return 1 << 62
	}
	return a.bytes.Charge(int64(n), a.keys...)
}

// unbudgeted are the paths whose answers are counted elsewhere, or cost nothing:
// who has used up its budget of reading is still told how things are.
var unbudgeted = map[string]bool{
	"/feed": true, "/write": true, "/wait": true, "/changefeeds": true, "/ping": true, "/livez": true, "/readyz": true, "/status": true, "/metrics": true,
	"/cluster": true, "/snapshot": true, "/cns/{id}/feed": true,
}

// mayWork refuses a request of who has used up its budget.
func (s *Server) mayWork(r *http.Request, route string) error {
	switch {
	case !rest.IsRead(r):
		return s.budgets.mayWrite(grantOf(r).who)
	case unbudgeted[route]:
		return nil
	}
	return s.accountsOf(r.Context()).admit()
}

// overBudget notes that a budget was in the way, if one was, and returns err. Who
// does not wait by itself is made to.
func (s *Server) overBudget(r *http.Request, err error) error {
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		s.metrics.limited.WithLabelValues(limitBudget).Inc()
		if !rest.IsRead(r) && s.budgets.mayWrite(grantOf(r).who) == nil {
			s.budgets.shutOut(grantOf(r).who, exceeded)
		}
		s.noteLimit(r, grantOf(r).who, string(exceeded.Name))
		s.pause(r.Context(), limitedPause)
	}
	return err
}

// accountsOf are the accounts of a request that was let in.
func (s *Server) accountsOf(ctx context.Context) accounts {
	g, ok := ctx.Value(grantKey{}).(grant)
	if !ok {
		return accounts{}
	}
	return s.budgets.of(g.who)
}

// scans let few long reads run at a time, so that writes have the rest of the
// processors: each waits for its turn before each step, and after one during which
// something was written the turn rests before the next has it. People who run the
// cluster have turns of their own.
type scans struct {
	operators, others chan struct{}

	mu   sync.Mutex
	busy map[string]*scanner
}

// scanner is one identity, of which one read runs at a time.
type scanner struct {
	turn  chan struct{}
	users int
}

const (
	// scanStep is how long one step takes at most, but for one entry: a write
	// that waits for the processor waits no longer.
	scanStep = 4 * time.Millisecond
	// operatorsRest and othersRest are how many times as long as the step the rest
	// is: beside writes, operators' reads have half of their processors, all others
	// together a twentieth of theirs. maxScanRest is what a rest is at most.
	operatorsRest = 1
	othersRest    = 19
	maxScanRest   = time.Second
)

func newScans() *scans {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return &scans{operators: make(chan struct{}, n), others: make(chan struct{}, n), busy: make(map[string]*scanner)}
}

// enter waits for a turn of who, which leave gives back, and says how many times
// as long as its step it rests.
func (s *scans) enter(ctx context.Context, id matrix.Identity) (leave func(), rest time.Duration, err error) {
	who, slots, rest := id.Key(), s.others, time.Duration(othersRest)
	if id.Role == matrix.Local || id.Role == matrix.Operator || id.Role == matrix.Server {
		slots, rest = s.operators, operatorsRest
	}
	s.mu.Lock()
	one := s.busy[who]
	if one == nil {
		one = &scanner{turn: make(chan struct{}, 1)}
		s.busy[who] = one
	}
	one.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(s.busy, who)
		}
	}
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, 0, ctx.Err()
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		<-one.turn
		forget()
		return nil, 0, ctx.Err()
	}
	return func() {
		<-slots
		<-one.turn
		forget()
	}, rest, nil
}

// scanning runs one step of a long read in its turn, which rests after it.
func (s *Server) scanning(ctx context.Context, step func() error) error {
	g, _ := ctx.Value(grantKey{}).(grant)
	leave, rest, err := s.scans.enter(ctx, g.who)
	if err != nil {
		return err
	}
	defer leave()
	begun, head := time.Now(), s.store.Head().Seq
	err = step()
	if s.store.Head().Seq != head {
		s.pause(ctx, min(rest*time.Since(begun), maxScanRest))
	}
	return err
}

// counted notes how many objects of a past state were made for a request.
func (s *Server) counted(ctx context.Context, state *projections.State) {
	if state != nil {
		s.accountsOf(ctx).look(state.Len())
	}
}

// mentions is a Store with an index of which entries have a UUID in a field,
// before or after them: see raftstore.Store.Mentions.
type mentions interface {
	Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, place log.Seq, chain log.ChainPrefix, ok bool, err error)
}

// BudgetMetrics shows meters as metrics, by the budget's name.
type BudgetMetrics struct{ Meters []*budget.Meter }

var (
	budgetUsed    = prometheus.NewDesc("rutter_budget_used_total", "What was taken of a budget by all: operations, entries or bytes, as docs/safety.md has it.", []string{"budget"}, nil)
	budgetRefused = prometheus.NewDesc("rutter_budget_refused_total", "What was refused because a budget was used up.", []string{"budget"}, nil)
)

// Describe implements prometheus.Collector.
func (BudgetMetrics) Describe(to chan<- *prometheus.Desc) { to <- budgetUsed; to <- budgetRefused }

// Collect implements prometheus.Collector.
func (b BudgetMetrics) Collect(to chan<- prometheus.Metric) {
	for _, m := range b.Meters {
		name := string(m.Budget().Name)
		to <- prometheus.MustNewConstMetric(budgetUsed, prometheus.CounterValue, float64(m.Used()), name)
		to <- prometheus.MustNewConstMetric(budgetRefused, prometheus.CounterValue, float64(m.Refused()), name)
	}
}
