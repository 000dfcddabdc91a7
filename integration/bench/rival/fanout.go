//go:build rivals

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"rutter/cmd/rutter/bench/load"
)

// fanKey is the key that all clients watch.
const fanKey = "/fan"

// fanout makes each client watch one key, puts it at a rate, and measures how late
// the watchers see it: Count is the deliveries.
func fanout(ctx context.Context, clients []*clientv3.Client, rate int, duration time.Duration, size int) (load.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var delivered atomic.Uint64
	delays := make([]load.Histogram, len(clients))
	var watching sync.WaitGroup
	var begin atomic.Int64 // what was put before is not counted
	for i, c := range clients {
		created := c.Watch(ctx, fanKey, clientv3.WithCreatedNotify())
		if _, ok := <-created; !ok {
			return load.Outcome{}, fmt.Errorf("watch %d was not created", i)
		}
		watching.Go(func() {
			for r := range created {
				now := time.Now()
				for _, e := range r.Events {
					if at := int64(binary.BigEndian.Uint64(e.Kv.Value)); at >= begin.Load() {
						delays[i].Add(now.Sub(time.Unix(0, at)))
						delivered.Add(1)
					}
				}
			}
		})
	}
	n := int(float64(rate) * (duration.Seconds() + 1))
	start := time.Now()
	begin.Store(start.Add(time.Second).UnixNano())
	var putting sync.WaitGroup
	var failed atomic.Uint64
	for i := range n {
		time.Sleep(time.Until(start.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))))
		putting.Go(func() {
			value := make([]byte, max(size, 8))
			binary.BigEndian.PutUint64(value, uint64(time.Now().UnixNano()))
			if _, err := clients[0].Put(ctx, fanKey, string(value)); err != nil {
				failed.Add(1)
			}
		})
	}
	putting.Wait()
	time.Sleep(2 * time.Second) // for the last to arrive
	cancel()
	watching.Wait()
	o := load.Outcome{Writers: len(clients), Count: delivered.Load(), Errors: failed.Load(), Seconds: duration.Seconds()}
	all := new(load.Histogram)
	for i := range delays {
		all.Merge(&delays[i])
	}
	o.PerSecond = float64(o.Count) / o.Seconds
	o.P50, o.P90, o.P99, o.Max = load.Millis(all.Quantile(.5)), load.Millis(all.Quantile(.9)), load.Millis(all.Quantile(.99)), load.Millis(all.Max())
	return o, nil
}
