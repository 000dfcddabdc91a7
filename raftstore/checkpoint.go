package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
)

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
