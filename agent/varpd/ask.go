package varpd

import (
	"context"
	"errors"
	"time"

	"rutter/log"
	"rutter/varp"
)

// query is one question, queued or in flight.
type query struct {
	key    key
	links  map[linkKey]bool // where it was missed; none for a check of a held entry
	direct bool             // a MAC that the kernel missed itself
	// again means that a change came since the question was sent, so its answer may be
	// outdated.
	again  bool
	sent   bool
	sentAt time.Time // the last time
}

// link adds a link where the entry was missed.
func (a *query) link(p linkKey) {
	if a.links == nil {
		a.links = map[linkKey]bool{}
	}
	a.links[p] = true
}

// resolution is the result of a question.
type resolution struct {
	key key
	mac log.MAC // VL3
	at  varp.Underlay
	err error // nil, varp.ErrNotFound, or why there is no answer
}

// queries has the open questions. It belongs to one goroutine.
type queries struct {
	byKey    map[key]*query
	queue    []*query // not sent yet
	inFlight int
}

// ask adds a question about k, unless there is one already, and returns it. It returns
// nil if too many wait.
func (d *Daemon) ask(k key, urgent bool) *query {
	a := d.queries.byKey[k]
	if a != nil {
		d.stats.coalesced.Add(1)
		return a
	}
	if !urgent && len(d.queries.queue) >= d.cfg.MaxWaiting {
		d.stats.dropped.Add(1)
		return nil
	}
	a = &query{key: k}
	d.queries.byKey[k] = a
	d.queries.queue = append(d.queries.queue, a)
	return a
}

// send starts as many questions as may be in flight.
func (d *Daemon) send(ctx context.Context) {
	n := 0
	for ; n < len(d.queries.queue) && d.queries.inFlight < d.cfg.MaxInFlight; n++ {
		a := d.queries.queue[n]
		a.sent, a.sentAt = true, time.Now()
		d.queries.inFlight++
		d.stats.asked.Add(1)
		k := a.key
		d.running.Go(func() { d.resolutions <- d.question(ctx, k) })
	}
	if n > 0 {
		d.queries.queue = append(d.queries.queue[:0], d.queries.queue[n:]...)
	}
	d.stats.waiting.Store(int64(len(d.queries.queue)))
	d.stats.inFlight.Store(int64(d.queries.inFlight))
}

// question asks the servers once. The client has its own timeouts and retries.
func (d *Daemon) question(ctx context.Context, k key) resolution {
	got := resolution{key: k}
	if k.ip.IsValid() {
		got.mac, got.at, got.err = d.cfg.Resolver.VL3(ctx, k.vnet, k.ip)
	} else {
		got.at, got.err = d.cfg.Resolver.VL2(ctx, k.vnet, k.mac)
	}
	return got
}

// take ends a question, and returns it if its answer can be used; nil if it must be
// asked again.
func (d *Daemon) take(got *resolution) *query {
	d.queries.inFlight--
	a := d.queries.byKey[got.key]
	if a.again && (got.err == nil || errors.Is(got.err, varp.ErrNotFound)) {
		a.again, a.sent = false, false
		d.queries.queue = append(d.queries.queue, a)
		return nil
	}
	delete(d.queries.byKey, got.key)
	return a
}
