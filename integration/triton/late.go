package triton

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/api/triton/changefeed/listen"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// LateOutcome says how late items came. Durations are from the moment that a
// change was sent to that when a listener had read its item, so the time until
// it was accepted is in them.
type LateOutcome struct {
	Listeners, Changes int
	Missing            int // items that never came
	P50, P99, Max      time.Duration
	// Accepted is the 99th percentile of the answers to the changes.
	Accepted time.Duration
}

// Late measures listeners of all servers at a rate of changes.
func Late(ctx context.Context, c *bench.Cluster, listeners, perSecond int, d time.Duration) (o LateOutcome, err error) {
	changes := int(d.Seconds() * float64(perSecond))
	sent := make([]atomic.Int64, changes) // ns since begin
	begin := time.Now()
	late := make([][]time.Duration, listeners)
	for i := range late {
		late[i] = make([]time.Duration, 0, changes)
	}
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL)
	}
	fleet, err := StartFleet(urls, listeners, []listen.Want{{Resource: "vm", SubResources: []string{"create"}}}, func(i int, it listen.Item) {
		if n, ok := vmOf(it.ChangedResourceID); ok && n < changes {
			late[i] = append(late[i], time.Since(begin)-time.Duration(sent[n].Load()))
		}
	})
	if err != nil {
		return o, err
	}
	defer fleet.Stop()
	if err := fleet.AwaitRegistered(ctx); err != nil {
		return o, fmt.Errorf("the listeners register: %w", err)
	}
	accepted := make([]time.Duration, changes)
	var last log.Seq
	err = bench.Streams(ctx, c, 1, func(submit []bench.Submit) error {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		var g errgroup.Group
		for n := range changes {
			<-tick.C
			g.Go(func() error {
				at := time.Since(begin)
				sent[n].Store(int64(at))
				_, err := submit[0](ctx, creation(n))
				accepted[n] = time.Since(begin) - at
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return o, err
	}
	if last, err = c.Client.Head(ctx); err != nil {
		return o, err
	}
	patience, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	if err := fleet.AwaitSeq(patience, last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return o, err
	}
	fleet.Stop() // no listener writes to late from here on
	var flat []time.Duration
	for _, of := range late {
		flat = append(flat, of...)
	}
	o = LateOutcome{Listeners: listeners, Changes: changes, Missing: listeners*changes - len(flat), Accepted: quantile(accepted, 99)}
	o.P50, o.P99, o.Max = quantile(flat, 50), quantile(flat, 99), quantile(flat, 100)
	return o, nil
}

// quantile sorts all and returns a percentile; 0 of none.
func quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)*percent/100, len(all)-1)]
}
