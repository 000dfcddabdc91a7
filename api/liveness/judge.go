package liveness

import (
	"context"
	"time"

	"rutter/log"
	"rutter/projections"
)

// The status of a server object (spec/cnapi.md §4.2).
const (
	running = "running"
	unknown = "unknown"
	// expunged is the status that an operator sets for a CN that will not return:
	// sessions do not change it.
	expunged = "expunged"
)

// maxTransitions bounds the CNs whose status one change sets.
const maxTransitions = 256

// Actor is the actor of changes to the status of compute nodes.
const Actor = "rutter"

// transition is a CN and its new status.
type transition struct {
	cn     log.UUID
	status string
	why    string
}

// judge writes the changes of status since the last call.
func (r *leaderTerm) judge(ctx context.Context) {
	recorded := make(map[log.UUID]string)
	r.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			server := rec.Object.(*log.Server)
			recorded[server.UUID] = server.Status
		}
	})
	changes := r.transitions(recorded)
	for len(changes) > 0 && ctx.Err() == nil {
		n := min(len(changes), maxTransitions)
		r.write(ctx, changes[:n])
		changes = changes[n:]
	}
}

// transitions compares the status in the log with the sessions.
func (r *leaderTerm) transitions(recorded map[log.UUID]string) []transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	allComplete := true
	for _, v := range r.views {
		allComplete = allComplete && v.complete
	}
	leased := now >= r.cfg.Lease // a new leader waits for one lease before it declares a CN lost
	var changes []transition
	for _, cn := range sorted(recorded) {
		if recorded[cn] == expunged {
			continue
		}
		s := r.cns[cn]
		if s != nil && r.alive(s, now) {
			s.at = now
			if recorded[cn] != running && (allComplete || leased) && now-s.since >= r.cfg.Settle {
				changes = append(changes, transition{cn, running, "its session is with " + s.server})
			}
			continue
		}
		b := r.beats[cn]
		if b != nil && now < b.until {
			if recorded[cn] != running && (allComplete || leased) && now-b.since >= r.cfg.Settle {
				changes = append(changes, transition{cn, running, "its heartbeats come to " + b.server})
			}
			continue
		}
		last := time.Duration(0) // of a CN that no server has reported: the begin of the term
		if s != nil {
			last = max(last, s.at)
			if s.session.Gone {
				s.since = now // it must be present for Settle again
			}
		}
		if b != nil {
			last = max(last, b.at, b.until-r.cfg.Lease)
		}
		if recorded[cn] == running && leased && now-last >= r.cfg.Lease {
			changes = append(changes, transition{cn, unknown, "no session or heartbeat for " + (now - last).Round(time.Second).String()})
		}
	}
	r.forget(now, recorded)
	r.forgetBeats(now, recorded)
	return changes
}

// forget drops records of CNs that are long gone. The caller holds the lock.
func (r *leaderTerm) forget(now time.Duration, recorded map[log.UUID]string) {
	for cn, s := range r.cns {
		if recorded[cn] != running && s.session.Gone && now-s.at > Memory {
			delete(r.cns, cn)
		}
	}
}

// write sets the status of some CNs: together, or one by one if the change is refused,
// because an object may be deleted meanwhile. What is not written is found again in the
// next round.
func (r *leaderTerm) write(ctx context.Context, changes []transition) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if term, leads := r.cfg.Peers.Leading(); !leads || term != r.term {
		return // only the leader writes
	}
	c, err := r.change(changes)
	if err != nil {
		r.cfg.Logger.Error("status of compute nodes cannot be written", "error", err)
		return
	}
	result, err := r.cfg.Store.Propose(ctx, c)
	switch {
	case err != nil:
		r.cfg.Logger.Warn("status of compute nodes not written: again at the next round", "cns", len(changes), "error", err)
	case result.Refusal != nil && len(changes) > 1:
		for _, one := range changes {
			r.write(ctx, []transition{one})
		}
	case result.Refusal != nil:
		r.cfg.Logger.Warn("status of a compute node refused", "cn", changes[0].cn, "error", result.Refusal)
	default:
		for _, t := range changes {
			r.cfg.Logger.Info("compute node is "+t.status, "cn", t.cn, "why", t.why, "seq", result.Last)
		}
	}
}

func (r *leaderTerm) change(changes []transition) (*log.Change, error) {
	id, err := r.cfg.NewID()
	if err != nil {
		return nil, err
	}
	c := &log.Change{ID: id, Actor: Actor}
	for _, t := range changes {
		c.Ops = append(c.Ops, log.Op{
			Action: log.Update, Kind: log.KindServer, ID: t.cn.String(),
			Set: []string{"status"}, Object: &log.Server{UUID: t.cn, Status: t.status},
		})
	}
	return c, nil
}
