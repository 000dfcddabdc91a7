package agent

import (
	"cmp"
	"maps"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// outbox has the rows that the cache is to keep. The lock of the replica protects it.
type outbox struct {
	dirty batch // rows that changed since the last bookmark
	ready batch // rows up to the last bookmark, to be kept with it
	whole bool  // the cache is to be written whole, see cache_hold.go
}

// dropReady leaves of what is ready where it is of, and no rows.
func (o *outbox) dropReady() {
	o.ready = batch{Objects: make(map[objectKey]kept), Scopes: make(map[log.Scope]*heldScope), Head: o.ready.Head, Pos: o.ready.Pos}
}

// release notes that the log changed an object of the view that is kept.
func (o *outbox) release(key objectKey) { o.dirty.Released = append(o.dirty.Released, key) }

func newBatch() batch {
	return batch{Objects: make(map[objectKey]kept), Scopes: make(map[log.Scope]*heldScope)}
}

// makeReady lets the cache keep what changed up to the bookmark that was just
// taken. What is on disk is thus always the state at a bookmark: a connection
// or a process that ends between two of them goes back to the last one.
func (r *replica) makeReady() {
	if len(r.out.ready.Objects) == 0 {
		r.out.ready.Objects = r.out.dirty.Objects
	} else {
		maps.Copy(r.out.ready.Objects, r.out.dirty.Objects)
	}
	maps.Copy(r.out.ready.Scopes, r.out.dirty.Scopes)
	r.out.ready.Gone = cutGone(append(r.out.ready.Gone, r.out.dirty.Gone...))
	r.out.ready.Released = append(r.out.ready.Released, r.out.dirty.Released...)
	r.out.ready.Head, r.out.ready.Pos = head{Cursor: r.cursor, Complete: r.view.isCompleteToKeep(r.complete)}, r.journal.pos
	r.out.dirty = newBatch()
	if r.out.whole {
		r.out.dropReady()
		wake(r.dirtied)
	}
}

// take returns what the cache must keep, with the cursor that it belongs to. It
// is then the caller's. It is not ok while what is on disk is what the next process
// compares with.
func (r *replica) take() (b batch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view.standing == unjudged && r.view.old != nil {
		return b, false
	}
	b = r.out.ready
	if r.out.whole {
		b = r.wholeBatch()
	}
	r.view.fill(&b)
	r.out.ready = newBatch()
	r.out.ready.Head, r.out.ready.Pos = b.Head, b.Pos
	return b, true
}

// giveBack takes back a batch that could not be kept, and returns how many rows
// wait now. What became ready since is newer.
func (r *replica) giveBack(b batch) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Whole {
		r.out.whole = true
		return 0
	}
	maps.Copy(b.Objects, r.out.ready.Objects)
	maps.Copy(b.Scopes, r.out.ready.Scopes)
	b.Gone = cutGone(append(b.Gone, r.out.ready.Gone...))
	b.Released = append(b.Released, r.out.ready.Released...)
	b.Hold = cmp.Or(r.out.ready.Hold, b.Hold)
	b.Head, b.Pos = r.out.ready.Head, r.out.ready.Pos
	r.out.ready = b
	wake(r.dirtied)
	return r.out.ready.rows()
}

// waiting returns how many rows the cache has not kept.
func (r *replica) waiting() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.out.dirty.rows() + r.out.ready.rows()
}

// becomeWhole: what the cache has is of no use, so it is to be written anew.
func (r *replica) becomeWhole() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.whole = true
	r.out.dropReady()
}

// isWholeDue reports whether the cache is to be written anew, and whether that can be
// done now: what is held is the state at the last bookmark.
func (r *replica) isWholeDue() (due, now bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.out.whole, r.isAtBookmark()
}

func (r *replica) isAtBookmark() bool {
	return r.out.dirty.rows() == 0 && r.reset == nil && r.coming == nil && len(r.pending) == 0
}

// wholeBatch is all that is held. The caller holds the lock. Between two bookmarks
// it has nothing, and comes again.
func (r *replica) wholeBatch() batch {
	b := newBatch()
	b.Head, b.Pos = r.out.ready.Head, r.out.ready.Pos
	if !r.isAtBookmark() {
		return b
	}
	r.out.whole = false
	b.Whole, b.Objects, b.Gone = true, recordsOf(r.state), slices.Clone(r.journal.gone)
	for scope, s := range r.scopes {
		b.Scopes[scope] = &s
	}
	b.Hold = new(holdChange)
	if r.view.standing == held && r.view.old != nil {
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
