package raftstore

import (
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// readEvents collects stored entries after a seq, copied.
func readEvents(tx *bbolt.Tx, after log.Seq, c *collector) error {
	h, _, err := readMeta(tx)
	if err != nil {
		return err
	}
	if after < h.floor {
		return fmt.Errorf("entries after %d, they are kept after %d: %w", after, h.floor, log.ErrCompacted)
	}
	cursor := tx.Bucket(bucketEvents).Cursor()
	want := after + 1
	for key, row := cursor.Seek(seqKey(want)); want <= h.seq; key, row = cursor.Next() {
		s, err := readEventRow(want, key, row)
		if err != nil {
			return err
		}
		s.Bytes = c.own(s.Bytes)
		if !c.take(s) {
			return nil
		}
		want++
	}
	return nil
}

// collector gathers whole changes up to a bound.
type collector struct {
	max     int
	entries []log.Entry
	bytes   int
	whole   int // entries up to the end of the last whole change
	room    []byte
}

// ownRoom is how many bytes a collector makes room for at once.
const ownRoom = 256 << 10

// own returns a copy of b; copies share memory.
func (c *collector) own(b []byte) []byte {
	if len(c.room) < len(b) {
		c.room = make([]byte, max(len(b), ownRoom))
	}
	own := c.room[:len(b):len(b)]
	c.room = c.room[copy(own, b):]
	return own
}

// maxReadBytes bounds what one call of Entries returns; one change alone may be more.
const maxReadBytes = 4 << 20

// take adds s, and reports whether another may follow.
func (c *collector) take(s slot) bool {
	if c.whole > 0 && (len(c.entries) >= c.max || c.bytes+len(s.Bytes) > maxReadBytes) {
		return false
	}
	c.entries = append(c.entries, s.Entry)
	c.bytes += len(s.Bytes)
	if s.more == 0 {
		c.whole = len(c.entries)
	}
	return c.whole < len(c.entries) || len(c.entries) < c.max
}

// result returns the whole changes gathered.
func (c *collector) result() []log.Entry { return c.entries[:c.whole:c.whole] }
