package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
)

// heldName is the file of the view that the node goes on with while a new one is
// held. It has the form of the cache, and no scopes.
const heldName = "held.db"

// holdChange says what the cache is to know of a hold.
type holdChange struct {
	hold    *Hold // nil: there is none
	was     log.Cursor
	objects map[objectKey]kept // of the view that is kept
}

// becomeWhole: what the cache has is of no use, so it is to be written anew.
func (r *replica) becomeWhole() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = true
	r.ready = batch{Objects: make(map[objectKey]kept), Scopes: make(map[log.Scope]*heldScope), Head: r.ready.Head, Pos: r.ready.Pos}
}

// isWholeDue reports whether the cache is to be written anew, and whether that can be
// done now: what is held is the state at the last bookmark.
func (r *replica) isWholeDue() (due, now bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.whole, r.isAtBookmark()
}

func (r *replica) isAtBookmark() bool {
	return r.dirty.rows() == 0 && r.reset == nil && r.coming == nil && len(r.pending) == 0
}

// wholeBatch is all that is held. The caller holds the lock. Between two bookmarks
// it has nothing, and comes again.
func (r *replica) wholeBatch() batch {
	b := newBatch()
	b.Head, b.Pos = r.ready.Head, r.ready.Pos
	if !r.isAtBookmark() {
		return b
	}
	r.whole = false
	b.Whole, b.Objects, b.Gone = true, recordsOf(r.state), slices.Clone(r.journal.gone)
	for scope, s := range r.scopes {
		b.Scopes[scope] = &s
	}
	b.Hold = new(holdChange)
	if r.standing == held && r.old != nil {
		b.Hold.hold = r.withheld
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

// fillHold puts what a hold keeps into a batch that says so. The caller holds the lock.
func (r *replica) fillHold(b *batch) {
	if b.Hold == nil || b.Hold.hold == nil {
		return
	}
	if r.old == nil { // it is over meanwhile, and the next batch says so
		b.Hold = nil
		return
	}
	b.Hold = &holdChange{hold: r.withheld, was: r.was, objects: recordsOf(r.old)}
}

// loadHold puts what the cache held back. The caller holds the lock.
func (r *replica) loadHold(c *contents) {
	if r.holdShare == 0 {
		if c.Hold != nil || c.Old != nil {
			r.becomeSettled() // the setting says that nothing is held
		}
		return
	}
	if c.Old == nil {
		if !c.Head.Complete || c.Hold != nil {
			r.standing = unjudged
		}
		return
	}
	r.old, r.was, r.standing = projections.NewSmallState(), c.Old.Head.Cursor, unjudged
	for _, rec := range c.Old.Objects {
		if err := r.old.Load(rec); err != nil {
			r.logger.Error("an object of the view that is kept is left out", "object", keyOf(rec), "error", err)
		}
	}
	for _, key := range c.Released {
		r.old.Drop(key.Kind, key.ID)
		if rec, ok := r.state.Get(key.Kind, key.ID); ok {
			_ = r.old.Load(rec) // it was loaded above
		}
	}
	if r.withheld = c.Hold; r.withheld != nil {
		r.standing = held
		r.logger.Warn("what the log says takes too much away: still held until somebody accepts it (rutter cn accept)", "hold", r.withheld.ID, "going", r.withheld.Going, "links", r.withheld.Links)
	}
}

// keepOld writes the view that is kept, before the transaction that says so.
func (c *cache) keepOld(h *holdChange) error {
	if h == nil || h.hold == nil {
		return nil
	}
	path := filepath.Join(c.folder, heldName)
	old := &cache{cn: c.cn, enc: c.enc, head: head{CN: c.cn}}
	err := old.createAt(path+".new", &batch{Objects: h.objects, Head: head{Cursor: h.was, Complete: true}})
	if err == nil {
		err = old.db.Close()
	}
	if err == nil {
		_, err = publish(path)
	}
	if err != nil {
		return fmt.Errorf("agent: keep the view before: %w", err)
	}
	return nil
}

// dropOld removes it after the transaction that says that nothing is held.
func (c *cache) dropOld(h *holdChange) error {
	if h == nil || h.hold != nil {
		return nil
	}
	if err := os.Remove(filepath.Join(c.folder, heldName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.logger.Warn("the view that was kept cannot be removed: the next start does it", "error", err)
	}
	return nil
}

// openOld reads it, if something is held, or there is no cache that could say so.
func (c *cache) openOld(held *contents, now time.Time) {
	path := filepath.Join(c.folder, heldName)
	if held.Hold == nil && held.Head.Cursor != (log.Cursor{}) {
		_ = c.dropOld(new(holdChange))
		return
	}
	old, err := readCache(path, c.cn)
	switch {
	case err == nil:
		held.Old = old
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errFile):
		err = c.putAside(path, err, now)
		fallthrough
	default:
		c.logger.Error("the view that was kept cannot be read: what the kernel holds is", "error", err)
	}
}

// putHold writes what is known of a hold. What the log changed of one is of no
// account when the view is written anew, or let go.
func (c *cache) putHold(tx *bolt.Tx, b *batch) error {
	released := []byte(bucketReleased)
	if b.Hold != nil {
		if err := c.clearReleased(tx); err != nil {
			return err
		}
		var value []byte
		if b.Hold.hold != nil {
			text, err := json.Marshal(b.Hold.hold)
			if err != nil {
				return err
			}
			value = encodeMeta(keyHold, text)
		}
		if err := c.put(tx.Bucket([]byte(bucketMeta)), bucketMeta, []byte(keyHold), value); err != nil {
			return err
		}
	}
	if len(b.Released) == 0 || tx.Bucket([]byte(bucketMeta)).Get([]byte(keyHold)) == nil {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists(released)
	if err != nil {
		return err
	}
	for _, o := range b.Released {
		key, value := releasedRow(o)
		if err := c.put(bucket, bucketReleased, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *cache) clearReleased(tx *bolt.Tx) error {
	bucket := tx.Bucket([]byte(bucketReleased))
	if bucket == nil {
		return nil
	}
	if err := bucket.ForEach(func(k, v []byte) error {
		c.head.Rows--
		c.head.Sum -= rowSum(bucketReleased, k, v)
		return nil
	}); err != nil {
		return err
	}
	return tx.DeleteBucket([]byte(bucketReleased))
}

func (held *contents) readHold(text []byte) error {
	held.Hold = new(Hold)
	if err := json.Unmarshal(text, held.Hold); err != nil {
		return fmt.Errorf("%w: hold: %w", errFile, err)
	}
	return nil
}
