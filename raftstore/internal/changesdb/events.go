package changesdb

import (
	"fmt"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// ReadEvents gives c copies of the stored entries after a seq.
func ReadEvents(tx *bbolt.Tx, after log.Seq, c *Collector) error {
	h, _, err := ReadMeta(tx)
	if err != nil {
		return err
	}
	if after < h.Floor {
		return fmt.Errorf("entries after %d, they are kept after %d: %w", after, h.Floor, log.ErrCompacted)
	}
	cursor := tx.Bucket(BucketEvents).Cursor()
	want := after + 1
	for key, row := cursor.Seek(SeqKey(want)); want <= h.Seq; key, row = cursor.Next() {
		s, err := ReadEvent(want, key, row)
		if err != nil {
			return err
		}
		s.Bytes = c.Own(s.Bytes)
		if !c.take(s) {
			return nil
		}
		want++
	}
	return nil
}

// Collector gathers whole changes up to a bound.
type Collector struct {
	Max     int
	entries []log.Entry
	Bytes   int
	whole   int // entries up to the end of the last whole change
	room    log.Room
}

// ownBytes is how many bytes a collector allocates at once.
const ownBytes = 256 << 10

// Own returns a copy of b; copies share memory.
func (c *Collector) Own(b []byte) []byte {
	c.room.Size = ownBytes
	return append(c.room.Take(len(b)), b...)
}

// maxReadBytes bounds the bytes that one call of Entries returns. A single change may be
// larger.
const maxReadBytes = 4 << 20

// take adds s, and reports whether there is space for another one.
func (c *Collector) take(s Slot) bool {
	if c.whole > 0 && (len(c.entries) >= c.Max || c.Bytes+len(s.Bytes) > maxReadBytes) {
		return false
	}
	c.entries = append(c.entries, s.Entry)
	c.Bytes += len(s.Bytes)
	if s.More == 0 {
		c.whole = len(c.entries)
	}
	return c.whole < len(c.entries) || len(c.entries) < c.Max
}

// Result returns the entries of the whole changes gathered.
func (c *Collector) Result() []log.Entry { return c.entries[:c.whole:c.whole] }
