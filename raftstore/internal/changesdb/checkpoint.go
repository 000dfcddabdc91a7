package changesdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/readahead"
)

// Checkpoints returns the seqs of the whole checkpoints and of the broken ones, in order.
func Checkpoints(tx *bbolt.Tx) (whole, broken []log.Seq) {
	all := tx.Bucket(BucketCheckpoints)
	c := all.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		if len(key) != 8 {
			continue
		}
		seq := log.Seq(binary.BigEndian.Uint64(key))
		if b := all.Bucket(key); b != nil && b.Get(KeyHead) != nil {
			whole = append(whole, seq)
		} else {
			broken = append(broken, seq)
		}
	}
	return whole, broken
}

// StateAt loads the state as it was at seq: the newest checkpoint at or below seq, and
// the entries after it. Errors: log.ErrCompacted, log.ErrCorrupt, ctx's.
func StateAt(ctx context.Context, tx *bbolt.Tx, seq log.Seq, state *projections.State) error {
	h, _, err := ReadMeta(tx)
	if err != nil {
		return err
	}
	if seq < h.Floor {
		return fmt.Errorf("state at %d, entries are kept after %d: %w", seq, h.Floor, log.ErrCompacted)
	}
	base, err := LoadCheckpoint(tx, seq, state)
	if err != nil {
		return err
	}
	cursor := tx.Bucket(BucketEvents).Cursor()
	want, next := base+1, readahead.Ahead{}
	for key, row := cursor.Seek(SeqKey(want)); want <= seq; key, row = cursor.Next() {
		next.Row(row)
		if want%UpkeepRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, err := ReadEvent(want, key, row)
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

// LoadCheckpoint loads the newest whole checkpoint at or below seq and returns its seq.
// If there is none, it loads nothing and returns 0.
func LoadCheckpoint(tx *bbolt.Tx, seq log.Seq, state *projections.State) (log.Seq, error) {
	whole, _ := Checkpoints(tx)
	var base log.Seq
	for _, at := range whole {
		if at <= seq {
			base = max(base, at)
		}
	}
	if base == 0 {
		return 0, nil
	}
	b := tx.Bucket(BucketCheckpoints).Bucket(SeqKey(base))
	h, err := DecodeHead(b.Get(KeyHead))
	if err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	known, err := h.decodeSums(b.Get(keySums), b.Get(KeyHead))
	if err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	if err := LoadRows(b, nil, state); err != nil {
		return 0, fmt.Errorf("checkpoint at %d: %w", base, err)
	}
	if h.Seq != base || known && StateSum(state) != h.StateSum {
		return 0, fmt.Errorf("checkpoint at %d: its objects are not those that were written: %w", base, log.ErrCorrupt)
	}
	state.SetTime(h.Time)
	state.SetFeature(h.Feature)
	return base, nil
}
