package vmm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rutter/log"
)

// Ring reports that a VMM has a state that the log may not have. It returns at once.
// The state is pulled later, once for all rings until then. cn is the CN that rings, or
// zero if it is unknown and the log knows the VMM. Errors: ErrUnknown, ErrBusy.
func (s *Service) Ring(id, cn log.UUID) error {
	if held := s.vmmOf(id); held != nil {
		cn = held.SledID
	} else if cn.IsZero() {
		s.metrics.rings.WithLabelValues("unknown").Inc()
		return fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	coalesced, err := s.pulls.add(id, cn)
	switch {
	case err != nil:
		s.metrics.rings.WithLabelValues("refused").Inc()
	case coalesced:
		s.metrics.rings.WithLabelValues("coalesced").Inc()
	default:
		s.metrics.rings.WithLabelValues("taken").Inc()
	}
	return err
}

// pullRung pulls the states of VMMs that were rung for, one after the other, and starts
// a goroutine that records each: the next pull does not wait for the disks.
func (s *Service) pullRung(ctx context.Context, tasks *sync.WaitGroup, recording chan struct{}) {
	for {
		p, ok := s.pulls.begin()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-s.pulls.awake:
			}
			continue
		}
		asked, cancel := context.WithTimeout(ctx, p.patience)
		st, err := s.fetch(asked, p.cn, p.vmm)
		silent := errors.Is(err, ErrUnreachable) && asked.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		if s.pulls.pullDone(p, silent) {
			continue
		}
		if err != nil {
			s.missed(ctx, p.vmm, s.vmmOf(p.vmm), err)
			s.pulls.end(p.vmm)
			continue
		}
		s.metrics.pulls.WithLabelValues("state").Inc()
		select {
		case recording <- struct{}{}:
		case <-ctx.Done():
			return
		}
		tasks.Go(func() {
			defer func() { <-recording }()
			defer s.pulls.end(p.vmm)
			s.recordPulled(ctx, claim{vmm: p.vmm, cn: p.cn, actor: actorCN + p.cn.String(), state: *st}, p.at)
		})
	}
}

// missed handles a pull that returned no state. An unreachable CN rings again when it
// is connected, and the watcher checks its VMMs.
func (s *Service) missed(ctx context.Context, id log.UUID, held *log.VMM, err error) {
	if errors.Is(err, errGone) {
		s.metrics.pulls.WithLabelValues("gone").Inc()
		if held != nil {
			err = s.fail(ctx, held, reasonGone)
		}
	} else {
		s.metrics.pulls.WithLabelValues("inconclusive").Inc()
	}
	if err != nil && ctx.Err() == nil {
		s.logger.Info("a VMM rang, and its state was not to be had", "vmm", id, "error", err)
	}
}

// recordPulled records a state and acknowledges it to the CN.
func (s *Service) recordPulled(ctx context.Context, c claim, rang time.Time) {
	_, _, err := s.record(ctx, c)
	if errors.Is(err, errNotPlaced) {
		s.waitForVM(c)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.logger.Warn("the state of a VMM is not recorded", "vmm", c.vmm, "cn", c.cn, "error", err)
		}
		return
	}
	s.metrics.ringTime.Observe(time.Since(rang).Seconds())
	s.acknowledge(ctx, c.cn, c.vmm, c.state.VMM.Gen)
}

// acknowledge tells the CN that the log has a generation, or a later one, so that it
// may forget a final state. If the message is lost, the CN rings again.
func (s *Service) acknowledge(ctx context.Context, cn, id log.UUID, gen uint64) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	body := fmt.Appendf(nil, `{"gen":%d}`, gen)
	if _, err := s.versioned(ctx, cn, http.MethodPut, "/vmms/"+id.String()+"/recorded", body); err != nil && ctx.Err() == nil {
		s.logger.Debug("a CN was not told that a state is recorded", "vmm", id, "cn", cn, "error", err)
	}
}
