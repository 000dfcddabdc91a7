package budget

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxAccounts bounds the accounts of a meter: 10,000 compute nodes and as many others.
// Further parties share one account.
const maxAccounts = 20_000

// others is the account of all parties beyond maxAccounts.
const others = "others"

// Exceeded says that a budget is used up. Nothing was written.
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

// Seconds returns the whole seconds until the next try, at least 1, for Retry-After.
func (e *Exceeded) Seconds() int { return max(1, int((e.Wait+time.Second-1)/time.Second)) }

// Meter has the accounts of one budget.
type Meter struct {
	budget  Budget
	now     func() time.Time
	used    atomic.Uint64
	refused atomic.Uint64

	mu       sync.Mutex // protects what follows
	accounts map[string]*Bucket
	looked   time.Time // when full accounts were dropped last
}

// NewMeter returns the meter of a budget. All accounts begin full.
func NewMeter(b Budget, now func() time.Time) *Meter {
	return &Meter{budget: b, now: now, accounts: make(map[string]*Bucket)}
}

// Budget returns the budget of the meter.
func (m *Meter) Budget() Budget { return m.budget }

// Used returns the sum of what was taken from all accounts.
func (m *Meter) Used() uint64 { return m.used.Load() }

// Refused returns how often an account did not hold enough.
func (m *Meter) Refused() uint64 { return m.refused.Load() }

// Spend takes n from the account of who. If the account does not hold n, it takes
// nothing and returns an *Exceeded, which says when there will be enough. If n is more
// than an account can hold, a full account is enough, and a debt remains.
func (m *Meter) Spend(who string, n int64) error { return m.spend(who, n, float64(n)) }

// Admit returns nil if each of the accounts holds something. It is for work whose cost
// is known only afterwards: Charge takes the cost then.
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

// Charge takes n from each of the accounts, which may leave a debt, and returns the
// least that is left in one. A negative n gives back.
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

// accountLocked returns the account of who, filled up to now.
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

// forgetEvery is the least time between two searches for full accounts, which bounds
// their cost.
const forgetEvery = time.Second

// forgetLocked drops the accounts that are full. A new account is full too, so nothing
// is lost.
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

// UsedMost returns how much of its account the party has taken that has taken most: 0 is a
// full account, 1 an empty one, and more is a debt.
func (m *Meter) UsedMost() (most float64) {
	rate, atOnce := m.budget.Limits()
	if rate == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, a := range m.accounts {
		m.fill(a, now)
		most = max(most, 1-a.Left/atOnce)
	}
	return most
}
