package agent

import (
	"time"

	"rutter/log"
	"rutter/projections/desired"
)

// checkpoint is a place in the log that the kernel may come to match.
type checkpoint struct {
	// seq is what was applied before the wanted was computed: if the kernel comes
	// to match that, it matches the log at seq (SAFETY B1).
	seq       log.Seq
	epoch     uint64
	complete  bool // of the view that was read (see wanted), and nothing of it was held back; else it is never matched
	needsPass bool // of a delta: there is more to it, which only a pass does
	// touched is when the oldest event of a delta was applied, if it has any.
	touched time.Time
}

// wanted is what the kernel should hold, and as of when.
type wanted struct {
	links    desired.Links
	complete bool // what it lacks may be removed
	kept     bool // but for the links that nobody remembers: see Keep
	at       checkpoint
}

// wanted computes what the kernel should hold. It is complete, so that what it
// lacks may be removed, when all that the CN must know is held, has been said
// to be all at least once, and is not being replaced (architecture rule 8). A NIC that
// moved to a network which is still to come lacks its link only for now.
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
	r.touched = time.Time{}
	complete, done := r.isComplete(), r.view.phase == settled
	return wanted{
		links: links, complete: complete, kept: r.view.phase == held && r.view.old == nil,
		at: checkpoint{seq: r.applied, epoch: r.epoch, complete: complete && done},
	}
}

func (r *replica) isComplete() bool { return r.isAllHeld() && r.view.phase != unjudged }

// isAllHeld reports whether all that the CN must know is held, as isComplete, whatever
// that takes away.
func (r *replica) isAllHeld() bool {
	return r.complete && r.reset == nil && r.incoming == nil && len(r.suspects) == 0 && r.missingInterest() == ""
}

// delta computes what the kernel should hold of the entries that events touched
// since the last call. It is not ok while the view is not complete: what goes
// from it then is not gone.
func (r *replica) delta() (d desired.LinksDelta, at checkpoint, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete := r.isComplete()
	at = checkpoint{seq: r.applied, epoch: r.epoch, complete: complete && r.view.phase == settled, needsPass: r.touches.Whole(), touched: r.touched}
	if r.touches.Any() {
		if !complete || r.view.old != nil {
			return d, at, false
		}
		d = r.touches.Delta(r.state)
		r.touched = time.Time{}
		at.needsPass = r.touches.Whole() // a vnet may have crossed its limit
	}
	return d, at, true
}

// setProgrammed notes that the kernel matches the log at a place, and reports
// whether that is news. After a reset its seq means nothing any more.
func (r *replica) setProgrammed(at checkpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.epoch != r.epoch || at.seq <= r.programmed || r.view.phase != settled {
		return false
	}
	r.programmed = at.seq
	return true
}
