package agent

import (
	"strings"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Changes returns what became of the NICs that are held, after a position: 0 is
// before all. There are no more when none is returned, and at most limit are.
// gap: not all is kept that came between, but who goes through what is held,
// and hears these changes, misses nothing.
func (a *Agent) Changes(after uint64, limit int) (changes []Change, gap bool) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	return a.replica.journal.after(after, limit)
}

// LastChange returns the position of the last change.
func (a *Agent) LastChange() uint64 {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	return a.replica.journal.pos
}

// View calls fn with what is held, which does not change meanwhile. fn is short
// and keeps nothing of it.
func (a *Agent) View(fn func(*projections.State)) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	fn(a.replica.state)
}

// condition is what people must see to on this node.
func (a *Agent) condition() (c feed.Condition) {
	if h := a.replica.holding(); h != nil {
		c = feed.Condition{
			Hold: h.ID, Going: uint32(h.Going), Links: uint32(h.Links), Was: h.Was.Cluster, Log: h.Log, Names: strings.Join(h.Names, "\n"),
		}
	}
	c.Trouble = strings.Join(a.trouble(), "\n")
	return c
}

// trouble says what else is wrong, a line each.
func (a *Agent) trouble() (lines []string) {
	if failure := a.persister.status().Failure; failure != "" {
		lines = append(lines, "the cache cannot be written: "+failure)
	}
	if a.cfg.Trouble != nil {
		lines = append(lines, a.cfg.Trouble()...)
	}
	return lines
}

// Accept lets the view that is held take away what it lacks, if its hold has that
// id. Errors: ErrNoHold, ErrOtherHold.
func (a *Agent) Accept(id string) (Hold, error) { return a.replica.accept(id) }

// Part calls fn with this node's part of the state while nothing is applied:
// the cluster whose log it is (zero: none yet), the seq of its last bookmark, and
// whether all that this node must know was held at least once. Some entries after
// the bookmark may be in it. While a view is held it is not all: what it lacks is
// not gone. fn must not call the agent, keep the state, or be
// slow; the objects that it finds may be kept, since nobody changes them.
func (a *Agent) Part(fn func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool)) {
	r := a.replica
	r.mu.RLock()
	defer r.mu.RUnlock()
	fn(r.state, r.cursor.Cluster, r.cursor.Seq, r.complete && r.reset == nil && r.view.standing == settled)
}

// Incarnation is that of this process: higher than all before it.
func (a *Agent) Incarnation() uint64 { return a.follower.incarnation }

// OpenTasks are the tasks of this compute node that have not ended, as the agent
// holds them. Nobody may change them.
func (a *Agent) OpenTasks() (tasks []*log.Task) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	for rec := range a.replica.state.OpenTasksOn(a.cfg.CN) {
		tasks = append(tasks, rec.Object.(*log.Task))
	}
	return tasks
}
