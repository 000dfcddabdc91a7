package varpd

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
	"rutter/varp"
)

// pollBytes is how many bytes of the shootdown log are requested at once: as many as
// illumos requests, because servers are used to it.
const pollBytes = 1024

// batch is one answer of the shootdown log.
type batch struct {
	records []varp.Record
	open    int // records that are not done yet
	ids     []log.UUID
	done    chan []log.UUID // room for one: the records that were done
}

// record is one record that waits for an answer.
type record struct {
	batch *batch
	id    log.UUID
}

// end records whether a record was done. Otherwise it stays in the server's log and
// comes again.
func (r *record) end(dealt bool) {
	b := r.batch
	if dealt {
		b.ids = append(b.ids, r.id)
	}
	if b.open--; b.open == 0 {
		b.done <- b.ids
	}
}

// takeRecords asks again what the log names, if it is known here.
func (d *Daemon) takeRecords(b *batch) {
	b.open = len(b.records) + 1
	for i := range b.records {
		r := &b.records[i]
		d.stats.shootdowns.Add(1)
		waiting := &record{batch: b, id: r.ID}
		k := key{vnet: r.VNet, ip: r.IP}
		if r.Type == varp.RecordVL2 {
			k = key{vnet: r.VNet, mac: r.MAC}
		}
		delete(d.tables.absent, k)
		if !d.tables.holds(k) && d.queries.byKey[k] == nil {
			waiting.end(true)
			continue
		}
		a := d.ask(k, true)
		a.again = a.again || a.sent
		a.waiters = append(a.waiters, waiting)
	}
	if b.open--; b.open == 0 {
		b.done <- b.ids
	}
}

// pollAll polls the log of each underlay address of this node.
func (d *Daemon) pollAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	polled := map[netip.Addr]context.CancelFunc{}
	for ctx.Err() == nil {
		now := map[netip.Addr]bool{}
		for _, local := range d.readLocalAddrs() {
			now[local] = true
			if polled[local] == nil {
				one, cancel := context.WithCancel(ctx)
				polled[local] = cancel
				g.Go(func() error { d.poll(one, local); return nil })
			}
		}
		for local, cancel := range polled {
			if !now[local] {
				cancel()
				delete(polled, local)
			}
		}
		wait(ctx, tickEvery)
	}
	_ = g.Wait() // poll has no error
	return ctx.Err()
}

// poll polls the log of one underlay address until ctx ends. While the log has records,
// it polls again at once.
func (d *Daemon) poll(ctx context.Context, local netip.Addr) {
	for ctx.Err() == nil {
		if !d.pollOnce(ctx, local) {
			wait(ctx, d.cfg.PollEvery+rand.N(d.cfg.PollEvery/2+1))
		}
	}
}

// pollOnce reports whether there were records, and all of them are done.
func (d *Daemon) pollOnce(ctx context.Context, local netip.Addr) bool {
	records, err := d.cfg.Resolver.LogRequest(ctx, local, pollBytes)
	if err != nil {
		if ctx.Err() == nil {
			d.stats.pollsFailed.Add(1)
			d.cfg.Logger.Debug("varpd: shootdown log", "error", err)
		}
		return false
	}
	d.stats.polls.Add(1)
	d.stats.lastPoll.Store(time.Now().UnixNano())
	if len(records) == 0 {
		return false
	}
	b := &batch{records: records, done: make(chan []log.UUID, 1)}
	select {
	case d.records <- b:
	case <-ctx.Done():
		return false
	}
	var ids []log.UUID
	select {
	case ids = <-b.done:
	case <-ctx.Done():
		return false
	}
	if len(ids) == 0 {
		return false
	}
	return d.cfg.Resolver.LogRemove(ctx, ids) == nil && len(ids) == len(records)
}
