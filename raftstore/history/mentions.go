package history

import (
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// maxMentionBytes bounds the bytes of the entries that one call of Mentions returns,
// unless one entry alone is larger.
const maxMentionBytes = 1 << 20

func mentionsOf(tx *bbolt.Tx, c *blocks, uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, ok bool, err error) {
	h, _, err := changesdb.ReadMeta(tx)
	if err != nil {
		return nil, 0, chain, false, err
	}
	if after < h.Floor {
		return nil, 0, chain, false, fmt.Errorf("entries after %d, they are kept after %d: %w", after, h.Floor, log.ErrCompacted)
	}
	segment := segmentOf(after + 1)
	end := log.Seq((segment + 1) * SegmentEvents)
	if end > h.Seq {
		return nil, 0, chain, false, nil
	}
	checked, _ := c.known(tx, segment)
	b, err := c.storedBlock(tx, segment, checked)
	if err != nil || b == nil || b[4] != indexVersion {
		return nil, 0, chain, false, err
	}
	entries, upTo, chain, err = mentioned(tx, b.mentioned(segment, uuids, after+1, end), end, limit)
	return entries, upTo, chain, err == nil, err
}

// mentioned returns the seqs of [low, high] that may mention one of the UUIDs, in order.
func (b block) mentioned(segment uint64, uuids []log.UUID, low, high log.Seq) (seqs []log.Seq) {
	for _, uuid := range uuids {
		seqs = b.find(segment, mentionHash(uuid[:]), low, high, seqs)
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// mentioned reads the entries of seqs, up to the bounds. upTo is the seq of the last
// entry if a bound was met, else end.
func mentioned(tx *bbolt.Tx, seqs []log.Seq, end log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, err error) {
	events := tx.Bucket(changesdb.BucketEvents)
	read := func(seq log.Seq) (changesdb.Slot, error) {
		key := changesdb.SeqKey(seq)
		return changesdb.ReadEvent(seq, key, events.Get(key))
	}
	c := changesdb.Collector{}
	for _, seq := range seqs {
		s, err := read(seq)
		if err != nil {
			return nil, 0, chain, err
		}
		if n := len(entries); n > 0 && (n >= limit || c.Bytes+len(s.Bytes) > maxMentionBytes) {
			last := entries[n-1]
			return entries, last.Seq, last.Hash.Prefix(), nil
		}
		c.Bytes += len(s.Bytes)
		s.Bytes = c.Own(s.Bytes)
		entries = append(entries, s.Entry)
	}
	last, err := read(end)
	return entries, end, last.Hash.Prefix(), err
}
