package vmm

import (
	"context"
	"errors"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Why a VMM failed, if its CN does not report it (spec/vmm-doorbell.md §7.1).
const (
	reasonGone     = "no_such_instance"
	reasonExpunged = "sled_expunged"
)

// statusExpunged is the status of a server that will not return.
const statusExpunged = "expunged"

// looked is a VMM that a sweep looks at.
type looked struct {
	vmm      *log.VMM
	expunged bool
}

// sweep checks every VMM that is on a CN, because rings may be lost. It may end early,
// be repeated, or run on two servers during a change of the leader: its results are
// compared by generation when they are written.
func (s *Service) sweep(ctx context.Context) {
	began := time.Now()
	s.metrics.sweeps.Inc()
	list := s.toCheck()
	var silent sync.Map // CNs that did not answer in this sweep; it does not ask them again
	work := make(chan looked)
	var tasks sync.WaitGroup
	for range min(maxChecks, len(list)) {
		tasks.Go(func() {
			for c := range work {
				s.metrics.checks.WithLabelValues(s.check(ctx, c, &silent)).Inc()
			}
		})
	}
	for _, c := range list {
		if ctx.Err() != nil || !s.leading() {
			break
		}
		work <- c
	}
	close(work)
	tasks.Wait()
	s.metrics.sweep.Observe(time.Since(began).Seconds())
}

// toCheck lists the VMMs that are on a CN.
func (s *Service) toCheck() (list []looked) {
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindVMM) {
			held := rec.Object.(*log.VMM)
			if !onCN(held.State) {
				continue
			}
			c := looked{vmm: held}
			if server, ok := state.Get(log.KindServer, held.SledID.String()); ok {
				c.expunged = server.Object.(*log.Server).Status == statusExpunged
			}
			list = append(list, c)
		}
	})
	return list
}

// check checks one VMM, and returns what it found.
func (s *Service) check(ctx context.Context, c looked, silent *sync.Map) (finding string) {
	held := c.vmm
	if c.expunged {
		return s.judged("expunged", s.fail(ctx, held, reasonExpunged))
	}
	if _, is := silent.Load(held.SledID); is {
		return "inconclusive"
	}
	st, err := s.fetch(ctx, held.SledID, held.UUID)
	switch {
	case errors.Is(err, errGone):
		return s.judged("gone", s.fail(ctx, held, reasonGone))
	case errors.Is(err, ErrUnreachable):
		silent.Store(held.SledID, true)
		return "inconclusive"
	case err != nil:
		return "inconclusive"
	}
	_, applied, err := s.record(ctx, claim{vmm: held.UUID, cn: held.SledID, actor: actorCN + held.SledID.String(), state: *st})
	if !applied || err != nil {
		return s.judged("same", err)
	}
	s.acknowledge(ctx, held.SledID, held.UUID, st.VMM.Gen)
	return "updated"
}

func (s *Service) judged(finding string, err error) string {
	if err == nil {
		return finding
	}
	s.logger.Warn("the watcher could not record what it found", "finding", finding, "error", err)
	return "inconclusive"
}
