package changesdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/notify"
	"rutter/raftstore/internal/window"
)

// Unit is what one raft entry adds to changes.db, in the order of the log.
type Unit struct {
	Slots  []Slot
	Window window.Batch
	Bytes  int
}

// empty reports whether there is nothing to write but the head.
func (u *Unit) empty() bool {
	return len(u.Slots) == 0 && u.Window.Empty()
}

// work is what the next transaction writes.
type work struct {
	units  []*Unit
	events int   // of all units
	bytes  int   // of all units
	head   *Head // nil if there is only a marker: that of the transaction before
	marker *Marker
	done   []chan<- error // told when the transaction is synced
}

// Persister takes what the FSM applied to changes.db, in one synced
// transaction for many entries, off the path of acknowledgement: raft's log has
// them already. It is the only writer of the file but for a restore.
type Persister struct {
	options Options
	files   *Files

	kick   chan struct{} // there is work
	urgent chan struct{} // and it should not wait
	sweeps chan struct{} // so many events came that a sweep is due

	sweeping sync.Mutex // held for a sweep; taken before flushing
	flushing sync.Mutex // held for a transaction; taken before mu

	mu      sync.Mutex
	next    *work // nil if there is nothing to write
	stored  Head  // of the last transaction
	marker  Marker
	epoch   uint64 // raised by each restore (SAFETY S4)
	lag     int    // events handed over and not synced
	lagSize int    // the same in bytes
	commits uint64
	broken  error // of the first transaction that failed; nothing is written after it

	fault func(what string) error // see SetFault; protected by flushing
}

// Options are those of a persister. None may be zero, unless it says so.
type Options struct {
	Logger *slog.Logger
	// Delay is how long what was applied may wait for its transaction; so many Events
	// do not wait.
	Delay  time.Duration
	Events int
	// Beyond so many events or bytes that wait, behind and lagging say so.
	MaxLagEvents, MaxLagBytes int
	// So many events make a sweep of the object rows due; fewer wait for SweepDelay.
	SweepEvents int
	SweepDelay  time.Duration
	// SweepRows bounds one transaction of a sweep, 2,048 if 0, and SweepPart the events
	// whose rows it holds at once, SweepEvents if 0.
	SweepRows, SweepPart int

	Ops *disk.Ops // notes the commits under way; may be nil
	// Room says why the file is not written now, and Spare why rows are not even deleted
	// now, or nil. Either may be nil.
	Room, Spare func() error
}

// NewPersister returns the writer of the current file of f, whose content is c.
func NewPersister(options Options, f *Files, c *Content) *Persister {
	fits := func() error { return nil }
	if options.Room == nil {
		options.Room = fits
	}
	if options.Spare == nil {
		options.Spare = fits
	}
	options.SweepRows = cmp.Or(options.SweepRows, sweepRows)
	options.SweepPart = cmp.Or(options.SweepPart, options.SweepEvents)
	return &Persister{
		options: options, files: f,
		kick: make(chan struct{}, 1), urgent: make(chan struct{}, 1), sweeps: make(chan struct{}, 1),
		stored: c.Head, marker: c.Marker,
	}
}

// persisted is how far a persister is, at one moment.
type persisted struct {
	Seq          log.Seq // everything up to here is synced
	Index        uint64  // the raft index of that
	Rows         log.Seq // the seq whose state the object rows are
	Marker       uint64  // the raft index of the marker
	LagEvents    int     // handed over and not synced
	LagBytes     int
	Transactions uint64 // since the start
}

// Progress returns how far it is.
func (p *Persister) Progress() persisted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return persisted{
		Seq: p.stored.Seq, Index: p.stored.Applied, Rows: p.stored.Rows, Marker: p.marker.Index,
		LagEvents: p.lag, LagBytes: p.lagSize, Transactions: p.commits,
	}
}

// LastMarker returns the marker that is in the file.
func (p *Persister) LastMarker() Marker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marker
}

// SetFault has fn asked in each transaction before it is synced, and its error taken
// for the disk's; nil ends that. It is for tests.
func (p *Persister) SetFault(fn func(what string) error) {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.fault = fn
}

// Wake tells the writer that there may be something to write.
func (p *Persister) Wake() { notify.Send(p.kick) }

// Hand gives over what was applied up to h. It never waits for the disk
// (SAFETY P2), and belongs to the goroutine of the FSM.
func (p *Persister) Hand(u *Unit, h Head) {
	p.mu.Lock()
	w := p.workLocked()
	w.head = &h
	if !u.empty() {
		w.units = append(w.units, u)
	}
	w.events += len(u.Slots)
	w.bytes += u.Bytes
	p.lag += len(u.Slots)
	p.lagSize += u.Bytes
	urgent := w.events >= p.options.Events
	p.mu.Unlock()
	notify.Send(p.kick)
	if urgent {
		notify.Send(p.urgent)
	}
}

func (p *Persister) workLocked() *work {
	if p.next == nil {
		p.next = new(work)
	}
	return p.next
}

// RaiseEpoch ends the epoch: markers and upkeep of before are not written any more.
func (p *Persister) RaiseEpoch() {
	p.mu.Lock()
	p.epoch++
	p.mu.Unlock()
}

// CurrentEpoch is taken with a snapshot's ticket and given back with its marker.
func (p *Persister) CurrentEpoch() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// ErrEpoch: a restore came between a snapshot and its marker.
var ErrEpoch = errors.New("raftstore: the state was replaced by a restore meanwhile")

// Mark writes m in the transaction of everything that was handed over before,
// and waits until it is synced. Raft's snapshot index may be a barrier's or a
// no-op's, which the FSM never saw: the head's applied index is raised to it. With no
// room on disk it is an error, after which raft tries again later: raft cannot end
// while it waits here.
func (p *Persister) Mark(m Marker, epoch uint64) error {
	done := make(chan error, 1)
	p.mu.Lock()
	if err := p.broken; err != nil || p.epoch != epoch {
		p.mu.Unlock()
		return cmp.Or(err, ErrEpoch)
	}
	w := p.workLocked()
	w.marker = &m
	w.done = append(w.done, done)
	p.mu.Unlock()
	notify.Send(p.kick)
	notify.Send(p.urgent)
	return <-done
}

// roomPause is how long the writer waits before it looks for room again.
const roomPause = 100 * time.Millisecond

// Run writes until ctx is done, and then what is left. Its error is that of the
// disk; everybody who waits is told.
func (p *Persister) Run(ctx context.Context) error {
	for {
		select {
		case <-p.kick:
		case <-ctx.Done():
			return p.finish()
		}
		linger := time.NewTimer(p.options.Delay)
		select {
		case <-p.urgent:
		case <-linger.C:
		case <-ctx.Done():
		}
		linger.Stop()
		err := p.Flush()
		for errors.Is(err, log.ErrNoRoom) {
			p.refuseMarker(err)
			pause := time.NewTimer(roomPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return p.finish()
			}
			err = p.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// Flush writes the work there is. After an error the work is lost to this
// process; a restart gets it from raft's log. Only after log.ErrNoRoom it is not: then
// nothing was tried.
func (p *Persister) Flush() error {
	if err := p.options.Room(); err != nil {
		return err
	}
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.mu.Lock()
	w, stored, broken := p.next, p.stored, p.broken
	p.next = nil
	p.mu.Unlock()
	if w == nil || broken != nil {
		if w != nil { // upkeep found the disk broken
			for _, done := range w.done {
				done <- broken
			}
		}
		return broken
	}
	next := w.resolve(stored)
	h := p.files.Acquire()
	err := boltfile.Guard(func() error {
		return p.update(h.DB, func(tx *bbolt.Tx) error {
			return errors.Join(p.write(tx, w, &next), p.fails("persist"))
		})
	})
	if err = errors.Join(err, p.files.Release(h)); err != nil {
		err = fmt.Errorf("changes.db: write entries up to %d: %w: %w", next.Seq, disk.ErrTrouble, err)
	}
	p.mu.Lock()
	switch {
	case err != nil:
		p.broken = err
		if p.next != nil {
			w.done = append(w.done, p.next.done...)
		}
	case w.marker != nil:
		p.marker = *w.marker
		fallthrough
	default:
		p.stored = next
		p.lag -= w.events
		p.lagSize -= w.bytes
		p.commits++
	}
	p.mu.Unlock()
	if err == nil && next.Seq-next.Rows >= log.Seq(p.options.SweepEvents) {
		notify.Send(p.sweeps)
	}
	for _, done := range w.done {
		done <- err
	}
	return err
}

// update runs fn in a transaction of db, whose commit is noted as an operation on
// disk; what fn does is not.
func (p *Persister) update(db *bbolt.DB, fn func(tx *bbolt.Tx) error) error {
	var op uint64
	defer func() { p.options.Ops.End(op) }()
	return db.Update(func(tx *bbolt.Tx) error {
		err := fn(tx)
		op = p.options.Ops.Begin("a transaction of changes.db", disk.Slack)
		return err
	})
}

// fails asks the test's fault.
func (p *Persister) fails(what string) error {
	if p.fault == nil {
		return nil
	}
	return p.fault(what)
}

// resolve returns the head that the work's transaction writes, given that of the
// transaction before it. It is known only now: a marker may have been asked for
// while that one was still being written.
func (w *work) resolve(stored Head) Head {
	next := stored
	if w.head != nil {
		next = *w.head
	}
	next.Rows = stored.Rows
	// Raft's index may be beyond what the FSM saw, as that of a barrier is.
	if stored.Applied > next.Applied {
		next.Applied, next.Term = stored.Applied, stored.Term
	}
	if w.marker != nil && w.marker.Index > next.Applied {
		next.Applied, next.Term = w.marker.Index, w.marker.Term
	}
	return next
}

// write puts the work into one transaction.
func (p *Persister) write(tx *bbolt.Tx, w *work, next *Head) error {
	events := tx.Bucket(BucketEvents)
	events.FillPercent = 1 // keys only ever grow
	batches := make([]*window.Batch, 0, len(w.units))
	for _, u := range w.units {
		batches = append(batches, &u.Window)
		for i := range u.Slots {
			key := SeqKey(u.Slots[i].Seq)
			if err := events.Put(key, EventRow(key, &u.Slots[i])); err != nil {
				return err
			}
		}
	}
	if err := window.Write(tx, batches); err != nil {
		return err
	}
	meta := tx.Bucket(BucketMeta)
	if w.marker != nil {
		if err := meta.Put(KeyMarker, w.marker.Encode()); err != nil {
			return err
		}
	}
	return PutHead(meta, next)
}

// PutHead writes the rows of a head.
func PutHead(meta *bbolt.Bucket, h *Head) error {
	row := h.encode()
	err := errors.Join(meta.Put(KeyHead, row), meta.Put(keyRetention, h.Retention.row()), meta.Put(keySwept, h.encodeSwept(row)), PutSkips(meta, h.Skips))
	if len(h.Leaps) > 0 {
		err = errors.Join(err, meta.Put(window.KeyLeaps, window.EncodeLeaps(h.Leaps)))
	} else {
		err = errors.Join(err, meta.Delete(window.KeyLeaps))
	}
	if h.Summed {
		return errors.Join(err, meta.Put(keySums, h.encodeSums(row)))
	}
	return errors.Join(err, meta.Delete(keySums))
}

// Replace puts a restored file in the place of changes.db: work and markers of
// before are dropped, since the image has all of it (SAFETY S4).
func (p *Persister) Replace(db *bbolt.DB, c *Content) error {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.mu.Lock()
	dropped := p.next
	p.next = nil
	p.epoch++
	p.stored, p.marker = c.Head, c.Marker
	p.lag, p.lagSize = 0, 0
	p.mu.Unlock()
	if dropped != nil {
		for _, done := range dropped.done {
			done <- ErrEpoch
		}
	}
	return p.files.Swap(db)
}

// Durable returns the seq up to which everything is synced in changes.db.
func (p *Persister) Durable() log.Seq {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored.Seq
}

// Behind reports whether so much waits for the disk that no more is taken.
func (p *Persister) Behind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lag > p.options.MaxLagEvents || p.lagSize > p.options.MaxLagBytes
}

// ErrLagging: changes.db is so far behind what is applied that this server
// takes nothing more, or is not ready.
var ErrLagging = errors.New("raftstore: changes.db is too far behind")

// Lagging says that changes.db is further behind than some times its bounds, or nil.
func (p *Persister) Lagging(times int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lag <= times*p.options.MaxLagEvents && p.lagSize <= times*p.options.MaxLagBytes {
		return nil
	}
	return fmt.Errorf("%w: by %d events of %d bytes; it may be by %d or %d bytes", ErrLagging, p.lag, p.lagSize, p.options.MaxLagEvents, p.options.MaxLagBytes)
}
