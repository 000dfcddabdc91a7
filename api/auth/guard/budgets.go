package guard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
	"rutter/log/budget"
)

// budgets are the accounts of the work of reads and of the bytes of answers. They
// belong to this server: it bounds what it does for one identity, independent of other
// servers.
type budgets struct {
	meters map[budget.Name]*budget.Meter
	all    []*budget.Meter // in the order of the table

	mu sync.Mutex // protects shut
	// shut has the identities whose writes the leader has just refused, with the end of
	// the refusal. Their writes are refused before they are parsed, because parsing
	// costs more than sending.
	shut map[string]shutOut
}

// shutOut is the refusal of an author that has used up a budget.
type shutOut struct {
	until    time.Time
	exceeded *budget.Exceeded
}

// maxShut bounds how long a refusal stands for other writes of the same author, of
// which a smaller one might fit. maxShutOuts bounds the number of refusals.
const (
	maxShut     = 5 * time.Second
	maxShutOuts = 10_000
)

// shutOut refuses the writes of who for as long as err, a budget's, says.
func (b *budgets) shutOut(who matrix.Identity, exceeded *budget.Exceeded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.shut) >= maxShutOuts {
		clear(b.shut)
	}
	b.shut[who.Key()] = shutOut{time.Now().Add(min(exceeded.Wait, maxShut)), exceeded}
}

// mayWrite returns nil, or the refusal that a write of who got a moment ago.
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

// Accounts are those of one request: of the identity, and of the tenants that it is
// limited to, because a tenant may have many readers. The zero value has no bounds.
type Accounts struct {
	entries, bytes *budget.Meter // nil: not counted
	keys           []string
}

// of returns the accounts of who.
func (b *budgets) of(who matrix.Identity) Accounts {
	a := Accounts{keys: []string{who.Key()}}
	switch {
	case who.Role == matrix.Local:
		return Accounts{}
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

// Admit refuses an identity whose budget is used up; the error is a *budget.Exceeded.
func (a Accounts) Admit() error {
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

// Look counts entries or objects that were read, and returns how many are left.
func (a Accounts) Look(n int) (left int64) {
	if a.entries == nil {
		return 1 << 62
	}
	return a.entries.Charge(int64(n), a.keys...)
}

// Sent counts bytes of an answer, and returns how many are left.
func (a Accounts) Sent(n int) (left int64) {
	if a.bytes == nil {
		return 1 << 62
	}
	return a.bytes.Charge(int64(n), a.keys...)
}

// Accounts returns those of who.
func (g *Guard) Accounts(who matrix.Identity) Accounts { return g.budgets.of(who) }

// AccountsOf returns the accounts of a request that was admitted.
func (g *Guard) AccountsOf(ctx context.Context) Accounts {
	grant, ok := ctx.Value(grantKey{}).(Grant)
	if !ok {
		return Accounts{}
	}
	return g.budgets.of(grant.Who)
}

// mayWork refuses a request of an identity that has used up its budget.
func (g *Guard) mayWork(r *http.Request, free bool) error {
	switch {
	case !rest.IsRead(r):
		return g.budgets.mayWrite(GrantOf(r).Who)
	case free:
		return nil
	}
	return g.AccountsOf(r.Context()).Admit()
}

// overBudget records that a budget was exceeded, if one was, and returns err. It makes
// clients wait that would retry at once.
func (g *Guard) overBudget(r *http.Request, err error) error {
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		g.CountLimit(LimitBudget)
		if !rest.IsRead(r) && g.budgets.mayWrite(GrantOf(r).Who) == nil {
			g.budgets.shutOut(GrantOf(r).Who, exceeded)
		}
		g.noteLimit(r, GrantOf(r).Who, string(exceeded.Name))
		g.Pause(r.Context(), LimitedPause)
	}
	return err
}

// BudgetMetrics exports meters as metrics, by the budget's name.
type BudgetMetrics struct{ Meters []*budget.Meter }

var (
	budgetUsed    = prometheus.NewDesc("rutter_budget_used_total", "What was taken of a budget by all: operations, entries or bytes, as docs/safety.md has it.", []string{"budget"}, nil)
	budgetRate    = prometheus.NewDesc("rutter_budget_limit_per_second", "What each party's account of a budget gains in a second; 0: the budget has no bound.", []string{"budget"}, nil)
	budgetAtOnce  = prometheus.NewDesc("rutter_budget_limit_at_once", "What each party's account of a budget holds at most; 0: the budget has no bound.", []string{"budget"}, nil)
	budgetRatio   = prometheus.NewDesc("rutter_budget_used_max_ratio", "How much of its account the party that has used most of a budget has taken: 1 is an empty account, more is a debt.", []string{"budget"}, nil)
	budgetRefused = prometheus.NewDesc("rutter_budget_refused_total", "What was refused because a budget was used up.", []string{"budget"}, nil)
)

// Describe implements prometheus.Collector.
func (BudgetMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{budgetUsed, budgetRefused, budgetRate, budgetAtOnce, budgetRatio} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (b BudgetMetrics) Collect(to chan<- prometheus.Metric) {
	for _, m := range b.Meters {
		name := string(m.Budget().Name)
		to <- prometheus.MustNewConstMetric(budgetUsed, prometheus.CounterValue, float64(m.Used()), name)
		to <- prometheus.MustNewConstMetric(budgetRefused, prometheus.CounterValue, float64(m.Refused()), name)
		perSecond, atOnce := m.Budget().Limits()
		to <- prometheus.MustNewConstMetric(budgetRate, prometheus.GaugeValue, perSecond, name)
		to <- prometheus.MustNewConstMetric(budgetAtOnce, prometheus.GaugeValue, atOnce, name)
		to <- prometheus.MustNewConstMetric(budgetRatio, prometheus.GaugeValue, m.UsedMost(), name)
	}
}
