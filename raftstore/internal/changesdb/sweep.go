package changesdb

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/metarow"
	"rutter/raftstore/internal/readahead"
)

// The rows of objects follow the events at a distance. What the persister
// writes with each transaction, events and change ids, goes to the end of its
// bucket; an object's row lies anywhere among all others, and written with its
// event each would take a page of 4 KB with it. A sweep writes the rows of many
// events: sorted, of each object the last, in transactions of bounded size.
// With the last of them Head.Rows moves to the seq whose state the rows are.
//
// Everything that a sweep needs stands in the events, so a crash in its middle
// leaves nothing to repair: a start takes the objects that events after
// Head.Rows name from those events alone, and whatever their rows say, from
// before or from after, is not looked at.
//
// Events after Head.Rows are never deleted: a checkpoint begins with a sweep,
// and nothing is deleted that the newest checkpoint does not have.
//
// Programs before this one have rows that are always those of the head, and do
// not know of Head.Rows. An image is settled before it is sent, and so is the
// file at a clean stop: an older program can take over both. The row of
// Head.Rows names the head that it belongs to, so that what an older program
// leaves behind is taken for what it is.

// sweepRows bounds one transaction of a sweep: with each row on a page of its
// own it writes 8 MB.
const sweepRows = 2048

const (
	// sweepPace is how many times as long as each transaction of a sweep that
	// nobody waits for the pause after it is; with each Options.SweepEvents that the
	// rows are behind it is one less.
	sweepPace = 4
	// settleRounds bounds how often an image is swept before it, while others
	// write, so that little is left for the transaction that must have the rest.
	settleRounds = 4
	// busySweeps: while more than this part of Options.SweepEvents comes in each
	// Options.SweepDelay, the delay does not count: the events will be enough soon.
	busySweeps = 32
)

// ObjectKey names an object row.
type ObjectKey struct {
	Kind log.Kind
	ID   string
}

// objectWrite is a row that a sweep writes: from the object's last event.
type objectWrite struct {
	ObjectKey
	seq log.Seq
}

// sweptRow is
//
//	| crc (4) | version (1) | checksum of the head's row (4) | seq (8) |
const sweptRow = 4 + 1 + 4 + 8

func (h *Head) encodeSwept(headRow []byte) []byte {
	b := metarow.New(sweptRow)
	b = append(b, headRow[:4]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Rows))
	return metarow.Seal(keySwept, b)
}

// decodeSwept returns the seq whose state the object rows are, for the head
// that was read from headRow; without a row of that head it is the head's.
func (h *Head) decodeSwept(row, headRow []byte) (log.Seq, error) {
	if row == nil || len(headRow) < 4 {
		return h.Seq, nil
	}
	r, err := metarow.Open(keySwept, row)
	if err != nil {
		return 0, err
	}
	if len(r.Rest) < sweptRow-5 {
		return 0, fmt.Errorf("changes.db: place of the rows of %d bytes: %w", len(row), log.ErrCorrupt)
	}
	if string(r.Take(4)) != string(headRow[:4]) {
		return h.Seq, nil
	}
	rows := log.Seq(r.U64())
	if rows > h.Seq {
		return 0, fmt.Errorf("changes.db: the rows stand at %d, beyond the head at %d: %w", rows, h.Seq, log.ErrCorrupt)
	}
	return rows, nil
}

// Touched returns the objects that the events after a seq name, up to another,
// each with the seq of its last one.
func Touched(tx *bbolt.Tx, after, to log.Seq) (map[ObjectKey]log.Seq, error) {
	last := make(map[ObjectKey]log.Seq)
	cursor := tx.Bucket(BucketEvents).Cursor()
	want, next := after+1, readahead.Ahead{}
	for key, row := cursor.Seek(SeqKey(want)); want <= to; key, row = cursor.Next() {
		next.Row(row)
		s, err := ReadEvent(want, key, row)
		if err != nil {
			return nil, err
		}
		kind, id, err := EventObject(s.Bytes)
		if err != nil {
			return nil, fmt.Errorf("changes.db: event row %d: %w", want, err)
		}
		last[ObjectKey{kind, string(id)}] = want
		want++
	}
	return last, nil
}

// writesOf returns what was touched in the order of the rows: neighbours share pages.
func writesOf(last map[ObjectKey]log.Seq) []objectWrite {
	writes := make([]objectWrite, 0, len(last))
	for key, seq := range last {
		writes = append(writes, objectWrite{key, seq})
	}
	slices.SortFunc(writes, func(a, b objectWrite) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
	return writes
}

// rowOfEvent returns the object row that an event makes; nil if it deletes it.
func rowOfEvent(events *bbolt.Bucket, w *objectWrite) ([]byte, error) {
	key := SeqKey(w.seq)
	s, err := ReadEvent(w.seq, key, events.Get(key))
	if err != nil {
		return nil, err
	}
	e, body, err := log.EventObject(s.Bytes)
	if err != nil {
		return nil, fmt.Errorf("changes.db: event row %d: %w", w.seq, err)
	}
	if e.Action == log.Delete {
		return nil, nil
	}
	return ObjectRow(w.Kind, w.ID, e.Revision, w.seq, body), nil
}

// putRows writes and deletes object rows, which are sorted.
func putRows(tx *bbolt.Tx, writes []objectWrite) error {
	events, objects := tx.Bucket(BucketEvents), tx.Bucket(BucketObjects)
	var bucket *bbolt.Bucket
	var of log.Kind
	for i := range writes {
		w := &writes[i]
		row, err := rowOfEvent(events, w)
		if err != nil {
			return err
		}
		if bucket == nil || of != w.Kind {
			of = w.Kind
			if bucket, err = objects.CreateBucketIfNotExists([]byte(of.String())); err != nil {
				return err
			}
		}
		if row == nil {
			err = bucket.Delete([]byte(w.ID))
		} else {
			err = bucket.Put([]byte(w.ID), row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadObjects loads the objects of the head: the rows, but for those that later
// events name, and what these events made of them.
func loadObjects(tx *bbolt.Tx, h *Head, state *projections.State) error {
	last, err := Touched(tx, h.Rows, h.Seq)
	if err != nil {
		return err
	}
	if err := LoadRows(tx.Bucket(BucketObjects), last, state); err != nil {
		return err
	}
	events := tx.Bucket(BucketEvents)
	writes := writesOf(last)
	for i := range writes {
		w := &writes[i]
		row, err := rowOfEvent(events, w)
		if err != nil {
			return err
		}
		if row == nil {
			continue
		}
		o, revision, seq, err := ReadObject(w.Kind, w.ID, row)
		if err != nil {
			return err
		}
		if err := loadObject(projections.Record{Object: o, Revision: revision, Seq: seq}, row[ObjectRowHeader+1:], state); err != nil {
			return err
		}
	}
	return nil
}

// RunSweeps sweeps when many events have come, and now and then when few have,
// until ctx is done.
func (p *Persister) RunSweeps(ctx context.Context) {
	tick := time.NewTicker(p.options.SweepDelay)
	defer tick.Stop()
	var seen int // how many events were unswept at the last tick
	for {
		select {
		case <-tick.C:
			// While many come, their rows can wait for those that share their pages.
			came := p.unswept() - seen
			if seen += came; came > p.options.SweepEvents/busySweeps {
				continue
			}
		case <-p.sweeps:
			if p.unswept() < p.options.SweepEvents {
				continue // the signal came while a sweep was under way
			}
		case <-ctx.Done():
			return
		}
		p.sweeping.Lock()
		_, err := p.sweep(ctx, p.CurrentEpoch(), p.pace)
		p.sweeping.Unlock()
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrEpoch) && !errors.Is(err, log.ErrNoRoom) {
			p.options.Logger.Warn("writing the rows of objects", "error", err)
		}
	}
}

// unswept returns how many events in the file the rows are behind.
func (p *Persister) unswept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.stored.Seq - p.stored.Rows)
}

// pace is how many times as long as a transaction of a sweep the pause after it
// is now.
func (p *Persister) pace() time.Duration {
	return time.Duration(max(0, sweepPace-p.unswept()/p.options.SweepEvents))
}

// Paces of sweeps that somebody waits for: beside others' writes, and at the end.
func brisk() time.Duration  { return 1 }
func atOnce() time.Duration { return 0 }

// sweep brings the rows to where the head was when it began, and returns that
// head: in parts of p.options.SweepPart events, so that what it holds in memory has a bound.
// The caller holds sweeping. After an error the rows stand at the end of a part,
// as far as anybody looks at them.
func (p *Persister) sweep(ctx context.Context, epoch uint64, pace func() time.Duration) (Head, error) {
	at, err := p.fileHead()
	for err == nil && at.Rows < at.Seq {
		to := min(at.Seq, at.Rows+log.Seq(p.options.SweepPart))
		if err = p.sweepPart(ctx, epoch, pace, at.Rows, to); err == nil {
			at.Rows = to
		}
	}
	return at, err
}

// sweepPart brings the rows from one seq to another.
func (p *Persister) sweepPart(ctx context.Context, epoch uint64, pace func() time.Duration, from, to log.Seq) error {
	writes, err := p.writesBetween(from, to)
	if p.CurrentEpoch() != epoch {
		return ErrEpoch // the file may be another one by now
	}
	if err != nil {
		return err
	}
	for part := range slices.Chunk(writes, p.options.SweepRows) {
		if err := p.options.Room(); err != nil {
			return err
		}
		if err := p.paced(ctx, epoch, pace(), func(tx *bbolt.Tx) error { return putRows(tx, part) }); err != nil {
			return err
		}
	}
	p.flushing.Lock()
	defer p.flushing.Unlock()
	return p.moveRows(epoch, to, nil)
}

// fileHead returns the head in the file.
func (p *Persister) fileHead() (at Head, err error) {
	err = p.files.View(func(tx *bbolt.Tx) (err error) {
		at, _, err = ReadMeta(tx)
		return err
	})
	return at, err
}

// writesBetween returns the rows that the events after a seq make, up to another.
func (p *Persister) writesBetween(after, to log.Seq) (writes []objectWrite, err error) {
	err = p.files.View(func(tx *bbolt.Tx) error {
		last, err := Touched(tx, after, to)
		writes = writesOf(last)
		return err
	})
	return writes, err
}

// moveRows writes the last rows of a sweep and where the rows stand after it, in
// one transaction. The caller holds flushing.
func (p *Persister) moveRows(epoch uint64, to log.Seq, writes []objectWrite) error {
	next := p.stored // changed under flushing only
	next.Rows = to
	err := p.upkeepLocked(epoch, func(tx *bbolt.Tx) error {
		return errors.Join(putRows(tx, writes), PutHead(tx.Bucket(BucketMeta), &next))
	})
	if err == nil {
		p.mu.Lock()
		p.stored.Rows = to
		p.mu.Unlock()
	}
	return err
}

// sweepFor sweeps and begins a read transaction of h in which the rows are those
// of the head that it returns, which may be behind the transaction's.
func (p *Persister) sweepFor(ctx context.Context, epoch uint64, h *Handle) (Head, *bbolt.Tx, error) {
	p.sweeping.Lock()
	defer p.sweeping.Unlock()
	at, err := p.sweep(ctx, epoch, brisk)
	if err != nil {
		return at, nil, err
	}
	tx, err := h.DB.Begin(false)
	return at, tx, err
}

// Settled begins a read transaction of h, the current file, in which the rows
// are those of its head.
func (p *Persister) Settled(h *Handle) (*bbolt.Tx, error) {
	p.sweeping.Lock()
	defer p.sweeping.Unlock()
	epoch := p.CurrentEpoch()
	for range settleRounds {
		if p.unswept() <= p.options.SweepRows {
			break
		}
		if _, err := p.sweep(context.Background(), epoch, brisk); err != nil {
			return nil, err
		}
	}
	p.flushing.Lock()
	defer p.flushing.Unlock()
	at, err := p.fileHead()
	if err == nil && at.Rows < at.Seq {
		var writes []objectWrite
		if writes, err = p.writesBetween(at.Rows, at.Seq); err == nil {
			err = p.moveRows(epoch, at.Seq, writes)
		}
	}
	if err != nil {
		return nil, err
	}
	return h.DB.Begin(false)
}

// finish writes what is left, and the rows of all objects.
func (p *Persister) finish() error {
	err := p.Flush()
	if errors.Is(err, log.ErrNoRoom) { // raft's log has what is missing
		p.refuse(err)
		return nil
	}
	if err != nil {
		return err
	}
	if err = p.Sweep(context.Background()); errors.Is(err, log.ErrNoRoom) {
		return nil
	}
	return err
}

// Sweep brings the rows of all objects to where the head is, without pauses.
func (p *Persister) Sweep(ctx context.Context) error {
	p.sweeping.Lock()
	defer p.sweeping.Unlock()
	_, err := p.sweep(ctx, p.CurrentEpoch(), atOnce)
	return err
}

// refuse tells those who wait for the next transaction that none comes.
func (p *Persister) refuse(err error) {
	p.refuseMarker(err)
	p.mu.Lock()
	p.next = nil
	p.mu.Unlock()
}

// refuseMarker tells those who wait for a marker that the next transaction has none.
func (p *Persister) refuseMarker(err error) {
	p.mu.Lock()
	var waiting []chan<- error
	if w := p.next; w != nil {
		waiting, w.marker, w.done = w.done, nil, nil
	}
	p.mu.Unlock()
	for _, done := range waiting {
		done <- err
	}
}
