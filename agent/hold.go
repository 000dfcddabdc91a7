package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// An agent does not believe in emptiness (DESIGN rule 19, SAFETY R2). A view that
// did not come one event at a time (after a reset, or the first of an agent
// without a cache) is compared with what the node does before anything is taken
// away. If it lacks more than a tenth of the links, and more than holdLinks, it is
// held: the node does what the view before said, and what the new one adds. Events
// that come after it are ordered by the log one by one, and are done in both.
//
//	settled ──reset──► unjudged ──little goes──► settled
//	                      │ ▲
//	               much goes reset
//	                      ▼ │
//	                     held ──accepted, or nothing goes any more──► settled
//
// An agent without a cache begins unjudged; one with a view that was held begins held.

// standing says how the view of the log stands to what the node does.
type standing uint8

const (
	settled  standing = iota // what the view lacks may be taken away
	unjudged                 // nobody has compared the view with what is programmed
	held                     // it would take too much away
)

const (
	// holdLinks is how many links may go at any time: a node with so few may lose
	// all of them at once.
	holdLinks = 10
	// defaultHoldShare is Config.HoldRemovals by default.
	defaultHoldShare = 10
)

// Hold says what is held.
type Hold struct {
	// ID names this hold: who accepts it has seen this one.
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Was is the place in the log that the node does as before, zero if nobody
	// remembers it; Log is the cluster whose view would take links away.
	Was log.Cursor `json:"was,omitzero"`
	Log log.UUID   `json:"log"`
	// Going of Links would go; Names are the first maxTold of them.
	Going int      `json:"going"`
	Links int      `json:"links"`
	Names []string `json:"names"`
}

// String reads as a line for people.
func (h *Hold) String() string {
	was := "the kernel as it was found"
	if h.Was != (log.Cursor{}) {
		was = fmt.Sprintf("seq %d of cluster %s", h.Was.Seq, h.Was.Cluster)
	}
	return fmt.Sprintf("hold %s: cluster %s would take away %d of %d links; kept as of %s", h.ID, h.Log, h.Going, h.Links, was)
}

// newHold names what a cluster's view would take away.
func newHold(was log.Cursor, cluster log.UUID, s link.Surplus, now time.Time) *Hold {
	sum := sha256.New()
	sum.Write(cluster[:])
	for _, name := range s.Gone {
		sum.Write([]byte(name + "\n"))
	}
	return &Hold{
		ID: hex.EncodeToString(sum.Sum(nil)[:8]), Since: now.UTC().Truncate(time.Millisecond), Was: was, Log: cluster,
		Going: len(s.Gone), Links: s.Links, Names: told(s.Gone, func(name string) string { return name }),
	}
}

// Errors of an acceptance.
var (
	// ErrNoHold: nothing is held.
	ErrNoHold = errors.New("agent: nothing is held")
	// ErrOtherHold: what is held is not what was accepted.
	ErrOtherHold = errors.New("agent: another view is held: look at it, and accept that one")
)

// remember returns what a reset must not lose: a copy of what is held, if the view
// is whole and none is remembered yet. Only the follower changes the state, and it
// is who calls this, so that lookups go on meanwhile.
func (r *replica) remember() *projections.State {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.holdShare == 0 || r.old != nil || r.reset != nil || !r.complete || r.standing != settled || r.objects == 0 {
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

// isCompleteToKeep reports whether the cache may say that its view is complete: the
// next process would believe it where nobody remembers the one before.
func (r *replica) isCompleteToKeep() bool {
	return r.complete && (r.standing == settled || r.old != nil)
}

// becomeUnjudged: the view is about to be replaced. old is what it was, nil if that
// is remembered already, or nothing was.
func (r *replica) becomeUnjudged(old *projections.State) {
	if r.holdShare == 0 {
		return
	}
	if old != nil {
		r.old, r.was = old, r.cursor
	}
	r.standing = unjudged
}

// becomeHeld: the view takes too much away.
func (r *replica) becomeHeld(h *Hold) {
	r.standing, r.withheld = held, h
	r.touches.NoteWhole()
	if r.old != nil {
		r.ready.Hold = &holdChange{hold: h}
	}
	r.notifyHold()
}

// becomeSettled: from now on the view is what the node does.
func (r *replica) becomeSettled() {
	old := r.old
	r.standing, r.old, r.withheld, r.was = settled, nil, nil, log.Cursor{}
	r.touches.NoteWhole()
	r.ready.Hold, r.ready.Head.Complete = new(holdChange), r.complete
	if old != nil {
		// Lookups answered from what was old until now.
		for rec := range old.List(log.KindNIC) {
			now, _ := r.state.Get(log.KindNIC, rec.Object.ID())
			r.noteMove(placeIn(old, rec.Object), r.place(now.Object))
		}
	}
	r.notifyHold()
}

// notifyHold wakes all who look at what is held.
func (r *replica) notifyHold() {
	wake(r.changed)
	wake(r.dirtied)
}

// follow does to the view of before what the log says of one of its objects.
func (r *replica) follow(key objectKey, rec kept) {
	if r.old == nil || r.reset != nil {
		return
	}
	if _, known := r.old.Get(key.Kind, key.ID); !known {
		return
	}
	if rec.Object == nil {
		r.old.Drop(key.Kind, key.ID)
	} else if err := r.old.LoadEncoded(rec.Record, rec.Body); err != nil {
		r.logger.Error("an event is not done in the view that is kept", "object", key, "error", err)
		return
	}
	if r.standing == held {
		r.dirty.Released = append(r.dirty.Released, key)
	}
	r.touches.NoteWhole()
}

// desired computes what the kernel should hold: of a view that is not settled, what
// the one before said and what the new one adds.
func (r *replica) desired(limits desired.Limits) desired.Links {
	links := desired.Within(r.state, r.me, limits)
	if r.old == nil {
		return links
	}
	return united(desired.Within(r.old, r.me, limits), links)
}

// judging is a view that is to be judged.
type judging struct {
	epoch uint64
	was   *desired.Links // nil: nobody remembers; then the kernel says what there was
	want  desired.Links
}

// linksOnly leaves out the entries that hang on links, of which there are as many as
// NICs here times NICs elsewhere.
var linksOnly = desired.Limits{Entries: 1}

// toJudge returns what is to be judged, if there is something: a view that is
// whole. One that is held is judged again, since it may have grown.
func (r *replica) toJudge() (j judging, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.standing == settled || r.standing == held && r.old == nil || !r.isWhole() {
		return j, false
	}
	j = judging{epoch: r.epoch, want: desired.Within(r.state, r.me, linksOnly)}
	if r.old != nil {
		was := desired.Within(r.old, r.me, linksOnly)
		j.was = &was
	}
	return j, true
}

// judge settles a view, or holds it.
func (r *replica) judge(j judging, s link.Surplus, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != j.epoch || r.standing == settled || !r.isWhole() {
		return // another one came meanwhile
	}
	switch tooMuch := len(s.Gone) > holdLinks && len(s.Gone)*100 > s.Links*r.holdShare; {
	case r.standing == held && len(s.Gone) > 0:
		h := *r.withheld // who has a copy of it reads on
		h.Going, h.Links, h.Names = len(s.Gone), s.Links, told(s.Gone, func(name string) string { return name })
		r.withheld = &h
	case r.standing == held:
		r.logger.Info("what was held takes nothing away any more: it is done", "hold", r.withheld.ID)
		r.becomeSettled()
	case tooMuch:
		r.becomeHeld(newHold(r.was, r.cursor.Cluster, s, now))
		r.logger.Warn("what the log says would take too much away: held until somebody accepts it (rutter cn accept); what works goes on",
			"hold", r.withheld.ID, "going", r.withheld.Going, "links", r.withheld.Links, "first", r.withheld.Names[0], "cluster", r.withheld.Log, "before", r.withheld.Was)
	default:
		if len(s.Gone) > 0 {
			r.logger.Info("a new view takes little away: it is done", "going", len(s.Gone), "links", s.Links)
		}
		r.becomeSettled()
	}
}

// accept lets the hold of that id go.
func (r *replica) accept(id string) (Hold, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing != held {
		return Hold{}, ErrNoHold
	}
	h := *r.withheld
	if h.ID != id {
		return h, ErrOtherHold
	}
	r.logger.Warn("what was held is accepted: it is done", "hold", h.ID, "going", h.Going, "links", h.Links)
	r.becomeSettled()
	return h, nil
}

// holding returns what is held, nil if nothing is.
func (r *replica) holding() *Hold {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.withheld
}

// isUnjudged reports whether what is known must not be kept in the place of what
// was: if the process ended now, the next one had nothing to compare with.
func (r *replica) isUnjudged() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.standing == unjudged && r.old != nil
}

// vl2 and vl3 answer from the view of before, while there is one, and of what that
// lacks from the new one. The caller holds the lock.
func (r *replica) vl2(vnet uint32, mac log.MAC) (projections.Underlay, bool) {
	if r.old != nil {
		if at, ok := r.old.VL2(vnet, mac); ok {
			return at, true
		}
	}
	return r.state.VL2(vnet, mac)
}

func (r *replica) vl3(vnet uint32, ip netip.Addr) (log.MAC, projections.Underlay, bool) {
	if r.old != nil {
		if mac, at, ok := r.old.VL3(vnet, ip); ok {
			return mac, at, true
		}
	}
	return r.state.VL3(vnet, ip)
}

// keeper is a Kernel that can say which links it holds, and keep those of which no
// view is remembered; *link.Manager is one.
type keeper interface {
	Surplus(ctx context.Context, was *desired.Links, want desired.Links) (link.Surplus, error)
	Keep(on bool)
}

// judge compares a view that is not settled with what is programmed. It is called
// before a pass, which then knows what it may take away.
func (r *reconciler) judge(ctx context.Context) {
	j, ok := r.replica.toJudge()
	if !ok {
		return
	}
	kernel, reads := r.kernel.(keeper)
	var s link.Surplus
	var err error
	switch {
	// What was wanted counts where it is not in the kernel for now, as after a start.
	case reads && (j.was == nil || r.passed && r.replica.holding() == nil):
		s, err = kernel.Surplus(ctx, j.was, j.want)
	case j.was != nil:
		s = link.Compare(*j.was, j.want)
	}
	if err != nil {
		r.logger.Error("the kernel cannot be compared with the new view: nothing is taken away", "error", err)
		return
	}
	r.replica.judge(j, s, r.cfg.Now())
}

// keep tells the kernel whether it is to keep links that nobody remembers, as the
// view that the pass is of says: one that is accepted meanwhile is the next pass's.
func (r *reconciler) keep(on bool) {
	if kernel, ok := r.kernel.(keeper); ok {
		kernel.Keep(on)
	}
}
