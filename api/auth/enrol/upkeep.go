package enrol

import (
	"context"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Times of the periodic work.
const (
	upkeepEvery = time.Minute
	seedEvery   = time.Second // until the log has the authorities
	// keepTokens is how long a token is listed after its end, so that operators can see
	// what became of it.
	keepTokens = 24 * time.Hour
	// upkeepOps bounds the operations of one change.
	upkeepOps = 256
	upkeeper  = "rutter"
)

// Run does the periodic work until ctx ends. The leader writes the authorities into a
// log that has none, and deletes what has ended.
func (s *Service) Run(ctx context.Context) error {
	for {
		wait := upkeepEvery
		if s.cfg.Leads() {
			if !s.seed(ctx) {
				wait = seedEvery
			}
			s.sweep(ctx)
		} else if !s.seeded() {
			wait = seedEvery
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// missing returns the sets of authorities that are not in the log.
func (s *Service) missing() (sets []log.Authority) {
	own := s.cfg.Authorities()
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for _, a := range own {
			if _, ok := state.Get(log.KindAuthority, a.Name); !ok {
				sets = append(sets, a)
			}
		}
	})
	return sets
}

func (s *Service) seeded() bool { return len(s.missing()) == 0 }

// seed writes the missing authorities, and reports whether the log now has all.
func (s *Service) seed(ctx context.Context) bool {
	var ops []log.Op
	for _, a := range s.missing() {
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindAuthority, Object: &a, Set: []string{"certificates", "issuing", "name"}})
	}
	return len(ops) == 0 || s.keep(ctx, ops)
}

// sweep deletes what has ended both by the log's time and by the servers' clocks: if
// the log's time was ahead once, a revocation that is still needed must not be deleted.
func (s *Service) sweep(ctx context.Context) {
	var ops []log.Op
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		now := min(state.Time(), log.TimeOf(s.cfg.Now()))
		ended := func(kind log.Kind, end func(log.Object) log.Time) {
			for r := range state.List(kind) {
				if at := end(r.Object); at != 0 && at < now && len(ops) < upkeepOps {
					ops = append(ops, log.Op{Action: log.Delete, Kind: kind, ID: r.Object.ID()})
				}
			}
		}
		ended(log.KindToken, func(o log.Object) log.Time { return o.(*log.Token).Expires + log.Time(keepTokens) })
		newest := newestOf(state)
		ended(log.KindCertificate, func(o log.Object) log.Time {
			c := o.(*log.Certificate)
			if newest[holderOf(c)] == c.Serial {
				return c.NotAfter + log.RenewalGrace // it may be renewed
			}
			return c.NotAfter
		})
		ended(log.KindRevocation, func(o log.Object) log.Time {
			until := o.(*log.Revocation).Until
			if until != 0 {
				until += log.RenewalGrace
			}
			return until
		})
	})
	if len(ops) > 0 {
		s.keep(ctx, ops)
	}
}

// holder is who has certificates of a set of authorities.
type holder struct{ identity, authority string }

func holderOf(c *log.Certificate) holder { return holder{c.Identity, c.Authority} }

// newestOf returns the serial of the certificate of each holder that ends last.
func newestOf(state *projections.State) map[holder]string {
	newest, ends := make(map[holder]string), make(map[holder]log.Time)
	for r := range state.List(log.KindCertificate) {
		if c := r.Object.(*log.Certificate); c.NotAfter > ends[holderOf(c)] {
			newest[holderOf(c)], ends[holderOf(c)] = c.Serial, c.NotAfter
		}
	}
	return newest
}

// keep writes operations of the periodic work. A failed one is retried later.
func (s *Service) keep(ctx context.Context, ops []log.Op) bool {
	id, err := s.cfg.NewID()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		_, err = s.propose(limited, &log.Change{ID: id, Actor: upkeeper, Ops: ops})
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("upkeep of certificates", "error", err)
	}
	return err == nil
}
