// Package refusals decides when a refused connection is worth a line in a log: once for
// each address and period, with how many there were since the last line. It owns the
// counts; each listener has its own words, and its own metric, which counts all.
package refusals

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// Period is the least time between two lines about one address.
	Period = time.Minute
	// maxAddresses bounds the addresses that are counted apart. All others in a period
	// share one count, as the zero Addr: an attacker has many.
	maxAddresses = 1024
)

// Counter counts refusals by address. The zero value is ready for use. Its methods may
// be called from any goroutine.
type Counter struct {
	mu sync.Mutex
	of map[netip.Addr]*count
}

type count struct {
	logged time.Time // when the last line was due
	since  int       // refusals after it
}

// Count counts a refusal of an address. It returns how many a line must report: those
// since the last line with this one, or 0 if no line is due.
func (c *Counter) Count(address netip.Addr, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[netip.Addr]*count)
	}
	one := c.of[address]
	if one == nil && len(c.of) >= maxAddresses {
		c.forget(now)
		if len(c.of) >= maxAddresses {
			address = netip.Addr{}
			one = c.of[address]
		}
	}
	if one == nil {
		one = new(count)
		c.of[address] = one
	}
	one.since++
	if !one.logged.IsZero() && now.Sub(one.logged) < Period {
		return 0
	}
	n := one.since
	one.logged, one.since = now, 0
	return n
}

// forget drops the addresses whose last line is older than a period. What was refused
// after that line is in no other one: the metric has it.
func (c *Counter) forget(now time.Time) {
	for address, one := range c.of {
		if now.Sub(one.logged) >= Period {
			delete(c.of, address)
		}
	}
}
