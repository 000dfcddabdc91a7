package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// An agent does not trust an empty view (architecture rule 19, SAFETY R2). A view that
// did not come one event at a time (after a reset, or the first of an agent without a
// cache) is compared with what the node programs before anything is removed. If it
// lacks more than a tenth of the links, and more than holdLinks, it is held: the node
// continues with the view before, and adds what the new one adds. Events that come
// later are ordered by the log one by one, and are carried out in both views.
//
//	settled ──reset──► unjudged ──little goes──► settled
//	                      │ ▲
//	               much goes reset
//	                      ▼ │
//	                     held ──accepted, or nothing goes any more──► settled
//
// An agent without a cache begins unjudged; one whose cache has a hold begins held.

// holdPhase is how far the view of the log has been checked.
type holdPhase uint8

const (
	settled  holdPhase = iota // what the view lacks may be removed
	unjudged                  // the view was not compared with what is programmed
	held                      // the view would remove too much
)

const (
	// holdLinks is how many links may be removed at any time: a node with so few may
	// lose all of them at once.
	holdLinks = 10
	// defaultHoldShare is Config.HoldRemovals by default.
	defaultHoldShare = 10
)

// Hold describes what is held.
type Hold struct {
	// ID names this hold: an operator who accepts it has seen this one.
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Was is the position in the log of the view that the node continues with, zero if
	// it is unknown. Log is the cluster whose view would remove links.
	Was log.Cursor `json:"was,omitzero"`
	Log log.UUID   `json:"log"`
	// Going of Links would be removed; Names are the first maxListed of them.
	Going int      `json:"going"`
	Links int      `json:"links"`
	Names []string `json:"names"`
}

// String returns one line for operators.
func (h *Hold) String() string {
	was := "the kernel as it was found"
	if h.Was != (log.Cursor{}) {
		was = fmt.Sprintf("seq %d of cluster %s", h.Was.Seq, h.Was.Cluster)
	}
	return fmt.Sprintf("hold %s: cluster %s would take away %d of %d links; kept as of %s", h.ID, h.Log, h.Going, h.Links, was)
}

// newHold describes what a cluster's view would remove.
func newHold(was log.Cursor, cluster log.UUID, s link.Surplus, now time.Time) *Hold {
	sum := sha256.New()
	sum.Write(cluster[:])
	for _, name := range s.Gone {
		sum.Write([]byte(name + "\n"))
	}
	return &Hold{
		ID: hex.EncodeToString(sum.Sum(nil)[:8]), Since: now.UTC().Truncate(time.Millisecond), Was: was, Log: cluster,
		Going: len(s.Gone), Links: s.Links, Names: describe(s.Gone, func(name string) string { return name }),
	}
}

// Errors of an acceptance.
var (
	// ErrNoHold: nothing is held.
	ErrNoHold = errors.New("agent: nothing is held")
	// ErrOtherHold: what is held is not what was accepted.
	ErrOtherHold = errors.New("agent: another view is held: look at it, and accept that one")
)

// viewCheck is a view that must be judged.
type viewCheck struct {
	epoch uint64
	was   *desired.Links // nil: unknown; then the kernel shows what there was
	want  desired.Links
}

// linksOnly leaves out the entries on links. Their number is the NICs here times the
// NICs elsewhere.
var linksOnly = desired.Limits{Entries: 1}

// viewHold decides whether the view of the log is carried out, and keeps the view
// before while it is not. The lock of the replica protects it; callers of its methods
// hold that lock.
type viewHold struct {
	cn               log.UUID
	logger           *slog.Logger
	state            *projections.State // the view
	touches          *desired.Touches
	outbox           *outbox
	changed, dirtied chan struct{} // the replica's channels
	complete         func() bool   // all that the CN must know was held at least once
	inReset          func() bool
	noteMove         func(was, is Place)

	share    int // percent of the links that a view may remove; 0: any number
	phase    holdPhase
	old      *projections.State // the view before, with the later events; nil if settled, or if there was none
	was      log.Cursor         // of old
	withheld *Hold              // nil unless held
}

// isCompleteToKeep reports whether the cache may mark its view as complete. The next
// process would trust it if the view before is not on disk.
func (v *viewHold) isCompleteToKeep(complete bool) bool {
	return complete && (v.phase == settled || v.old != nil)
}

// becomeUnjudged: the view will be replaced. old is the view before, nil if one is kept
// already or there was none; at is its position.
func (v *viewHold) becomeUnjudged(old *projections.State, at log.Cursor) {
	if v.share == 0 {
		return
	}
	if old != nil {
		v.old, v.was = old, at
	}
	v.phase = unjudged
}

// becomeHeld: the view would remove too much.
func (v *viewHold) becomeHeld(h *Hold) {
	v.phase, v.withheld = held, h
	v.touches.NoteWhole()
	if v.old != nil {
		v.outbox.ready.Hold = &holdChange{hold: h}
	}
	v.notify()
}

// becomeSettled: from now on the node carries out the view.
func (v *viewHold) becomeSettled() {
	old := v.old
	v.phase, v.old, v.withheld, v.was = settled, nil, nil, log.Cursor{}
	v.touches.NoteWhole()
	v.outbox.ready.Hold, v.outbox.ready.Head.Complete = new(holdChange), v.complete()
	if old != nil {
		// Until now lookups answered from the old view.
		for rec := range old.List(log.KindNIC) {
			now, _ := v.state.Get(log.KindNIC, rec.Object.ID())
			v.noteMove(placeIn(old, rec.Object), placeIn(v.state, now.Object))
		}
	}
	v.notify()
}

// notify wakes all readers of the held state.
func (v *viewHold) notify() {
	wake(v.changed)
	wake(v.dirtied)
}

// follow applies to the old view what the log says of one of its objects.
func (v *viewHold) follow(key objectKey, rec kept) {
	if v.old == nil || v.inReset() {
		return
	}
	if _, known := v.old.Get(key.Kind, key.ID); !known {
		return
	}
	if rec.Object == nil {
		v.old.Drop(key.Kind, key.ID)
	} else if err := v.old.LoadEncoded(rec.Record, rec.Body); err != nil {
		v.logger.Error("an event cannot be applied to the old view", "object", key, "error", err)
		return
	}
	if v.phase == held {
		v.outbox.release(key)
	}
	v.touches.NoteWhole()
}

// desired computes what the kernel should hold. While a view is not settled, that is
// the old view and what the new one adds.
func (v *viewHold) desired(limits desired.Limits) desired.Links {
	links := desired.Within(v.state, v.cn, limits)
	if v.old == nil {
		return links
	}
	return mergedLinks(desired.Within(v.old, v.cn, limits), links)
}

// load restores what the cache held. It is called before the replica is used.
func (v *viewHold) load(c *contents) {
	if v.share == 0 {
		if c.Hold != nil || c.Old != nil {
			v.becomeSettled() // the configuration disables holds
		}
		return
	}
	if c.Old == nil {
		if !c.Head.Complete || c.Hold != nil {
			v.phase = unjudged
		}
		return
	}
	v.old, v.was, v.phase = projections.NewSmallState(), c.Old.Head.Cursor, unjudged
	for _, rec := range c.Old.Objects {
		if err := v.old.Load(rec); err != nil {
			v.logger.Error("an object of the old view is left out", "object", keyOf(rec), "error", err)
		}
	}
	for _, key := range c.Released {
		v.old.Drop(key.Kind, key.ID)
		if rec, ok := v.state.Get(key.Kind, key.ID); ok {
			_ = v.old.Load(rec) // it was loaded above
		}
	}
	if v.withheld = c.Hold; v.withheld != nil {
		v.phase = held
		v.logger.Warn("the new view would remove too much: still held until an operator accepts it (rutter cn accept)", "hold", v.withheld.ID, "going", v.withheld.Going, "links", v.withheld.Links)
	}
}

// fill puts the old view into a batch with a hold. The caller holds the lock.
func (v *viewHold) fill(b *batch) {
	if b.Hold == nil || b.Hold.hold == nil {
		return
	}
	if v.old == nil { // the hold has ended since, and the next batch says so
		b.Hold = nil
		return
	}
	b.Hold = &holdChange{hold: v.withheld, was: v.was, objects: recordsOf(v.old)}
}

// judge settles a view, or holds it.
func (v *viewHold) judge(cluster log.UUID, s link.Surplus, now time.Time) {
	switch tooMuch := len(s.Gone) > holdLinks && len(s.Gone)*100 > s.Links*v.share; {
	case v.phase == held && len(s.Gone) > 0:
		h := *v.withheld // readers may still use a copy of the old one
		h.Going, h.Links, h.Names = len(s.Gone), s.Links, describe(s.Gone, func(name string) string { return name })
		v.withheld = &h
	case v.phase == held:
		v.logger.Info("the held view removes nothing any more: the hold ends", "hold", v.withheld.ID)
		v.becomeSettled()
	case tooMuch:
		v.becomeHeld(newHold(v.was, cluster, s, now))
		v.logger.Warn("the new view would remove too much: held until an operator accepts it (rutter cn accept); the old view stays in use",
			"hold", v.withheld.ID, "going", v.withheld.Going, "links", v.withheld.Links, "first", v.withheld.Names[0], "cluster", v.withheld.Log, "before", v.withheld.Was)
	default:
		if len(s.Gone) > 0 {
			v.logger.Info("a new view removes little: it is carried out", "going", len(s.Gone), "links", s.Links)
		}
		v.becomeSettled()
	}
}

// accept ends the hold with that id.
func (v *viewHold) accept(id string) (Hold, error) {
	if v.phase != held {
		return Hold{}, ErrNoHold
	}
	h := *v.withheld
	if h.ID != id {
		return h, ErrOtherHold
	}
	v.logger.Warn("the held view is accepted: it is carried out", "hold", h.ID, "going", h.Going, "links", h.Links)
	v.becomeSettled()
	return h, nil
}

// vl2 and vl3 answer from the old view, while there is one, and for what it lacks from
// the new view. The caller holds the lock.
func (v *viewHold) vl2(vnet uint32, mac log.MAC) (projections.Underlay, bool) {
	if v.old != nil {
		if at, ok := v.old.VL2(vnet, mac); ok {
			return at, true
		}
	}
	return v.state.VL2(vnet, mac)
}

func (v *viewHold) vl3(vnet uint32, ip netip.Addr) (log.MAC, projections.Underlay, bool) {
	if v.old != nil {
		if mac, at, ok := v.old.VL3(vnet, ip); ok {
			return mac, at, true
		}
	}
	return v.state.VL3(vnet, ip)
}
