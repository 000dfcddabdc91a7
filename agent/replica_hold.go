package agent

import (
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// remember returns what a reset must not lose: a copy of what is held, if the view
// is whole and none is remembered yet. Only the follower changes the state, and it
// is who calls this, so that lookups go on meanwhile.
func (r *replica) remember() *projections.State {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.view.share == 0 || r.view.old != nil || r.reset != nil || !r.complete || r.view.phase != settled || r.objects == 0 {
		return nil
	}
	old := projections.NewSmallState()
	for kind := range maxKind {
		for rec := range r.state.List(log.Kind(kind)) {
			if err := old.Load(rec); err != nil {
				r.logger.Error("an object of the view before the reset is not remembered", "object", keyOf(rec), "error", err)
			}
		}
	}
	return old
}

// toJudge returns what is to be judged, if there is something: a view that is
// whole. One that is held is judged again, since it may have grown.
func (r *replica) toJudge() (j viewCheck, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.view.phase == settled || r.view.phase == held && r.view.old == nil || !r.isAllHeld() {
		return j, false
	}
	j = viewCheck{epoch: r.epoch, want: desired.Within(r.state, r.cn, linksOnly)}
	if r.view.old != nil {
		was := desired.Within(r.view.old, r.cn, linksOnly)
		j.was = &was
	}
	return j, true
}

// judge settles a view, or holds it.
func (r *replica) judge(j viewCheck, s link.Surplus, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != j.epoch || r.view.phase == settled || !r.isAllHeld() {
		return // another one came meanwhile
	}
	r.view.judge(r.cursor.Cluster, s, now)
}

// accept lets the hold of that id go.
func (r *replica) accept(id string) (Hold, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.accept(id)
}

// holding returns what is held, nil if nothing is.
func (r *replica) holding() *Hold {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.view.withheld
}

// isUnjudged reports whether what is known must not be kept in the place of what
// was: if the process ended now, the next one had nothing to compare with.
func (r *replica) isUnjudged() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.view.phase == unjudged && r.view.old != nil
}
