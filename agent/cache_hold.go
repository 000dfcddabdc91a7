package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"rutter/log"
)

// heldName is the file of the view that the node continues with while a new view is
// held. It has the form of the cache, without scopes.
const heldName = "held.db"

// holdChange is what a batch changes about a hold.
type holdChange struct {
	hold    *Hold // nil: there is none
	was     log.Cursor
	objects map[objectKey]kept // of the view that stays in use
}

// keepOld writes the view that stays in use, before the transaction with the hold.
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

// dropOld removes that file after the transaction that ends the hold.
func (c *cache) dropOld(h *holdChange) error {
	if h == nil || h.hold != nil {
		return nil
	}
	if err := os.Remove(filepath.Join(c.folder, heldName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.logger.Warn("the file of the old view cannot be removed: the next start removes it", "error", err)
	}
	return nil
}

// openOld reads that file if something is held, or if there is no cache to say so.
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
		c.logger.Error("the file of the old view cannot be read: the kernel's links are kept instead", "error", err)
	}
}

// putHold writes the hold. The rows of bucket released are cleared when the view is
// written again, or when the hold ends.
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
