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
	"rutter/raftstore/internal/makeway"
	"rutter/raftstore/internal/metarow"
	"rutter/raftstore/internal/readahead"
)

// The rows of objects are written later than their events. Events and change ids, which
// the persister writes in each transaction, go to the end of their bucket. An object's
// row lies anywhere among all others: written with its event, each would cost a page of 4
// KB. A sweep writes the rows of many events: sorted, of each object only the last, in
// transactions of bounded size. The last of these transactions moves Head.Rows to the seq
// whose state the rows have.
//
// A sweep needs only the events, so a crash during a sweep leaves nothing to repair. A
// start takes the objects that events after Head.Rows name from those events alone, and
// ignores their rows, old or new.
//
// Events after Head.Rows are never deleted: a checkpoint begins with a sweep, and only
// events that the newest checkpoint contains are deleted.
//
// In older programs the rows are always those of the head, and there is no Head.Rows. An
// image is settled before it is sent, and the file at a clean stop, so an older program
// can use both. The row of Head.Rows names the head to which it belongs, so that it is
// ignored after an older program has written another head.

// sweepRows bounds the rows of one transaction of a sweep. If each row is on a page of
// its own, it writes 2 MB: raft's log waits for the disk behind them.
const sweepRows = 512

const (
	// sweepPace is the pause after a transaction of a background sweep, as a multiple of
	// the transaction's time. It is one less for each Options.SweepEvents that the rows
	// are behind.
	sweepPace = 4
	// settleRounds bounds the sweeps before an image, beside other writes, so that little
	// is left for the transaction that must contain the rest.
	settleRounds = 4
	// busySweeps: while more than Options.SweepEvents/busySweeps events come in each
	// Options.SweepDelay, the delay does not count, because there will soon be enough
	// events.
	busySweeps = 32
)

// ObjectKey names an object row.
type ObjectKey struct {
	Kind log.Kind
	ID   string
}

// objectWrite is a row that a sweep writes, from the object's last event.
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

// decodeSwept returns the seq whose state the object rows have, for the head that was
// read from headRow. Without a row that belongs to that head, it is the head's seq.
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

// Touched returns the objects that the events in (after, to] name, each with the seq of
// its last event.
func Touched(tx *bbolt.Tx, after, to log.Seq) (map[ObjectKey]log.Seq, error) {
	last := make(map[ObjectKey]log.Seq)
	err := eachNamed(tx, after, to, nil, func(key ObjectKey, seq log.Seq) { last[key] = seq })
	return last, err
}

// eachNamed calls fn with the object that each event in (after, to] names.
func eachNamed(tx *bbolt.Tx, after, to log.Seq, rests *makeway.Work, fn func(key ObjectKey, seq log.Seq)) error {
	cursor := tx.Bucket(BucketEvents).Cursor()
	want, next := after+1, readahead.Ahead{}
	for key, row := cursor.Seek(SeqKey(want)); want <= to; key, row = cursor.Next() {
		rests.Step()
		next.Row(row)
		s, err := ReadEvent(want, key, row)
		if err != nil {
			return err
		}
		kind, id, err := EventObject(s.Bytes)
		if err != nil {
			return fmt.Errorf("changes.db: event row %d: %w", want, err)
		}
		fn(ObjectKey{kind, string(id)}, want)
		want++
	}
	return nil
}

// compareWrites orders writes as the rows are, because neighbouring rows share pages.
func compareWrites(a, b objectWrite) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}

// writesOf returns the touched objects in the order of the rows.
func writesOf(last map[ObjectKey]log.Seq) []objectWrite {
	writes := make([]objectWrite, 0, len(last))
	for key, seq := range last {
		writes = append(writes, objectWrite{key, seq})
	}
	slices.SortFunc(writes, compareWrites)
	return writes
}

// lastOfEach sorts writes, which are in the order of their seqs, and keeps the last of each
// object.
func lastOfEach(writes []objectWrite) []objectWrite {
	slices.SortFunc(writes, func(a, b objectWrite) int {
		return cmp.Or(compareWrites(a, b), cmp.Compare(b.seq, a.seq))
	})
	return slices.CompactFunc(writes, func(a, b objectWrite) bool { return a.ObjectKey == b.ObjectKey })
}

// rowOfEvent returns the object row that an event makes; nil if the event deletes the
// object.
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
func putRows(tx *bbolt.Tx, writes []objectWrite, rests *makeway.Work) error {
	events, objects := tx.Bucket(BucketEvents), tx.Bucket(BucketObjects)
	var bucket *bbolt.Bucket
	var of log.Kind
	for i := range writes {
		rests.Step()
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
			if last, _ := bucket.Cursor().Last(); string(last) < w.ID {
				bucket.FillPercent = 1 // all of them go to the end, as ids that begin with their time do
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

// loadObjects loads the objects of the head: from the rows, except for those that later
// events name, which are taken from these events.
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

// RunSweeps sweeps after each Options.SweepEvents events, and after Options.SweepDelay if
// fewer come, until ctx is done.
func (p *Persister) RunSweeps(ctx context.Context) {
	tick := time.NewTicker(p.options.SweepDelay)
	defer tick.Stop()
	var seen int // how many events were unswept at the last tick
	for {
		select {
		case <-tick.C:
			// While many events come, their rows wait for others that share their pages.
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

// unswept returns how many events the rows are behind the file's head.
func (p *Persister) unswept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.stored.Seq - p.stored.Rows)
}

// pace returns the present pause after a transaction of a sweep, as a multiple of the
// transaction's time.
func (p *Persister) pace() time.Duration {
	return time.Duration(max(0, sweepPace-p.unswept()/p.options.SweepEvents))
}

// Paces of sweeps for which a caller waits: beside other writes, and at the end.
func brisk() time.Duration  { return 1 }
func atOnce() time.Duration { return 0 }

// sweep brings the rows to the head at its beginning, and returns that head. It works in
// parts of p.options.SweepPart events, to bound its memory. The caller holds sweeping.
// After an error Head.Rows is at the end of a part.
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

// sweepPart brings the rows from the seq from to the seq to.
func (p *Persister) sweepPart(ctx context.Context, epoch uint64, pace func() time.Duration, from, to log.Seq) error {
	leisure := func() *makeway.Work {
		if pace() > 0 {
			return makeway.Begin()
		}
		return nil
	}
	writes, err := p.writesBetween(from, to, leisure())
	if p.CurrentEpoch() != epoch {
		return ErrEpoch // the file may be another one by now
	}
	if err != nil {
		return err
	}
	for part := range slices.Chunk(writes, p.options.SweepRows) {
		if err := p.options.Full(); err != nil {
			return err
		}
		rests := leisure()
		if err := p.paced(ctx, epoch, pace(), rests, func(tx *bbolt.Tx) error { return putRows(tx, part, rests) }); err != nil {
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

// writesBetween returns the rows that the events in (after, to] make.
func (p *Persister) writesBetween(after, to log.Seq, rests *makeway.Work) (writes []objectWrite, err error) {
	writes = make([]objectWrite, 0, to-after) // no map: the sort is needed anyway
	err = p.files.View(func(tx *bbolt.Tx) error {
		return eachNamed(tx, after, to, rests, func(key ObjectKey, seq log.Seq) { writes = append(writes, objectWrite{key, seq}) })
	})
	return lastOfEach(writes), err
}

// moveRows writes the last rows of a sweep and the new Head.Rows, in one transaction. The
// caller holds flushing.
func (p *Persister) moveRows(epoch uint64, to log.Seq, writes []objectWrite) error {
	next := p.stored // changes only under flushing
	next.Rows = to
	err := p.upkeepLocked(epoch, func(tx *bbolt.Tx) error {
		return errors.Join(putRows(tx, writes, nil), PutHead(tx.Bucket(BucketMeta), &next))
	})
	if err == nil {
		p.mu.Lock()
		p.stored.Rows = to
		p.mu.Unlock()
	}
	return err
}

// sweepFor sweeps and begins a read transaction of h. The rows in it are those of the
// returned head, which may be behind the transaction's own head.
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

// Settled begins a read transaction of h, the current file, in which the rows are those
// of the transaction's own head.
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
		if writes, err = p.writesBetween(at.Rows, at.Seq, nil); err == nil {
			err = p.moveRows(epoch, at.Seq, writes)
		}
	}
	if err != nil {
		return nil, err
	}
	return h.DB.Begin(false)
}

// finish writes the remaining work, and the rows of all objects.
func (p *Persister) finish() error {
	err := p.Flush()
	if errors.Is(err, log.ErrNoRoom) { // raft's log has the rest
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

// Sweep brings the rows of all objects to the head, without pauses.
func (p *Persister) Sweep(ctx context.Context) error {
	p.sweeping.Lock()
	defer p.sweeping.Unlock()
	_, err := p.sweep(ctx, p.CurrentEpoch(), atOnce)
	return err
}

// refuse answers the callers that wait for the next transaction with err.
func (p *Persister) refuse(err error) {
	p.refuseMarker(err)
	p.mu.Lock()
	p.next = nil
	p.mu.Unlock()
}

// refuseMarker drops the marker of the next transaction, and answers the callers that
// wait for it with err.
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
