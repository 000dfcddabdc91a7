package varpd

import (
	"sync/atomic"
	"time"
)

// counters are added to from any goroutine.
type counters struct {
	misses, lost, foreign, coalesced, believed, dropped atomic.Uint64
	asked, found, notFound, failed                      atomic.Uint64
	refreshed, evicted, adopted                         atomic.Uint64
	steps, refused, looks                               atomic.Uint64
	polls, pollsFailed, shootdowns                      atomic.Uint64
	lastPoll                                            atomic.Int64 // unix ns
	waiting, inFlight, neighs, forwards, links          atomic.Int64
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
	}
	if at := c.lastPoll.Load(); at != 0 {
		s.LastPoll = time.Unix(0, at)
	}
	return s
}
