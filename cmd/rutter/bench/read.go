package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// ReplayOutcome is the cost of reading the whole log.
type ReplayOutcome struct {
	Events    uint64  `json:"events"`
	Bytes     uint64  `json:"bytes"` // of the encoded events
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

// Replay reads and decodes up to limit entries after a seq, in one goroutine.
func Replay(ctx context.Context, c *Cluster, after log.Seq, limit uint64, progress func(done uint64)) (ReplayOutcome, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(load.ReaderGC))
	var o ReplayOutcome
	begin, told := time.Now(), time.Now()
	for e, err := range c.Client.Entries(ctx, after) {
		if err != nil {
			return o, err
		}
		event, err := e.Event()
		if err != nil {
			return o, err
		}
		if event.Revision == 0 {
			return o, fmt.Errorf("seq %d: an event without a revision: %w", e.Seq, log.ErrCorrupt)
		}
		o.Events++
		o.Bytes += uint64(len(e.Bytes))
		if o.Events >= limit {
			break
		}
		if o.Events%4096 == 0 && time.Since(told) > time.Second {
			told = time.Now()
			progress(o.Events)
		}
	}
	o.Seconds = time.Since(begin).Seconds()
	o.PerSecond = float64(o.Events) / o.Seconds
	return o, nil
}

// Read measures reads of single objects, among the first objects VMs of the workload,
// with writers readers at once.
func Read(ctx context.Context, c *Cluster, w *Workload, objects uint64, consistent bool, plan load.Plan) load.Outcome {
	query := make(map[string][]string)
	if consistent {
		query["consistent"] = []string{"1"}
	}
	plan.Do = func(ctx context.Context, writer int, n uint64) error {
		id := w.id((uint64(writer)*7919+n)%objects + 1)
		_, err := c.Client.Get(ctx, "/vms/"+id.String(), query)
		return err
	}
	return load.Run(ctx, plan)
}
