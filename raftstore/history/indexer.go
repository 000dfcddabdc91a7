package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/makeway"
)

const (
	// indexPace is the pause after a block, as a multiple of the time to compute it. So a
	// long series of missing blocks, as after a start, does not slow down writes.
	indexPace = 4
	// indexBlocks is how many blocks are made in one call, during which no other upkeep
	// is done: half a million entries.
	indexBlocks = 32
)

// Indexer writes the index of the past. Its methods may not be called concurrently with
// each other.
type Indexer struct {
	Persister *changesdb.Persister
	Files     *changesdb.Files
}

// Build writes blocks of full segments that have none.
func (k *Indexer) Build(ctx context.Context) error {
	epoch := k.Persister.CurrentEpoch()
	for range indexBlocks {
		begun := time.Now()
		var key []byte
		var b block
		rests := makeway.Begin()
		err := k.Files.View(func(tx *bbolt.Tx) (err error) {
			key, b, err = nextBlock(tx, rests)
			return err
		})
		if err != nil || b == nil {
			return err
		}
		pause := time.After(indexPace * (time.Since(begun) - rests.Rested()))
		err = k.Persister.Upkeep(ctx, epoch, func(tx *bbolt.Tx) error { return putBlock(tx, key, b) })
		if err != nil {
			return fmt.Errorf("index of the past: %w", err)
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func putBlock(tx *bbolt.Tx, key []byte, b block) error {
	index, err := tx.CreateBucketIfNotExists(bucketIndex)
	if err != nil {
		return err
	}
	index.FillPercent = 1
	return index.Put(key, b.seal(key))
}

// nextBlock computes the block of the first full segment after the last one that has a
// block; if there is none, that of a segment whose block an older program wrote; nil if
// there is no such segment either.
func nextBlock(tx *bbolt.Tx, rests *makeway.Work) (key []byte, b block, err error) {
	h, _, err := changesdb.ReadMeta(tx)
	if err != nil || h.Seq == 0 {
		return nil, nil, err
	}
	first := changesdb.FirstEvent(tx, &h)
	segment := (uint64(first) + SegmentEvents - 2) / SegmentEvents // the first whole segment
	if index := tx.Bucket(bucketIndex); index != nil {
		if last, _ := index.Cursor().Last(); len(last) == 9 {
			segment = max(segment, binary.BigEndian.Uint64(last[1:])+1)
		}
	}
	from, to := log.Seq(segment*SegmentEvents)+1, log.Seq((segment+1)*SegmentEvents)
	if to > h.Seq {
		if segment, from, to = oldBlock(tx, first); to == 0 {
			return nil, nil, nil
		}
	}
	b, err = makeBlock(tx, indexVersion, from, to, rests)
	return segmentKey(segment), b, err
}

// oldBlock finds a block that an older program wrote, and whose segment is whole; to is 0
// if there is none.
func oldBlock(tx *bbolt.Tx, first log.Seq) (segment uint64, from, to log.Seq) {
	index := tx.Bucket(bucketIndex)
	if index == nil {
		return 0, 0, 0
	}
	for key, row := range rowsOf(index) {
		if len(key) != 9 || len(row) <= blockHeader || row[4] != indexFirst {
			continue
		}
		segment = binary.BigEndian.Uint64(key[1:])
		if from = log.Seq(segment*SegmentEvents) + 1; from >= first {
			return segment, from, log.Seq((segment + 1) * SegmentEvents)
		}
	}
	return 0, 0, 0
}

// Drop deletes the blocks of segments whose events were all deleted.
func (k *Indexer) Drop(ctx context.Context) error {
	epoch := k.Persister.CurrentEpoch()
	for more := true; more; {
		var keys [][]byte
		err := k.Files.View(func(tx *bbolt.Tx) error {
			h, _, err := changesdb.ReadMeta(tx)
			index := tx.Bucket(bucketIndex)
			if err != nil || index == nil {
				return err
			}
			end := segmentKey(segmentOf(max(1, changesdb.FirstEvent(tx, &h))))
			for key := range rowsOf(index) {
				if bytes.Compare(key, end) >= 0 || len(keys) == 4 {
					break
				}
				keys = append(keys, bytes.Clone(key))
			}
			return nil
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		err = k.Persister.Shrink(ctx, epoch, func(tx *bbolt.Tx) error {
			var err error
			for _, key := range keys {
				err = errors.Join(err, tx.Bucket(bucketIndex).Delete(key))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
