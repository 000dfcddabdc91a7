package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/boltfile"
)

// Upkeep of changes.db beside its writer: checkpoints are made, and what is
// below the floor is deleted, in transactions that are short enough for nobody
// to notice, with pauses between them.
//
// checkpoints holds a bucket for each checkpoint, named by its seq (8, big
// endian): the rows of objects/<kind> as they stood there, byte for byte, and
// at the end the rows of the head and the sums, without which it is not whole.
// The state at seq N is the newest whole checkpoint at or below N with the
// events up to N applied to it; so the events after the newest checkpoint at or
// below the floor stay in the file, unseen, until a newer one is there.

const (
	// upkeepRows and upkeepBytes bound one transaction of upkeep.
	upkeepRows  = 1000
	upkeepBytes = 512 << 10
	// entriesPerObject: a checkpoint is made when at least this many entries for
	// each object were written since the one before, so that checkpoints use a
	// quarter of what the events do.
	entriesPerObject = 4
	// indexEvery is how often the index of the past is continued: what came
	// since is looked through by each reader of the past.
	indexEvery = 5 * time.Second
)

// runUpkeep looks after retention and checkpoints until ctx is done.
func (s *Store) runUpkeep(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(s.cfg.UpkeepEvery)
	defer tick.Stop()
	index := time.NewTicker(min(s.cfg.UpkeepEvery, indexEvery))
	defer index.Stop()
	var known time.Time // see raiseFeature
	for {
		select {
		case <-index.C:
			if s.Serving() == nil && s.failure() == nil {
				if err := s.buildIndex(ctx, s.persister.currentEpoch()); err != nil && ctx.Err() == nil && !errors.Is(err, errEpoch) && !errors.Is(err, ErrNoRoom) {
					s.logger.Warn("upkeep of the index", "error", err)
				}
			}
			continue
		case <-tick.C:
		case <-s.room.upkeep:
		case <-ctx.Done():
			return
		}
		if s.Serving() != nil || s.failure() != nil {
			continue
		}
		var err error
		if known, err = s.raiseFeature(ctx, r, known); err == nil {
			err = s.moveFloor(ctx, r)
		}
		if err == nil {
			err = s.maintain(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEpoch) && !errors.Is(err, ErrNoRoom) {
			s.logger.Warn("upkeep of the log", "error", err)
		}
	}
}

// upkeepPace is how many times as long as each transaction of upkeep the pause
// after it is.
const upkeepPace = 2

// upkeep writes in one short transaction, unless a restore came since the epoch or
// there is no room, and makes a pause.
func (p *persister) upkeep(ctx context.Context, epoch uint64, fn func(tx *bbolt.Tx) error) error {
	if err := p.options.Room(); err != nil {
		return err
	}
	return p.paced(ctx, epoch, upkeepPace, fn)
}

// shrink is upkeep that deletes rows, for which a part of the reserve is kept.
func (p *persister) shrink(ctx context.Context, epoch uint64, fn func(tx *bbolt.Tx) error) error {
	if err := p.options.Spare(); err != nil {
		return err
	}
	return p.paced(ctx, epoch, upkeepPace, fn)
}

func (p *persister) paced(ctx context.Context, epoch uint64, pace time.Duration, fn func(tx *bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begun := time.Now()
	p.flushing.Lock()
	err := p.upkeepLocked(epoch, fn)
	p.flushing.Unlock()
	pause := time.NewTimer(pace * time.Since(begun))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return err
}

// upkeepLocked is one transaction of upkeep; the caller holds flushing.
func (p *persister) upkeepLocked(epoch uint64, fn func(tx *bbolt.Tx) error) error {
	p.mu.Lock()
	err := p.broken
	if err == nil && p.epoch != epoch {
		err = errEpoch
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	h := p.files.acquire()
	err = boltfile.Guard(func() error {
		return p.update(h.db, func(tx *bbolt.Tx) error { return errors.Join(fn(tx), p.fails("upkeep")) })
	})
	if err = errors.Join(err, p.files.release(h)); err != nil {
		err = fmt.Errorf("changes.db: upkeep: %w: %w", ErrDisk, err)
		p.mu.Lock()
		p.broken = err
		p.mu.Unlock()
		signal(p.kick) // its run ends with the error
	}
	return err
}

// plan is what there is to do, as one transaction saw it.
type plan struct {
	checkpoint bool
	drop       []log.Seq // checkpoints
	first, end log.Seq   // events to delete, if end >= first
}

// maintain does what is due once.
func (s *Store) maintain(ctx context.Context) error {
	epoch := s.persister.currentEpoch()
	var p plan
	if err := s.files.view(func(tx *bbolt.Tx) (err error) {
		p, err = s.planUpkeep(tx)
		return err
	}); err != nil {
		return err
	}
	for _, seq := range p.drop {
		if err := s.dropCheckpoint(ctx, epoch, seq); err != nil {
			return err
		}
	}
	if p.checkpoint {
		if err := s.makeCheckpoint(ctx, epoch); err != nil {
			return err
		}
	}
	if err := s.deleteEvents(ctx, epoch, p.first, p.end); err != nil {
		return err
	}
	return s.dropIndex(ctx, epoch)
}

func (s *Store) planUpkeep(tx *bbolt.Tx) (plan, error) {
	var p plan
	h, _, err := readMeta(tx)
	if err != nil || h.seq == 0 {
		return p, err
	}
	whole, broken := checkpoints(tx)
	p.drop = broken
	var newest, base log.Seq
	for _, seq := range whole {
		newest = max(newest, seq)
		if seq <= h.floor {
			base = max(base, seq)
		}
	}
	for _, seq := range whole {
		if seq < base {
			p.drop = append(p.drop, seq)
		}
	}
	due := max(log.Seq(s.cfg.CheckpointEvents), log.Seq(s.objectCount()*entriesPerObject))
	// Under the cap, or with little room, the floor runs ahead of the checkpoints: one now, so that
	// what lies below it can go as soon as the floor has passed it.
	pressed := newest < h.floor && (usedBytes(tx) > h.retention.orDefault().Bytes || s.Room().Low)
	p.checkpoint = h.seq-newest >= due || pressed && h.seq > newest
	p.first, p.end = firstEvent(tx, &h), base
	return p, nil
}

func (s *Store) objectCount() int {
	s.applier.mu.Lock()
	defer s.applier.mu.Unlock()
	return s.state.Len()
}

// checkpoints returns those that are whole and those that are not, in order.
func checkpoints(tx *bbolt.Tx) (whole, broken []log.Seq) {
	all := tx.Bucket(bucketCheckpoints)
	c := all.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		if len(key) != 8 {
			continue
		}
		seq := log.Seq(binary.BigEndian.Uint64(key))
		if b := all.Bucket(key); b != nil && b.Get(keyHead) != nil {
			whole = append(whole, seq)
		} else {
			broken = append(broken, seq)
		}
	}
	return whole, broken
}

// makeCheckpoint copies the object rows of one read transaction.
func (s *Store) makeCheckpoint(ctx context.Context, epoch uint64) error {
	begun := time.Now()
	h := s.files.acquire()
	defer func() { _ = s.files.release(h) }()
	at, tx, err := s.persister.sweepFor(ctx, epoch, h)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	name := seqKey(at.seq)
	rows := 0
	objects := tx.Bucket(bucketObjects)
	err = boltfile.Guard(func() error {
		return objects.ForEachBucket(func(kind []byte) error {
			n, err := s.copyRows(ctx, epoch, name, kind, objects.Bucket(kind))
			rows += n
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.seq, err)
	}
	err = s.persister.upkeep(ctx, epoch, func(tx *bbolt.Tx) error {
		b, err := tx.Bucket(bucketCheckpoints).CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		return putHead(b, &at)
	})
	if err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.seq, err)
	}
	s.logger.Info("checkpoint made", "seq", at.seq, "objects", rows, "took", time.Since(begun))
	return nil
}

// copyRows copies a bucket of objects into a checkpoint.
func (s *Store) copyRows(ctx context.Context, epoch uint64, checkpoint, kind []byte, from *bbolt.Bucket) (rows int, err error) {
	c := from.Cursor()
	key, row := c.First()
	for key != nil {
		err := s.persister.upkeep(ctx, epoch, func(tx *bbolt.Tx) error {
			b, err := tx.Bucket(bucketCheckpoints).CreateBucketIfNotExists(checkpoint)
			if err == nil {
				b, err = b.CreateBucketIfNotExists(kind)
			}
			if err != nil {
				return err
			}
			b.FillPercent = 1
			size := 0
			for n := 0; key != nil && n < upkeepRows && size < upkeepBytes; n++ {
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

// dropCheckpoint deletes one, its head first, so that it is never half of one.
func (s *Store) dropCheckpoint(ctx context.Context, epoch uint64, seq log.Seq) error {
	for more := true; more; {
		err := s.persister.shrink(ctx, epoch, func(tx *bbolt.Tx) error {
			all := tx.Bucket(bucketCheckpoints)
			b := all.Bucket(seqKey(seq))
			if b == nil {
				more = false
				return nil
			}
			if b.Get(keyHead) != nil {
				return b.Delete(keyHead)
			}
			var err error
			if more, err = dropRows(b); err != nil || more {
				return err
			}
			return all.DeleteBucket(seqKey(seq))
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
	for key, _ := c.First(); key != nil && len(keys) < upkeepRows; key, _ = c.Next() {
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := rows.Delete(key); err != nil {
			return false, err
		}
	}
	if len(keys) < upkeepRows {
		return true, b.DeleteBucket(kind)
	}
	return true, nil
}

// deleteEvents deletes the rows of [first, end] from the front.
func (s *Store) deleteEvents(ctx context.Context, epoch uint64, first, end log.Seq) error {
	if first > end {
		return nil
	}
	begun, from := time.Now(), first
	for first <= end {
		last := min(end, first+upkeepRows-1)
		err := s.persister.shrink(ctx, epoch, func(tx *bbolt.Tx) error {
			events := tx.Bucket(bucketEvents)
			for seq := first; seq <= last; seq++ {
				if err := events.Delete(seqKey(seq)); err != nil {
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
	s.logger.Info("old entries deleted", "from", from, "to", end, "took", time.Since(begun))
	return nil
}

// StateAt returns the state as it was at seq, which must be from Floor to the
// head: the newest checkpoint at or below it, and the events after that. It
// takes as long as reading that takes; nobody waits for it. Errors:
// log.ErrCompacted, log.ErrAhead, log.ErrCorrupt, ErrDiverged, ctx's.
func (s *Store) StateAt(ctx context.Context, seq log.Seq) (*projections.State, error) {
	if err := s.Serving(); err != nil {
		return nil, err
	}
	if head := s.Head().Seq; seq > head {
		return nil, fmt.Errorf("state at %d, the head is %d: %w", seq, head, log.ErrAhead)
	}
	if floor := s.Floor(); seq < floor {
		return nil, fmt.Errorf("state at %d, entries are kept after %d: %w", seq, floor, log.ErrCompacted)
	}
	// What is not in the file yet is on its way there.
	if s.persister.durable() < seq {
		if err := s.persister.flush(); err != nil {
			return nil, err
		}
	}
	state := projections.NewState()
	err := s.files.view(func(tx *bbolt.Tx) error { return stateAt(ctx, tx, seq, state) })
	return state, err
}

func stateAt(ctx context.Context, tx *bbolt.Tx, seq log.Seq, state *projections.State) error {
	h, _, err := readMeta(tx)
	if err != nil {
		return err
	}
	if seq < h.floor {
		return fmt.Errorf("state at %d, entries are kept after %d: %w", seq, h.floor, log.ErrCompacted)
	}
	base, err := loadCheckpoint(tx, seq, state)
	if err != nil {
		return err
	}
	cursor := tx.Bucket(bucketEvents).Cursor()
	want, next := base+1, ahead{}
	for key, row := cursor.Seek(seqKey(want)); want <= seq; key, row = cursor.Next() {
		next.row(row)
		if want%upkeepRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, err := readEventRow(want, key, row)
		if err != nil {
			return err
		}
		at.Bytes = bytes.Clone(at.Bytes)
		e, err := at.Event()
		if err != nil {
			return err
		}
		if _, err := state.Apply(want, e); err != nil {
			return err
		}
		want++
	}
	return nil
}

// loadCheckpoint loads the newest whole checkpoint at or below seq and returns
// its place; 0 and nothing if there is none.
func loadCheckpoint(tx *bbolt.Tx, seq log.Seq, state *projections.State) (log.Seq, error) {
	whole, _ := checkpoints(tx)
	var base log.Seq
	for _, at := range whole {
		if at <= seq {
			base = max(base, at)
		}
	}
	if base == 0 {
		return 0, nil
	}
	b := tx.Bucket(bucketCheckpoints).Bucket(seqKey(base))
	h, err := decodeHead(b.Get(keyHead))
	if err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	known, err := h.decodeSums(b.Get(keySums), b.Get(keyHead))
	if err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	if err := loadRows(b, nil, state); err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	if h.seq != base || known && stateSum(state) != h.stateSum {
		return 0, fmt.Errorf("checkpoint at %d: its objects are not those that were written: %w", base, log.ErrCorrupt)
	}
	state.SetTime(h.time)
	state.SetFeature(h.feature)
	return base, nil
}
