package agent

import (
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// checkpoint is a position in the log that the kernel may come to match.
type checkpoint struct {
	// seq is what was applied before wanted was computed: if the kernel then matches
	// wanted, it matches the log at seq (SAFETY B1).
	seq       log.Seq
	epoch     uint64
	complete  bool // the view was complete (see wanted), and nothing of it was held back; otherwise it never counts as matched
	needsPass bool // of a delta: the rest needs a pass
	waits     bool // of a delta that is not ok: the servers are about to send what it needs
	// touched is when the oldest event of a delta was applied, zero without events.
	touched time.Time
}

// wanted is what the kernel should hold, and as of which position.
type wanted struct {
	links    desired.Links
	complete bool // what it lacks may be removed
	kept     bool // except the links that no view has: see Keep
	unjudged bool // it lacks only that the view is judged, which the next pass does
	at       checkpoint
}

// wanted computes what the kernel should hold. It is complete, so that what it lacks
// may be removed, if all that the CN must know is held, was complete at least once, and
// is not being replaced (architecture rule 8). If a NIC moved to a network that is
// still to come, its link is missing only for now.
func (r *replica) wanted(limits *desired.Limits) wanted {
	r.mu.Lock()
	defer r.mu.Unlock()
	links := r.view.desired(*limits)
	limits.OnDemand = map[uint32]bool{}
	for _, v := range links.VXLANs {
		if v.OnDemand {
			limits.OnDemand[v.VNet] = true
		}
	}
	r.touches.ResetWithin(*limits)
	if r.view.old == nil {
		r.touches.Given(&links)
	}
	r.touched = time.Time{}
	complete, done := r.isComplete(), r.view.phase == settled
	return wanted{
		links: links, complete: complete, kept: r.view.phase == held && r.view.old == nil,
		unjudged: r.isAllHeld() && r.view.phase == unjudged,
		at:       checkpoint{seq: r.applied, epoch: r.epoch, complete: complete && done},
	}
}

// markCluster is the cluster for which links are marked: the one whose view the node
// carries out, which is the one before while the new one's is not settled. Zero: none yet.
func (r *replica) markCluster() log.UUID {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.view.phase != settled && !r.view.was.Cluster.IsZero() {
		return r.view.was.Cluster
	}
	return r.cursor.Cluster
}

func (r *replica) isComplete() bool { return r.isAllHeld() && r.view.phase != unjudged }

// isSteady reports whether the view was complete before, so that each change of it since is
// noted by itself. What may be missing is what a new own NIC needs.
func isSteady(r *replica) bool { return r.complete && r.reset == nil && len(r.suspects) == 0 }

// noteNICs notes that the kernel may not have own NICs as it should.
func noteNICs(r *replica, macs []log.MAC) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touches.NoteNICs(macs)
}

// isAllHeld reports whether all that the CN must know is held, whatever that would
// remove.
func (r *replica) isAllHeld() bool {
	return r.complete && r.reset == nil && r.incoming == nil && len(r.suspects) == 0 && r.missingInterest() == ""
}

// delta computes what the kernel should hold of the entries and own NICs that events touched
// since the last call. It is not ok while the view is not complete, because what an
// incomplete view lacks is not deleted.
func (r *replica) delta() (d desired.LinksDelta, at checkpoint, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete := r.isComplete()
	at = checkpoint{seq: r.applied, epoch: r.epoch, complete: complete && r.view.phase == settled, needsPass: r.touches.Whole(), touched: r.touched}
	if r.touches.Any() {
		if !complete || r.view.old != nil {
			at.waits = isSteady(r) && r.view.old == nil && r.view.phase == settled
			return d, at, false
		}
		d = r.touches.Delta(r.state)
		r.touched = time.Time{}
		at.needsPass = r.touches.Whole() // a vnet may have crossed its limit
	}
	return d, at, true
}

// setProgrammed records that the kernel matches the log at a position, and reports
// whether that is news. After a reset, a seq from before is ignored.
func (r *replica) setProgrammed(at checkpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.epoch != r.epoch || at.seq <= r.programmed || r.view.phase != settled {
		return false
	}
	r.programmed = at.seq
	return true
}

// setReached records that the kernel matches the log at a position, except for the objects
// of a list, which is not changed later, and reports whether that is news. A list over
// feed.MaxWaits is not told, and nothing is reached with it.
func (r *replica) setReached(at checkpoint, waits []feed.Wait) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.epoch != r.epoch || at.seq < r.reached || r.view.phase != settled || len(waits) > feed.MaxWaits {
		return false
	}
	same := r.list != 0 && slices.Equal(waits, r.waits)
	if same && at.seq == r.reached {
		return false
	}
	if r.reached = at.seq; !same {
		r.waits = waits
		r.list = max(r.list+1, 1)
	}
	return true
}
