package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// Connections is the default number of connections of a bench.
const Connections = 16

// Streams opens write streams, calls use with the Submit of each, and closes them when
// use returns.
func Streams(ctx context.Context, c *Cluster, connections int, use func(submit []Submit) error) error {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var submit []Submit
	for range connections {
		stream := c.Client.NewStream()
		running.Go(func() { _ = stream.Run(streaming) }) // it ends with streaming
		submit = append(submit, stream.Submit)
	}
	return use(submit)
}

// Submit writes one change.
type Submit func(context.Context, *log.Change) (log.Result, error)

// Append measures single changes, each one event that creates a VM, through
// the write stream, or through POST /changes if overHTTP is set.
func Append(ctx context.Context, c *Cluster, w *Workload, connections int, overHTTP bool, plan load.Plan) (outcome load.Outcome, err error) {
	run := func(submit []Submit) (err error) {
		outcome, err = write(ctx, submit, w.Create, plan)
		return err
	}
	if overHTTP {
		return outcome, run([]Submit{c.Client.Submit})
	}
	return outcome, Streams(ctx, c, connections, run)
}

// Update is Append with changes that update one of the first objects VMs, one after
// another. They must exist. The log grows by them, the state does not.
func Update(ctx context.Context, c *Cluster, w *Workload, objects uint64, plan load.Plan) (outcome load.Outcome, err error) {
	err = Streams(ctx, c, Connections, func(submit []Submit) (err error) {
		outcome, err = write(ctx, submit, func() *log.Change { return w.Update(objects) }, plan)
		return err
	})
	return outcome, err
}

// write submits the changes that next makes, by the writers of the plan.
func write(ctx context.Context, submit []Submit, next func() *log.Change, plan load.Plan) (load.Outcome, error) {
	plan.Do = func(ctx context.Context, writer int, _ uint64) error {
		_, err := submit[writer%len(submit)](ctx, next())
		return err
	}
	outcome := load.Run(ctx, plan)
	if outcome.Count == 0 {
		return outcome, fmt.Errorf("nothing was written: %s", outcome.FirstError)
	}
	return outcome, nil
}

// Fill writes changes of opsAtOnce events, with fillers changes under way.
const (
	opsAtOnce = 64
	fillers   = 32
)

// Fill writes events (rounded up to whole changes) through the write stream: first
// creates of VMs, up to objects, then updates of them, one after another. The outcome's
// Count is of changes.
func Fill(ctx context.Context, c *Cluster, w *Workload, events, objects uint64, progress func(done uint64)) (created, updated load.Outcome, err error) {
	return FillOn(ctx, c, w, 0, events, objects, progress)
}

// FillOn is Fill in a log that has the first events already, from the workload
// of another that ended in order: see Workload.Again.
func FillOn(ctx context.Context, c *Cluster, w *Workload, have, events, objects uint64, progress func(done uint64)) (created, updated load.Outcome, err error) {
	objects = (min(objects, events) + opsAtOnce - 1) / opsAtOnce * opsAtOnce
	w.next.Store(min(have, objects))
	updates := (max(have, objects) - objects) / opsAtOnce // that were written
	phase := func(submit []Submit, before, count uint64, next func(n uint64) *log.Change) (load.Outcome, error) {
		var n atomic.Uint64
		outcome := load.Run(ctx, load.Plan{
			Writers: fillers, Count: count,
			Progress: func(done uint64, _ time.Duration) { progress(before + done*opsAtOnce) },
			Do: func(ctx context.Context, writer int, _ uint64) error {
				_, err := submit[writer%len(submit)](ctx, next(n.Add(1)-1))
				return err
			},
		})
		if outcome.Errors > 0 {
			return outcome, fmt.Errorf("%d of %d changes failed: %s", outcome.Errors, count, outcome.FirstError)
		}
		return outcome, ctx.Err()
	}
	err = Streams(ctx, c, Connections, func(submit []Submit) (err error) {
		if have < objects {
			created, err = phase(submit, have, (objects-have)/opsAtOnce, func(uint64) *log.Change { return w.createMany(opsAtOnce) })
		}
		if err != nil || max(objects, have) >= events {
			return err
		}
		updated, err = phase(submit, max(objects, have), (events-max(objects, have)+opsAtOnce-1)/opsAtOnce, func(n uint64) *log.Change {
			n += updates
			return w.updateMany(n*opsAtOnce, opsAtOnce, objects, n*opsAtOnce/objects)
		})
		return err
	})
	return created, updated, err
}
