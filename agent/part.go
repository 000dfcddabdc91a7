package agent

import (
	"rutter/log"
	"rutter/projections"
)

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
	fn(r.state, r.cursor.Cluster, r.cursor.Seq, r.complete && r.reset == nil && r.standing == settled)
}

// Incarnation is that of this process: higher than all before it.
func (a *Agent) Incarnation() uint64 { return a.follower.incarnation }
