package changesdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/makeway"
	"rutter/raftstore/internal/notify"
)

// Upkeep of changes.db beside its writer: it makes checkpoints, and deletes what is below
// the floor, in transactions that are short enough not to delay other writes, with pauses
// between them.
//
// checkpoints holds a bucket for each checkpoint, named by its seq (8, big endian): the
// rows of objects/<kind> as they stood there, byte for byte, and at the end the rows of
// the head and the sums, without which it is not whole. The state at seq N is the newest
// whole checkpoint at or below N with the events up to N applied to it. So the events
// after the newest checkpoint at or below the floor stay in the file, hidden, until there
// is a newer one.

const (
	// UpkeepRows and upkeepBytes bound one transaction of upkeep.
	UpkeepRows  = 1000
	upkeepBytes = 512 << 10
	// EntriesPerObject: a checkpoint is made when at least this many entries for each
	// object were written since the previous one. So checkpoints use a quarter of the
	// space of the events.
	EntriesPerObject = 4
)

// upkeepPace is the pause after a transaction of upkeep, as a multiple of the
// transaction's time.
const upkeepPace = 2

// Upkeep writes in one short transaction, and then pauses. It fails if a restore came
// since the epoch, or if there is no free space.
func (p *Persister) Upkeep(ctx context.Context, epoch uint64, fn func(tx *bbolt.Tx) error) error {
	if err := p.options.Full(); err != nil {
		return err
	}
	return p.paced(ctx, epoch, upkeepPace, nil, fn)
}

// Shrink is Upkeep that deletes rows. A part of the reserve is kept for it.
func (p *Persister) Shrink(ctx context.Context, epoch uint64, fn func(tx *bbolt.Tx) error) error {
	if err := p.options.Spare(); err != nil {
		return err
	}
	return p.paced(ctx, epoch, upkeepPace, nil, fn)
}

// paced runs fn in a transaction, and then pauses for pace times as long as that worked.
func (p *Persister) paced(ctx context.Context, epoch uint64, pace time.Duration, rests *makeway.Work, fn func(tx *bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begun := time.Now()
	p.flushing.Lock()
	err := p.upkeepLocked(epoch, fn)
	p.flushing.Unlock()
	pause := time.NewTimer(pace * (time.Since(begun) - rests.Rested()))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return err
}

// upkeepLocked is one transaction of upkeep. The caller holds flushing.
func (p *Persister) upkeepLocked(epoch uint64, fn func(tx *bbolt.Tx) error) error {
	p.mu.Lock()
	err := p.broken
	if err == nil && p.epoch != epoch {
		err = ErrEpoch
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	h := p.files.Acquire()
	err = boltfile.Guard(func() error {
		return p.update(h.DB, func(tx *bbolt.Tx) error { return errors.Join(fn(tx), p.fails("upkeep")) })
	})
	if err = errors.Join(err, p.files.Release(h)); err != nil {
		err = fmt.Errorf("changes.db: upkeep: %w: %w", disk.ErrTrouble, err)
		p.mu.Lock()
		p.broken = err
		p.mu.Unlock()
		notify.Send(p.kick) // Run ends with the error
	}
	return err
}

// due is the upkeep that one transaction found to be due.
type due struct {
	checkpoint bool
	drop       []log.Seq // checkpoints
	first, end log.Seq   // events to delete, if end >= first
}

// Upkeep makes checkpoints, and deletes what is not kept
// any more. Its methods may not be called concurrently with each other.
type Upkeep struct {
	Persister *Persister
	Files     *Files
	Logger    *slog.Logger
	// Every is the least number of entries between two checkpoints.
	Every log.Seq
	// Objects returns the present number of objects.
	Objects func() int
	// Scarce reports whether there is little free space on disk.
	Scarce func() bool
}

// Maintain does the upkeep that is due, once.
func (k *Upkeep) Maintain(ctx context.Context) error {
	epoch := k.Persister.CurrentEpoch()
	var p due
	if err := k.Files.View(func(tx *bbolt.Tx) (err error) {
		p, err = k.plan(tx)
		return err
	}); err != nil {
		return err
	}
	for _, seq := range p.drop {
		if err := k.dropCheckpoint(ctx, epoch, seq); err != nil {
			return err
		}
	}
	if p.checkpoint {
		if err := k.makeCheckpoint(ctx, epoch); err != nil {
			return err
		}
	}
	return k.deleteEvents(ctx, epoch, p.first, p.end)
}

// plan returns the upkeep that is due.
func (k *Upkeep) plan(tx *bbolt.Tx) (due, error) {
	var p due
	h, _, err := ReadMeta(tx)
	if err != nil || h.Seq == 0 {
		return p, err
	}
	whole, broken := Checkpoints(tx)
	p.drop = broken
	var newest, base log.Seq
	for _, seq := range whole {
		newest = max(newest, seq)
		if seq <= h.Floor {
			base = max(base, seq)
		}
	}
	for _, seq := range whole {
		if seq < base {
			p.drop = append(p.drop, seq)
		}
	}
	least := max(k.Every, log.Seq(k.Objects()*EntriesPerObject))
	// If the cap or little free space moves the floor, it runs ahead of the checkpoints.
	// A checkpoint made now allows deletion of what is below it as soon as the floor has
	// passed it.
	pressed := newest < h.Floor && (UsedBytes(tx) > h.Retention.OrDefault().Bytes || k.Scarce())
	p.checkpoint = h.Seq-newest >= least || pressed && h.Seq > newest
	p.first, p.end = FirstEvent(tx, &h), base
	return p, nil
}

// makeCheckpoint copies the object rows of one read transaction.
func (k *Upkeep) makeCheckpoint(ctx context.Context, epoch uint64) error {
	begun := time.Now()
	h := k.Files.Acquire()
	defer func() { _ = k.Files.Release(h) }()
	at, tx, err := k.Persister.sweepFor(ctx, epoch, h)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	name := SeqKey(at.Seq)
	rows := 0
	objects := tx.Bucket(BucketObjects)
	err = boltfile.Guard(func() error {
		return objects.ForEachBucket(func(kind []byte) error {
			n, err := k.copyRows(ctx, epoch, name, kind, objects.Bucket(kind))
			rows += n
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.Seq, err)
	}
	err = k.Persister.Upkeep(ctx, epoch, func(tx *bbolt.Tx) error {
		b, err := tx.Bucket(BucketCheckpoints).CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		return PutHead(b, &at)
	})
	if err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.Seq, err)
	}
	k.Logger.Info("checkpoint made", "seq", at.Seq, "objects", rows, "took", time.Since(begun))
	return nil
}

// copyRows copies a bucket of objects into a checkpoint.
func (k *Upkeep) copyRows(ctx context.Context, epoch uint64, checkpoint, kind []byte, from *bbolt.Bucket) (rows int, err error) {
	c := from.Cursor()
	key, row := c.First()
	for key != nil {
		err := k.Persister.Upkeep(ctx, epoch, func(tx *bbolt.Tx) error {
			b, err := tx.Bucket(BucketCheckpoints).CreateBucketIfNotExists(checkpoint)
			if err == nil {
				b, err = b.CreateBucketIfNotExists(kind)
			}
			if err != nil {
				return err
			}
			b.FillPercent = 1
			size := 0
			for n := 0; key != nil && n < UpkeepRows && size < upkeepBytes; n++ {
				if err := b.Put(bytes.Clone(key), bytes.Clone(row)); err != nil {
					return err
				}
				size += len(key) + len(row)
				rows++
				key, row = c.Next()
			}
			return nil
		})
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// dropCheckpoint deletes a checkpoint, its head first, so that a half-deleted one does
// not count as whole.
func (k *Upkeep) dropCheckpoint(ctx context.Context, epoch uint64, seq log.Seq) error {
	for more := true; more; {
		err := k.Persister.Shrink(ctx, epoch, func(tx *bbolt.Tx) error {
			all := tx.Bucket(BucketCheckpoints)
			b := all.Bucket(SeqKey(seq))
			if b == nil {
				more = false
				return nil
			}
			if b.Get(KeyHead) != nil {
				return b.Delete(KeyHead)
			}
			var err error
			if more, err = dropRows(b); err != nil || more {
				return err
			}
			return all.DeleteBucket(SeqKey(seq))
		})
		if err != nil {
			return fmt.Errorf("drop the checkpoint at %d: %w", seq, err)
		}
	}
	return nil
}

// dropRows deletes some rows of a checkpoint, and reports whether there are more.
func dropRows(b *bbolt.Bucket) (more bool, err error) {
	var kind []byte
	if err := b.ForEachBucket(func(name []byte) error {
		kind = bytes.Clone(name)
		return nil
	}); err != nil || kind == nil {
		return false, err
	}
	rows := b.Bucket(kind)
	var keys [][]byte
	c := rows.Cursor()
	for key, _ := c.First(); key != nil && len(keys) < UpkeepRows; key, _ = c.Next() {
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := rows.Delete(key); err != nil {
			return false, err
		}
	}
	if len(keys) < UpkeepRows {
		return true, b.DeleteBucket(kind)
	}
	return true, nil
}

// deleteEvents deletes the event rows of [first, end], the oldest first.
func (k *Upkeep) deleteEvents(ctx context.Context, epoch uint64, first, end log.Seq) error {
	if first > end {
		return nil
	}
	begun, from := time.Now(), first
	for first <= end {
		last := min(end, first+UpkeepRows-1)
		err := k.Persister.Shrink(ctx, epoch, func(tx *bbolt.Tx) error {
			events := tx.Bucket(BucketEvents)
			for seq := first; seq <= last; seq++ {
				if err := events.Delete(SeqKey(seq)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete entries %d to %d: %w", first, last, err)
		}
		first = last + 1
	}
	k.Logger.Info("old entries deleted", "from", from, "to", end, "took", time.Since(begun))
	return nil
}
