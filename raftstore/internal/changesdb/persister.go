package changesdb

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/makeway"
	"rutter/raftstore/internal/notify"
	"rutter/raftstore/internal/window"
)

// Unit is what one raft entry adds to changes.db. Units come in the order of the log.
type Unit struct {
	Slots  []Slot
	Window window.Batch
	Bytes  int
}

// empty reports whether only the head is to be written.
func (u *Unit) empty() bool {
	return len(u.Slots) == 0 && u.Window.Empty()
}

// work is the content of the next transaction.
type work struct {
	units  []*Unit
	events int   // of all units
	bytes  int   // of all units
	head   *Head // nil if there is only a marker: then the head of the previous transaction
	marker *Marker
	done   []chan<- error // answered when the transaction is synced
}

// Persister writes what the FSM applied to changes.db, in one synced transaction for many
// entries. No acknowledgement waits for it, because raft's log has the entries. It is the
// only writer of the file, except for a restore.
type Persister struct {
	options Options
	files   *Files

	kick   chan struct{} // there is work
	urgent chan struct{} // and it must not wait
	sweeps chan struct{} // a sweep is due for the number of events

	sweeping notify.Turn // held for a sweep; taken before flushing
	flushing notify.Turn // held for a transaction; taken before mu

	mu      sync.Mutex
	next    *work // nil if there is nothing to write
	stored  Head  // of the last transaction
	marker  Marker
	epoch   uint64 // raised by each restore (SAFETY S4)
	lag     int    // events handed over and not synced
	lagSize int    // bytes handed over and not synced
	commits uint64
	broken  error // error of the first failed transaction; nothing is written after it

	fault func(what string) error // see SetFault; protected by flushing
}

// Options are the options of a Persister. None may be zero, unless its comment says so.
type Options struct {
	Logger *slog.Logger
	// Delay is how long applied events may wait for their transaction. As soon as Events
	// of them wait, it is written.
	Delay  time.Duration
	Events int
	// If more than MaxLagEvents events or MaxLagBytes bytes wait, Behind and Lagging
	// report it.
	MaxLagEvents, MaxLagBytes int
	// SweepEvents events make a sweep of the object rows due. Fewer wait for SweepDelay.
	SweepEvents int
	SweepDelay  time.Duration
	// SweepRows bounds the rows of one transaction of a sweep; 0 means 512. SweepPart
	// bounds the events whose rows a sweep holds in memory at once; 0 means SweepEvents.
	SweepRows, SweepPart int

	Ops *disk.Ops // watches the commits under way; may be nil
	// Full returns why the file must not be written now, or nil. Spare returns why not
	// even rows may be deleted now, or nil. Either function may be nil.
	Full, Spare func() error
}

// NewPersister returns the writer of the current file of f, whose content is c.
func NewPersister(options Options, f *Files, c *Content) *Persister {
	fits := func() error { return nil }
	if options.Full == nil {
		options.Full = fits
	}
	if options.Spare == nil {
		options.Spare = fits
	}
	options.SweepRows = cmp.Or(options.SweepRows, sweepRows)
	options.SweepPart = cmp.Or(options.SweepPart, options.SweepEvents)
	return &Persister{
		options: options, files: f,
		kick: make(chan struct{}, 1), urgent: make(chan struct{}, 1), sweeps: make(chan struct{}, 1),
		stored: c.Head, marker: c.Marker, sweeping: notify.NewTurn(), flushing: notify.NewTurn(),
	}
}

// persisted is the progress of a Persister at one moment.
type persisted struct {
	Seq          log.Seq // everything up to here is synced
	Index        uint64  // raft index of Seq
	Rows         log.Seq // the seq whose state the object rows have
	Marker       uint64  // raft index of the marker
	LagEvents    int     // handed over and not synced
	LagBytes     int
	Transactions uint64 // since the start
}

// Progress returns the present progress.
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

// SetFault is for tests: fn is called in each transaction before it is synced, and its
// error counts as an error of the disk. nil ends that.
func (p *Persister) SetFault(fn func(what string) error) {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.fault = fn
}

// Wake wakes the writer, because there may be something to write.
func (p *Persister) Wake() { notify.Send(p.kick) }

// Hand gives the writer what was applied up to h. It never waits for the disk (SAFETY
// P2). Only the FSM's goroutine may call it.
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

// RaiseEpoch ends the epoch: markers and upkeep that began before it are not written.
func (p *Persister) RaiseEpoch() {
	p.mu.Lock()
	p.epoch++
	p.mu.Unlock()
}

// CurrentEpoch returns the epoch. A snapshot takes it at its beginning, and passes it to
// Mark.
func (p *Persister) CurrentEpoch() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// ErrEpoch: a restore came between a snapshot and its marker.
var ErrEpoch = errors.New("raftstore: the state was replaced by a restore meanwhile")

// Mark writes m in the transaction of everything that was handed over before, and waits
// until it is synced. Raft's snapshot index may be that of a barrier or a no-op, which
// the FSM never gets: the head's applied index is raised to it. Without space on disk
// Mark returns an error, and raft tries again later. It does not wait for space, because
// raft cannot end while it waits here.
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

// spacePause is how long the writer waits before it checks for free space again.
const spacePause = 100 * time.Millisecond

// Run writes until ctx is done, and then writes what is left. Its error is that of the
// disk; all waiting callers get it too.
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
		err := p.flush(p.mayRest(ctx))
		for errors.Is(err, log.ErrNoRoom) {
			p.refuseMarker(err)
			pause := time.NewTimer(spacePause)
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

// mayRest returns how the next transaction makes way for changes: not at all if it must
// be soon, because a caller waits for it, or more events come than it can take at leisure.
func (p *Persister) mayRest(ctx context.Context) *makeway.Work {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.next; ctx.Err() != nil || w != nil && (len(w.done) > 0 || w.events > restEvents*p.options.Events) {
		return nil
	}
	return makeway.Begin()
}

// restEvents: a transaction of more than so many times Options.Events does not rest.
const restEvents = 4

// Flush writes the present work, without rests. After an error this process drops the work; a restart
// gets it from raft's log. After log.ErrNoRoom the work is kept, because nothing was
// tried.
func (p *Persister) Flush() error { return p.flush(nil) }

func (p *Persister) flush(rests *makeway.Work) error {
	if err := p.options.Full(); err != nil {
		return err
	}
	p.flushing.Lock()
	defer p.flushing.Unlock()
	p.mu.Lock()
	w, stored, broken := p.next, p.stored, p.broken
	p.next = nil
	p.mu.Unlock()
	if w == nil || broken != nil {
		if w != nil { // an error of upkeep broke the persister
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
			return errors.Join(p.write(tx, w, &next, rests), p.fails("persist"))
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

// update runs fn in a transaction of db. Only its commit counts as an operation on disk.
func (p *Persister) update(db *bbolt.DB, fn func(tx *bbolt.Tx) error) error {
	p.options.Ops.Before("a transaction of changes.db", disk.Slack)
	var op uint64
	defer func() { p.options.Ops.End(op) }()
	return db.Update(func(tx *bbolt.Tx) error {
		err := fn(tx)
		op = p.options.Ops.Begin("a transaction of changes.db", disk.Slack)
		return err
	})
}

// fails calls the fault that a test set.
func (p *Persister) fails(what string) error {
	if p.fault == nil {
		return nil
	}
	return p.fault(what)
}

// resolve returns the head that the transaction of w writes, given the head of the
// previous transaction. It is known only now, because a marker may have been requested
// while the previous transaction was still being written.
func (w *work) resolve(stored Head) Head {
	next := stored
	if w.head != nil {
		next = *w.head
	}
	next.Rows = stored.Rows
	// Raft's index may be beyond what the FSM got: that of a barrier.
	if stored.Applied > next.Applied {
		next.Applied, next.Term = stored.Applied, stored.Term
	}
	if w.marker != nil && w.marker.Index > next.Applied {
		next.Applied, next.Term = w.marker.Index, w.marker.Term
	}
	return next
}

// rowsRoom is how many bytes the rows of a transaction take at once.
const rowsRoom = 64 << 10

// write puts the work into one transaction.
func (p *Persister) write(tx *bbolt.Tx, w *work, next *Head, rests *makeway.Work) error {
	events := tx.Bucket(BucketEvents)
	events.FillPercent = 1 // keys only grow
	batches := make([]*window.Batch, 0, len(w.units))
	room, key := log.Room{Size: rowsRoom}, make([]byte, 8) // bbolt copies keys, and holds rows until the commit
	for _, u := range w.units {
		batches = append(batches, &u.Window)
		for i := range u.Slots {
			rests.Step()
			binary.BigEndian.PutUint64(key, uint64(u.Slots[i].Seq))
			if err := events.Put(key, eventRow(&room, key, &u.Slots[i])); err != nil {
				return err
			}
		}
	}
	if err := window.Write(tx, batches, &room, rests.Step); err != nil {
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

// Replace replaces changes.db by a restored file. Earlier work and markers are dropped,
// because the image contains all of it (SAFETY S4).
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

// Behind reports whether so much waits for the disk that the leader must take no more.
func (p *Persister) Behind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lag > p.options.MaxLagEvents || p.lagSize > p.options.MaxLagBytes
}

// ErrLagging: changes.db is so far behind the applied state that this server takes
// nothing more, or is not ready.
var ErrLagging = errors.New("raftstore: changes.db is too far behind")

// Lagging returns ErrLagging if changes.db is behind by more than times its bounds, else
// nil.
func (p *Persister) Lagging(times int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lag <= times*p.options.MaxLagEvents && p.lagSize <= times*p.options.MaxLagBytes {
		return nil
	}
	return fmt.Errorf("%w: by %d events of %d bytes; it may be by %d or %d bytes", ErrLagging, p.lag, p.lagSize, p.options.MaxLagEvents, p.options.MaxLagBytes)
}
