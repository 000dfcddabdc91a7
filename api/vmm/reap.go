package vmm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// reaper deletes VMMs that have ended, and migrations between such, from the state;
// their history stays in the log. A VMM is deleted when its CN has forgotten it (the CN
// does so when it knows that the end is recorded) or is expunged. In addition,
// ReapAfter must have passed since this leader first saw the end, or the VM must be
// deleted. No clock of a CN is used; a new leader waits again. A deletion names the
// revision, so a VMM that changed meanwhile stays.
type reaper struct {
	*Service
	ended map[string]time.Time // when this leader first saw their end, by kind and id
}

// left is an object that has ended.
type left struct {
	rec   projections.Record
	vmm   *log.VMM // nil: a migration
	asked bool     // its CN must have forgotten it
}

// sweep deletes what may go, up to maxReap.
func (r *reaper) sweep(ctx context.Context) {
	due := r.due(time.Now())
	may := make([]bool, len(due))
	var silent sync.Map
	next := make(chan int)
	var tasks sync.WaitGroup
	for range min(maxChecks, len(due)) {
		tasks.Go(func() {
			for i := range next {
				may[i] = !due[i].asked || r.forgotten(ctx, due[i].vmm, &silent)
			}
		})
	}
	for i := range due {
		next <- i
	}
	close(next)
	tasks.Wait()
	var ops []log.Op
	for i, l := range due {
		if may[i] {
			ops = append(ops, log.Op{Action: log.Delete, Kind: l.rec.Object.Kind(), ID: l.rec.Object.ID(), IfMatch: l.rec.Revision, IfSeq: l.rec.Seq})
		}
	}
	for part := range slices.Chunk(ops, maxReportOps) {
		if err := r.remove(ctx, part); err != nil {
			if ctx.Err() == nil {
				r.logger.Warn("VMMs that have ended are not deleted: again with the next sweep", "error", err)
			}
			return
		}
	}
}

// due lists what has ended long enough ago, and records new ends.
func (r *reaper) due(now time.Time) (due []left) {
	seen := make(map[string]time.Time)
	since := func(rec projections.Record) time.Duration {
		key := rec.Object.Kind().String() + " " + rec.Object.ID()
		first, known := r.ended[key]
		if !known {
			first = now
		}
		seen[key] = first
		return now.Sub(first)
	}
	r.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindVMM) {
			held := rec.Object.(*log.VMM)
			if onCN(held.State) || held.State == stateCreating {
				continue
			}
			long := since(rec) >= r.cfg.ReapAfter || vmDeleted(state, held.InstanceID)
			if long && len(due) < maxReap {
				due = append(due, left{rec: rec, vmm: held, asked: held.State != stateUnwound && !lost(state, held.SledID)})
			}
		}
		for rec := range state.List(log.KindMigration) {
			m := rec.Object.(*log.Migration)
			_, from := state.Get(log.KindVMM, m.SourceVMM.String())
			_, to := state.Get(log.KindVMM, m.TargetVMM.String())
			if !from && !to && since(rec) >= r.cfg.ReapAfter && len(due) < maxReap {
				due = append(due, left{rec: rec})
			}
		}
	})
	r.ended = seen
	return due
}

func vmDeleted(state *projections.State, vm log.UUID) bool {
	rec, known := state.Get(log.KindVM, vm.String())
	return known && rec.Object.(*log.VM).State == vmDestroyed
}

// lost reports whether a CN will not report about its VMMs any more.
func lost(state *projections.State, cn log.UUID) bool {
	server, known := state.Get(log.KindServer, cn.String())
	return known && server.Object.(*log.Server).Status == statusExpunged
}

// forgotten reports whether a CN has certainly forgotten a VMM. If not, it acknowledges
// the end to the CN again, because the first acknowledgement may have been lost.
func (r *reaper) forgotten(ctx context.Context, held *log.VMM, silent *sync.Map) bool {
	if _, is := silent.Load(held.SledID); is || ctx.Err() != nil {
		return false
	}
	st, err := r.fetch(ctx, held.SledID, held.UUID)
	switch {
	case errors.Is(err, ErrUnreachable):
		silent.Store(held.SledID, true)
	case err == nil && st.VMM.Gen <= held.Gen:
		r.acknowledge(ctx, held.SledID, held.UUID, st.VMM.Gen)
	}
	return errors.Is(err, errGone)
}

// remove deletes in one change; if that is refused, each object alone.
func (r *reaper) remove(ctx context.Context, ops []log.Op) error {
	writing, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	result, err := r.propose(writing, &log.Change{Actor: actorWatcher, Ops: ops})
	if err != nil {
		return err
	}
	if result.Refusal == nil {
		r.metrics.reaped.Add(float64(result.Events))
		return nil
	}
	if len(ops) == 1 {
		return nil // it changed, or another leader deleted it
	}
	for i := range ops {
		if err := r.remove(ctx, ops[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
