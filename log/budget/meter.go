package budget

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxAccounts bounds what is remembered: 10,000 compute nodes and as many others.
// Those beyond share one account.
const maxAccounts = 20_000

// others is the account of all that there is no room for.
const others = "others"

// Exceeded says that a budget is used up. Nothing was done, and nothing written.
type Exceeded struct {
	Name Name          `json:"name"`
	Who  string        `json:"who"`
	Is   string        `json:"is"` // Budget.String and what is counted
	Wait time.Duration `json:"wait_ns"`
}

// Error implements error.
func (e *Exceeded) Error() string {
	return fmt.Sprintf("the budget %s of %s is used up (%s): come again in %v", e.Name, e.Who, e.Is, e.Wait.Round(time.Millisecond))
}

// Seconds is when to come again, in whole seconds from 1 on, for Retry-After.
func (e *Exceeded) Seconds() int { return max(1, int((e.Wait+time.Second-1)/time.Second)) }

// Meter has the accounts of one budget.
type Meter struct {
	budget  Budget
	now     func() time.Time
	used    atomic.Uint64
	refused atomic.Uint64

	mu       sync.Mutex // protects what follows
	accounts map[string]*Bucket
	looked   time.Time // when full ones were looked for last
}

// NewMeter returns the accounts of a budget, all of them full.
func NewMeter(b Budget, now func() time.Time) *Meter {
	return &Meter{budget: b, now: now, accounts: make(map[string]*Bucket)}
}

// Budget returns what it is the meter of.
func (m *Meter) Budget() Budget { return m.budget }

// Used is what was taken from all accounts, Refused how often there was nothing.
func (m *Meter) Used() uint64 { return m.used.Load() }

// Refused is how often an account had not enough.
func (m *Meter) Refused() uint64 { return m.refused.Load() }

// Spend takes n from who's account, or nothing, and an *Exceeded says when there
// will be enough. What is more than an account ever holds needs a full one, and
// leaves a debt.
func (m *Meter) Spend(who string, n int64) error { return m.spend(who, n, float64(n)) }

// Admit returns nil if there is anything in each of the accounts, for work of
// which nobody knows beforehand what it costs: Charge takes that.
func (m *Meter) Admit(who ...string) error {
	for _, one := range who {
		if err := m.spend(one, 0, 1); err != nil {
			return err
		}
	}
	return nil
}

func (m *Meter) spend(who string, n int64, need float64) error {
	rate := m.budget.rate()
	if rate == 0 {
		m.count(n)
		return nil
	}
	m.mu.Lock()
	a := m.accountLocked(who)
	need = min(need, float64(m.budget.AtOnce))
	enough, wait := a.Left >= need, a.Until(need, rate)
	if enough {
		a.Left -= float64(n)
	}
	m.mu.Unlock()
	if !enough {
		m.refused.Add(1)
		return &Exceeded{
			Name: m.budget.Name, Who: who, Is: m.budget.What + ": " + m.budget.String(), Wait: wait,
		}
	}
	m.count(n)
	return nil
}

// Charge takes n from each of the accounts, which may leave a debt, and returns
// the least that is left in one; a negative n gives back.
func (m *Meter) Charge(n int64, who ...string) (left int64) {
	m.count(n)
	left = 1 << 62
	if m.budget.rate() == 0 {
		return left
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range who {
		a := m.accountLocked(one)
		a.Left -= float64(n)
		left = min(left, int64(a.Left))
	}
	return left
}

func (m *Meter) count(n int64) {
	if n > 0 {
		m.used.Add(uint64(n))
	}
}

// accountLocked returns who's account as it is now.
func (m *Meter) accountLocked(who string) *Bucket {
	now := m.now()
	a := m.accounts[who]
	if a == nil {
		if len(m.accounts) >= maxAccounts {
			m.forgetLocked(now)
		}
		if len(m.accounts) >= maxAccounts {
			who = others
			a = m.accounts[who]
		}
		if a == nil {
			a = &Bucket{Left: float64(m.budget.AtOnce), At: now}
			m.accounts[who] = a
		}
	}
	m.fill(a, now)
	return a
}

func (m *Meter) fill(a *Bucket, now time.Time) {
	a.Fill(now, m.budget.rate(), float64(m.budget.AtOnce))
}

// forgetEvery bounds what it costs that there are too many accounts.
const forgetEvery = time.Second

// forgetLocked drops the accounts that are full: new ones are alike.
func (m *Meter) forgetLocked(now time.Time) {
	if now.Sub(m.looked) < forgetEvery {
		return
	}
	m.looked = now
	for who, a := range m.accounts {
		if m.fill(a, now); a.Left >= float64(m.budget.AtOnce) {
			delete(m.accounts, who)
		}
	}
}
