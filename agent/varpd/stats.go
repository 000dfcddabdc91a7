package varpd

import (
	"slices"
	"sync/atomic"
	"time"

	"rutter/varp"
)

// counters are added to from any goroutine.
type counters struct {
	misses, lost, foreign, coalesced, believed, dropped  atomic.Uint64
	asked, found, notFound, failed                       atomic.Uint64
	refreshed, evicted, adopted                          atomic.Uint64
	steps, refused, looks                                atomic.Uint64
	polls, pollsFailed, shootdowns, acknowledged         atomic.Uint64
	lastPoll                                             atomic.Int64 // unix ns
	waiting, inFlight, neighs, forwards, links, unpolled atomic.Int64
	doubts                                               atomic.Int64
}

// Stats are a daemon's counts since it was made, and its current sizes.
type Stats struct {
	Links    int64 `json:"links"`    // fabric links and VXLAN devices that SVP is about
	Neighs   int64 `json:"neighs"`   // addresses in the kernel
	Forwards int64 `json:"forwards"` // forwarding entries in the kernel
	InFlight int64 `json:"in_flight"`
	Waiting  int64 `json:"waiting"`

	Misses    uint64 `json:"misses"`    // that the kernel reported
	Lost      uint64 `json:"lost"`      // times that the kernel lost some; the missed entries were read instead
	Foreign   uint64 `json:"foreign"`   // of links or addresses that are not SVP's
	Coalesced uint64 `json:"coalesced"` // that were being asked already
	Believed  uint64 `json:"believed"`  // answered by a recent NOTFOUND
	Dropped   uint64 `json:"dropped"`   // beyond a bound; the kernel asks again

	Asked    uint64 `json:"asked"` // questions to SVP
	Found    uint64 `json:"found"`
	NotFound uint64 `json:"not_found"`
	Failed   uint64 `json:"failed"` // no server answered

	Refreshed uint64 `json:"refreshed"` // entries asked again for their age
	Evicted   uint64 `json:"evicted"`   // entries removed because of MaxEntries
	Adopted   uint64 `json:"adopted"`   // entries that another program had made

	Steps   uint64 `json:"steps"`   // entries set or removed
	Refused uint64 `json:"refused"` // of them, by the kernel
	Looks   uint64 `json:"looks"`   // dumps of the kernel

	Polls       uint64    `json:"polls"` // of the shootdown log
	PollsFailed uint64    `json:"polls_failed"`
	Shootdowns  uint64    `json:"shootdowns"` // records
	LastPoll    time.Time `json:"last_poll"`  // the last that was answered

	Acknowledged uint64 `json:"acknowledged"` // records
	// InDoubt are keys whose answers may come from the server's cache; they are asked
	// again.
	InDoubt int64 `json:"in_doubt"`
	// Logs are the shootdown logs that are polled now, by underlay address.
	Logs []PollState `json:"logs"`
	// UnpolledLinks counts the VXLAN devices whose underlay address cannot be found,
	// and Unpolled has the first of them.
	UnpolledLinks int64      `json:"unpolled_links"`
	Unpolled      []Unpolled `json:"unpolled"`
	// Servers are those that are asked, in the order of preference.
	Servers []varp.ServerState `json:"servers"`
}

// Stats returns the counts as they are now. They are not taken at one instant.
func (d *Daemon) Stats() Stats {
	c := &d.stats
	s := Stats{
		Links: c.links.Load(), Neighs: c.neighs.Load(), Forwards: c.forwards.Load(), InFlight: c.inFlight.Load(), Waiting: c.waiting.Load(),
		Misses: c.misses.Load(), Lost: c.lost.Load(), Foreign: c.foreign.Load(), Coalesced: c.coalesced.Load(), Believed: c.believed.Load(), Dropped: c.dropped.Load(),
		Asked: c.asked.Load(), Found: c.found.Load(), NotFound: c.notFound.Load(), Failed: c.failed.Load(),
		Refreshed: c.refreshed.Load(), Evicted: c.evicted.Load(), Adopted: c.adopted.Load(),
		Steps: c.steps.Load(), Refused: c.refused.Load(), Looks: c.looks.Load(),
		Polls: c.polls.Load(), PollsFailed: c.pollsFailed.Load(), Shootdowns: c.shootdowns.Load(),
		Acknowledged: c.acknowledged.Load(), InDoubt: c.doubts.Load(), UnpolledLinks: c.unpolled.Load(), Logs: d.logs(), Unpolled: []Unpolled{},
	}
	if at := c.lastPoll.Load(); at != 0 {
		s.LastPoll = time.Unix(0, at)
	}
	if p := d.unpolled.Load(); p != nil {
		s.Unpolled = append(s.Unpolled, *p...)
	}
	if d.cfg.Servers != nil {
		s.Servers = d.cfg.Servers()
	}
	return s
}

// logs returns the state of each shootdown log that is polled, by address.
func (d *Daemon) logs() []PollState {
	d.pollersMu.Lock()
	defer d.pollersMu.Unlock()
	logs := make([]PollState, 0, len(d.pollers))
	for p := range d.pollers {
		logs = append(logs, p.current())
	}
	slices.SortFunc(logs, func(a, b PollState) int { return a.Underlay.Compare(b.Underlay) })
	return logs
}
