package agent

import (
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// remember returns what a reset must not lose: a copy of the held state, if the view is
// complete and none is kept yet. Only the follower changes the state, and it calls
// this, so lookups continue meanwhile.
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
				r.logger.Error("an object of the view before the reset cannot be copied", "object", keyOf(rec), "error", err)
			}
		}
	}
	return old
}

// toJudge returns the view to judge, if there is one: a complete view. A view that is
// held is judged again, because it may have grown.
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
		return // another view came meanwhile
	}
	r.view.judge(r.cursor.Cluster, s, now)
}

// accept ends the hold with that id.
func (r *replica) accept(id string) (Hold, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.accept(id)
}

// holding returns the hold, nil if nothing is held.
func (r *replica) holding() *Hold {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.view.withheld
}

// isUnjudged reports whether the view must not replace the one on disk: if the process
// ended now, the next one would have nothing to compare with.
func (r *replica) isUnjudged() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.view.phase == unjudged && r.view.old != nil
}
