package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// outbox has the rows that the cache must save. The lock of the replica protects it.
type outbox struct {
	dirty batch // rows that changed since the last bookmark
	ready batch // rows up to the last bookmark, to be saved with it
	full  bool  // the complete cache must be written, see cache_hold.go
}

// dropReady keeps only the head and position of what is ready, and no rows.
func (o *outbox) dropReady() {
	o.ready = batch{Objects: make(map[objectKey]kept), Scopes: make(map[log.Scope]*heldScope), Head: o.ready.Head, Pos: o.ready.Pos}
}

// release records that the log changed an object of the old view.
func (o *outbox) release(key objectKey) { o.dirty.Released = append(o.dirty.Released, key) }

func newBatch() batch {
	return batch{Objects: make(map[objectKey]kept), Scopes: make(map[log.Scope]*heldScope)}
}

// makeReady lets the cache save what changed up to the bookmark that was just taken. So
// the disk always has the state at a bookmark: a connection or a process that ends
// between two bookmarks goes back to the last one.
func (r *replica) makeReady() {
	if len(r.outbox.ready.Objects) == 0 {
		r.outbox.ready.Objects = r.outbox.dirty.Objects
	} else {
		maps.Copy(r.outbox.ready.Objects, r.outbox.dirty.Objects)
	}
	maps.Copy(r.outbox.ready.Scopes, r.outbox.dirty.Scopes)
	r.outbox.ready.Gone = cutGone(append(r.outbox.ready.Gone, r.outbox.dirty.Gone...))
	r.outbox.ready.Released = append(r.outbox.ready.Released, r.outbox.dirty.Released...)
	r.outbox.ready.Head, r.outbox.ready.Pos = head{Cursor: r.cursor, Complete: r.view.isCompleteToKeep(r.complete)}, r.journal.pos
	r.outbox.dirty = newBatch()
	if r.outbox.full {
		r.outbox.dropReady()
		wake(r.dirtied)
	}
}

// take returns what the cache must save, with its cursor. The caller then owns it. It
// is not ok while the disk has the view that the next process must compare with.
func (r *replica) take() (b batch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view.phase == unjudged && r.view.old != nil {
		return b, false
	}
	b = r.outbox.ready
	if r.outbox.full {
		b = r.fullBatch()
	}
	r.view.fill(&b)
	r.outbox.ready = newBatch()
	r.outbox.ready.Head, r.outbox.ready.Pos = b.Head, b.Pos
	return b, true
}

// giveBack takes back a batch that could not be saved, and returns how many rows wait
// now. Rows that became ready since are newer.
func (r *replica) giveBack(b batch) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Full {
		r.outbox.full = true
		return 0
	}
	maps.Copy(b.Objects, r.outbox.ready.Objects)
	maps.Copy(b.Scopes, r.outbox.ready.Scopes)
	b.Gone = cutGone(append(b.Gone, r.outbox.ready.Gone...))
	b.Released = append(b.Released, r.outbox.ready.Released...)
	b.Hold = cmp.Or(r.outbox.ready.Hold, b.Hold)
	b.Head, b.Pos = r.outbox.ready.Head, r.outbox.ready.Pos
	r.outbox.ready = b
	wake(r.dirtied)
	return r.outbox.ready.rows()
}

// waiting returns how many rows the cache has not saved.
func (r *replica) waiting() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.outbox.dirty.rows() + r.outbox.ready.rows()
}

// needFullWrite: what the cache has is not usable, so the complete cache must be
// written.
func (r *replica) needFullWrite() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outbox.full = true
	r.outbox.dropReady()
}

// isFullWriteDue reports whether the complete cache must be written, and whether that
// is possible now: whether what is held is the state at the last bookmark.
func (r *replica) isFullWriteDue() (due, now bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.outbox.full, r.isAtBookmark()
}

func (r *replica) isAtBookmark() bool {
	return r.outbox.dirty.rows() == 0 && r.reset == nil && r.incoming == nil && len(r.pending) == 0
}

// fullBatch is everything that is held. The caller holds the lock. Between two
// bookmarks the batch is empty, and the full write stays due.
func (r *replica) fullBatch() batch {
	b := newBatch()
	b.Head, b.Pos = r.outbox.ready.Head, r.outbox.ready.Pos
	if !r.isAtBookmark() {
		return b
	}
	r.outbox.full = false
	b.Full, b.Objects, b.Gone = true, recordsOf(r.state), slices.Clone(r.journal.gone)
	for scope, s := range r.scopes {
		b.Scopes[scope] = &s
	}
	b.Hold = new(holdChange)
	if r.view.phase == held && r.view.old != nil {
		b.Hold.hold = r.view.withheld
	}
	return b
}

func recordsOf(state *projections.State) map[objectKey]kept {
	objects := make(map[objectKey]kept, state.Len())
	for kind := range maxKind {
		for rec := range state.List(log.Kind(kind)) {
			objects[keyOf(rec)] = kept{Record: rec}
		}
	}
	return objects
}

// VL2 returns the underlay address of a MAC on a vnet, as of what is held.
func (r *replica) VL2(vnet uint32, mac log.MAC) (projections.Underlay, bool) {
	r.mu.RLock()
	at, ok := r.view.vl2(vnet, mac)
	pos := r.journal.pos
	r.mu.RUnlock()
	if ok {
		r.answers.note(pos, vnet, mac, netip.Addr{})
	}
	return at, ok
}

// VL3 returns the MAC and underlay address of an address on a vnet.
func (r *replica) VL3(vnet uint32, ip netip.Addr) (log.MAC, projections.Underlay, bool) {
	r.mu.RLock()
	mac, at, ok := r.view.vl3(vnet, ip)
	pos := r.journal.pos
	r.mu.RUnlock()
	if ok {
		r.answers.note(pos, vnet, mac, ip)
	}
	return mac, at, ok
}
