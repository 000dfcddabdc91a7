package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/window"
)

// errSkipped: a proposer waits for an entry that the state already holds. That is
// possible only if raft's log and changes.db are of different servers.
var errSkipped = errors.New("raftstore: an entry that somebody waits for was already in the state: raft's log and changes.db are not of the same server")

// fsm is the store as a raft.FSM. Its methods run in raft's FSM goroutine, which is the
// only writer of the state. Only Persist runs in another goroutine.
type fsm struct{ s *Store }

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (f fsm) Apply(entry *raft.Log) any { return f.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch implements raft.BatchingFSM: commands and configurations. A response is the
// list of results of a batch's changes, or an error.
func (f fsm) ApplyBatch(entries []*raft.Log) []any {
	s := f.s
	s.applier.mu.Lock()
	defer s.applier.mu.Unlock()
	responses := make([]any, len(entries))
	seq := s.applier.head.Seq
	for i, entry := range entries {
		responses[i] = s.applier.applyEntry(entry)
	}
	if s.applier.head.Seq != seq {
		s.applier.wake()
	}
	return responses
}

// applier applies raft's entries. It belongs to the FSM's goroutine, and to a rebuild,
// which replaces the state.
type applier struct {
	store *Store

	mu     sync.Mutex // taken before Store.mu
	enc    *log.Encoder
	dec    log.ChangeDecoder
	bodies [][]byte         // of the events of the change that is being applied
	slots  []changesdb.Slot // these events
	// scratch is where a result is encoded: at most log.MaxResultBytes and a header.
	scratch []byte
	window  *window.Window
	index   uint64 // of the raft entry that is being applied
	// rebuild, if not nil, keeps the entries, which are applied when it ends.
	rebuild *rebuild
	// head is the end of what was applied. Store.head is its copy for readers.
	head changesdb.Head

	// fault, if a test set it before Run, is called with each change before it is
	// decided. Its error or panic becomes that of apply.
	fault func(index uint64, change log.UUID) error
}

// applyEntry applies one raft entry as a whole, or stops the server.
func (a *applier) applyEntry(entry *raft.Log) any {
	if err := a.store.failure(); err != nil {
		return err
	}
	if a.rebuild != nil {
		a.rebuild.keep(entry)
		return nil
	}
	if entry.Index <= a.head.Applied {
		return errSkipped
	}
	u := new(changesdb.Unit)
	a.index = entry.Index
	a.window.Settle(a.store.persister.Progress().Index)
	if !a.window.Contained() {
		u.Window.Trimmed = a.window.Trimmed()
	}
	response, err := a.applyOrSkip(entry, u)
	if err != nil {
		err = a.stoppedBy(entry, err)
		a.store.fail(err)
		return err
	}
	a.head.Trimmed, a.head.Leaps, u.Window.Changes = a.window.Trimmed(), a.window.Leaps(), a.window.TakeChanges()
	if !a.window.Contained() {
		u.Window.Trimmed = a.window.Trimmed()
	}
	a.head.Applied, a.head.Term, a.head.Command = entry.Index, entry.Term, entry.Index
	a.head.StateSum, a.head.WindowSum, a.head.Summed = changesdb.StateSum(a.store.state), a.window.Digest(), true
	a.store.comparison.points.push(&a.head)
	a.store.mu.Lock()
	a.store.head = a.head
	a.store.state.SetTime(a.head.Time) // a retry or a refusal moves it without an event
	a.store.mu.Unlock()
	a.store.persister.Hand(u, a.head)
	return response
}

func (a *applier) applyData(entry *raft.Log, u *changesdb.Unit) (any, error) {
	if entry.Type == raft.LogConfiguration {
		a.head.Conf, a.head.ConfIndex = raft.DecodeConfiguration(entry.Data), entry.Index
		return nil, nil
	}
	if entry.Type != raft.LogCommand || len(entry.Data) == 0 {
		return nil, fmt.Errorf("type %d with %d bytes: %w", entry.Type, len(entry.Data), log.ErrFormat)
	}
	switch first, data := entry.Data[0], entry.Data[1:]; first {
	case command.Batch:
		return a.applyBatch(data, u)
	case command.Genesis:
		return nil, a.applyGenesis(data)
	case command.Floor:
		return nil, a.applyFloor(data)
	case command.Retention:
		return nil, a.applyRetention(data)
	case command.Feature:
		return nil, a.applyFeature(data)
	default:
		return nil, fmt.Errorf("command %d is of a newer program: upgrade this server: %w", first, log.ErrFormat)
	}
}

// applyGenesis takes the cluster's identity. Only the first one counts.
func (a *applier) applyGenesis(data []byte) error {
	if len(data) < 20 {
		return fmt.Errorf("genesis of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	feature := binary.BigEndian.Uint32(data[16:])
	if feature > a.store.cfg.Features {
		return fmt.Errorf("the cluster is of feature version %d, and this program knows %d: upgrade it: %w", feature, a.store.cfg.Features, log.ErrFormat)
	}
	if a.head.Cluster.IsZero() {
		a.head.Cluster = log.UUID(data[:16])
		a.becomeOfFeature(feature)
	}
	return nil
}

// applyBatch applies the changes of a batch in order.
func (a *applier) applyBatch(data []byte, u *changesdb.Unit) ([]log.Result, error) {
	changes, err := log.SplitBatch(data)
	if err != nil {
		return nil, err
	}
	results := make([]log.Result, len(changes))
	u.Slots, u.Window.Results = make([]changesdb.Slot, 0, len(changes)), make([]window.Result, 0, len(changes))
	for i, raw := range changes {
		if results[i], err = a.applyChange(raw, u); err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
	}
	return results, nil
}

// applyChange decides and applies one change. It reads only replicated data, so each
// server computes the same (architecture rule 3).
func (a *applier) applyChange(raw []byte, u *changesdb.Unit) (log.Result, error) {
	c, err := a.readChange(raw)
	if errors.Is(err, log.ErrFormat) {
		return log.Result{}, err
	}
	if err != nil {
		return a.refuseUnreadable(err), nil
	}
	a.head.Time = max(a.head.Time, c.Time)
	c.Time = a.head.Time
	a.window.Advance(c.Time)
	asker := c.Asker()
	if known := a.window.Known(c.ID); known != nil {
		return a.knownResult(c, asker, known)
	}
	if refusal := a.checkID(c, asker); refusal != nil {
		a.store.counters.refused.Add(1)
		return log.Result{ChangeID: c.ID, Refusal: refusal}, nil
	}
	if err := a.fails(c.ID); err != nil {
		return log.Result{}, err
	}
	d := a.decide(c)
	result := d.result
	if result.Refusal != nil {
		a.store.counters.refused.Add(1)
		if a.window.Check(c.ID, asker, c.Time) != nil {
			return result, nil // it should have set the time (checkID), and did not: its id is of another time
		}
	} else {
		a.setTime(d.events)
		if err := a.fold(&d); err != nil {
			return log.Result{}, fmt.Errorf("change %s: %w", c.ID, err)
		}
	}
	u.Slots = append(u.Slots, d.slots...)
	u.Bytes += d.bytes
	encoded := a.scratch[:0]
	if a.window.Contained() {
		row := window.Row{Applied: a.head.Time, Asker: asker, Content: c.Content}
		encoded = row.AppendHeader(encoded)
	}
	if encoded, err = a.enc.AppendResult(encoded, &result); err != nil {
		return log.Result{}, fmt.Errorf("result of change %s: %w", c.ID, err)
	}
	a.scratch, encoded = encoded, a.enc.Own(encoded)
	a.window.Add(c.ID, encoded, a.index)
	u.Window.Results = append(u.Window.Results, window.Result{ID: c.ID, Value: encoded})
	u.Bytes += len(encoded)
	return result, nil
}

// wake wakes the readers that wait for new entries.
func (a *applier) wake() {
	a.store.mu.Lock()
	old := a.store.changed
	a.store.changed = make(chan struct{})
	a.store.mu.Unlock()
	close(old)
}

// Snapshot implements raft.FSM. It copies nothing: the persister has everything that was
// applied, and Persist waits for it (SAFETY S3).
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.s.applier.mu.Lock()
	defer f.s.applier.mu.Unlock()
	if f.s.applier.rebuild != nil {
		return nil, errRebuilding
	}
	if err := f.s.failure(); err != nil {
		return nil, err
	}
	if err := f.s.images.mayMark(); err != nil {
		return nil, err
	}
	return &ticket{epoch: f.s.persister.CurrentEpoch()}, nil
}

// ticket is a snapshot that consists only of a marker to write.
type ticket struct{ epoch uint64 }

// Persist implements raft.FSMSnapshot.
func (t *ticket) Persist(to raft.SnapshotSink) error {
	target, ok := to.(*sink)
	if !ok {
		return fmt.Errorf("raftstore: a snapshot can only go to the store's own files, not to %T", to)
	}
	return target.becomeMarker(t.epoch)
}

// Release implements raft.FSMSnapshot.
func (t *ticket) Release() {}

// Restore implements raft.FSM: it replaces changes.db by a received image, and the state
// by the image's content.
func (f fsm) Restore(from io.ReadCloser) error {
	for {
		wrapped, ok := from.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		from = wrapped.WrappedReadCloser()
	}
	image, ok := from.(*received)
	if !ok {
		return fmt.Errorf("raftstore: a restore can only come from the store's own files, not from %T", from)
	}
	return f.s.applier.restore(image.sink)
}

// restore publishes the image that a sink received. Until the rename an error
// leaves everything as it was.
func (a *applier) restore(k *sink) error {
	db, c, err := k.open()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.install(k, db, &c); err != nil {
		return err
	}
	if err := a.store.raftLog.Restored(k.marker.Index, k.marker.Term); err != nil {
		a.store.fail(err)
		return err
	}
	a.rebuild = nil // a restore is what the rebuild wanted
	a.store.logger.Info("state restored from a snapshot", "seq", c.Head.Seq, "raft_index", c.Head.Applied)
	return nil
}

// install replaces changes.db by a received file, and the state by its content. The
// caller holds applier.mu. Until the rename an error leaves everything as it was; one of
// the folder's sync after it ends the server.
func (a *applier) install(k *sink, db *bbolt.DB, c *changesdb.Content) error {
	if err := k.publish(); err != nil {
		if errors.Is(err, errFolder) {
			a.store.fail(err) // the disk may have either file: a restart finds out which
		}
		return errors.Join(err, db.Close())
	}
	if err := a.store.persister.Replace(db, c); err != nil {
		a.store.logger.Warn("closing the replaced changes.db", "error", err)
	}
	a.window, a.head = c.Window, c.Head
	a.store.comparison.points.reset(&c.Head)
	a.store.mu.Lock()
	a.store.state, a.store.head = c.State, c.Head
	a.store.ring.Reset(c.Head.Seq)
	a.store.mu.Unlock()
	a.store.counters.restores.Add(1)
	a.wake()
	return nil
}
