package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/window"
	"rutter/raftstore/offline"
	"rutter/raftstore/skipped"
)

// errSkippedEntry: an operator took the cluster past the entry, which says no
// more than that it was one; nobody of this process can wait for it.
var errSkippedEntry = errors.New("raftstore: the entry was skipped by an operator")

// fails asks the test's fault.
func (a *applier) fails(change log.UUID) error {
	if a.fault == nil {
		return nil
	}
	return a.fault(a.index, change)
}

// applyOrSkip applies an entry, but for what an operator had skipped. A panic is
// an error like any other: whatever stops apply, there is a way past it.
func (a *applier) applyOrSkip(entry *raft.Log, u *changesdb.Unit) (response any, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.store.logger.Error("panic in apply", "raft_index", entry.Index, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	at := a.head.Skips.PendingAt(entry.Index)
	if at < 0 {
		response, err = a.applyData(entry, u)
		a.dropForeignSkips()
		return response, err
	}
	skip := &a.head.Skips[at].Skip
	if got := skipped.EntryHash(entry); got != skip.Entry {
		a.store.logger.Warn("a skip that was planted is void: another entry stands at its raft index, and is applied", "raft_index", entry.Index, "planted_for", skip.Entry, "entry", got)
		response, err = a.applyData(entry, u)
		a.head.Skips = a.head.Skips.Become(at, skipped.Void)
		return response, err
	}
	if response, err = a.skipEntry(entry, skip, u); err != nil {
		return nil, fmt.Errorf("skip: %w", err)
	}
	a.head.Skips = a.head.Skips.Become(at, skipped.Passed)
	a.store.logger.Warn("raft entry skipped, as an operator said", "raft_index", entry.Index, "entry", skip.Entry, "changes", len(skip.Changes), "actor", skip.Actor, "reason", skip.Reason)
	return response, nil
}

// dropForeignSkips drops what waits for an index of another cluster: a server
// with an empty folder took it from one whose cluster it then did not join.
func (a *applier) dropForeignSkips() {
	foreign := func(p skipped.Planted) bool { return p.State == skipped.Pending && p.Cluster != a.head.Cluster }
	if !a.head.Cluster.IsZero() && slices.ContainsFunc(a.head.Skips, foreign) {
		a.head.Skips = slices.DeleteFunc(slices.Clone(a.head.Skips), foreign)
	}
}

// skipEntry does what is left of an entry, and records the skip. The response is
// that of the batch, if the entry is one.
func (a *applier) skipEntry(entry *raft.Log, skip *skipped.Skip, u *changesdb.Unit) (response any, err error) {
	response = errSkippedEntry
	if len(entry.Data) > 0 && entry.Data[0] == command.Batch {
		changes, err := log.SplitBatch(entry.Data[1:])
		switch {
		case err == nil:
			if response, err = a.skipChanges(changes, skip, u); err != nil {
				return nil, err
			}
		case len(skip.Changes) > 0:
			return nil, err // some are to be applied, and cannot be told from the others
		}
	}
	return response, a.recordSkip(skip, u)
}

// skipChanges applies the changes of a batch that are not skipped, in order.
func (a *applier) skipChanges(changes [][]byte, skip *skipped.Skip, u *changesdb.Unit) ([]log.Result, error) {
	results := make([]log.Result, len(changes))
	for i, raw := range changes {
		id, known := log.ChangeID(raw)
		var err error
		if len(skip.Changes) > 0 && !(known && slices.Contains(skip.Changes, id)) {
			results[i], err = a.applyChange(raw, u)
		} else {
			results[i], err = a.skipChange(id, skip, u)
		}
		if err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
	}
	return results, nil
}

// skipChange refuses a change without looking at more than its id, and remembers
// that, so that a retry learns what was done. Nothing moves the cluster's time.
func (a *applier) skipChange(id log.UUID, skip *skipped.Skip, u *changesdb.Unit) (log.Result, error) {
	result := log.Result{ChangeID: id, Refusal: skip.Refusal(id)}
	a.store.counters.refused.Add(1)
	if !a.window.Takes(id, a.head.Time) {
		return result, nil // the window says already what a retry gets
	}
	encoded, err := a.enc.Result(&result)
	if err != nil {
		return log.Result{}, fmt.Errorf("result of change %s: %w", id, err)
	}
	// The row is one of no author: whoever has the id learns of the skip. It counts as
	// applied now, or at its own time if that is later, so that none is forgotten while
	// its id could be taken.
	if a.window.Contained() {
		row := window.Row{Applied: max(a.head.Time, window.TimeOf(id)), Result: encoded}
		encoded = row.Encode()
	}
	a.window.Add(id, encoded, a.index)
	u.Window.Results = append(u.Window.Results, window.Result{ID: id, Value: encoded})
	u.Bytes += len(encoded)
	return result, nil
}

// recordSkip makes the one event of a skip, of nothing but what was planted and
// the state that all servers have.
func (a *applier) recordSkip(skip *skipped.Skip, u *changesdb.Unit) error {
	value, err := skip.Record()
	if err != nil {
		return err
	}
	event := &log.Event{
		Kind: log.KindSetting, Action: log.Create, ID: skip.Setting(), Revision: 1, Time: a.head.Time,
		Actor: skip.Actor, ChangeID: skip.ID,
		Object: &log.Setting{Name: skip.Setting(), Value: value},
	}
	encoded, body, err := a.enc.EventAndBody(event)
	if err != nil {
		return err
	}
	seq := a.head.Seq + 1
	d := decided{
		events: []*log.Event{event}, bodies: [][]byte{body},
		slots: []changesdb.Slot{{Entry: log.Entry{Seq: seq, Hash: a.head.Hash.Next(seq, encoded), Bytes: encoded}}},
	}
	u.Slots = append(u.Slots, d.slots...)
	u.Bytes += len(encoded)
	return a.fold(&d)
}

// maxStopError bounds what is kept of the reason.
const maxStopError = 8 << 10

// stoppedBy returns the error by which an entry stops this server, with the way
// past it, and keeps it for who looks at the stopped server's folder.
func (a *applier) stoppedBy(entry *raft.Log, cause error) error {
	text := cause.Error()
	note, _ := json.Marshal(offline.Stop{Index: entry.Index, Error: text[:min(len(text), maxStopError)], At: a.store.cfg.Now()}) // plain fields
	if werr := os.WriteFile(filepath.Join(a.store.cfg.Dir, offline.StopFile), note, 0o600); werr != nil {
		a.store.logger.Warn("what stopped the server could not be noted in its folder", "error", werr)
	}
	return fmt.Errorf("raft entry %d: %w (if it stops every server: stop them all, and run rutter cluster skip --data %s --index %d, which shows the entry and says how to go past it; if it stops only this one, its files are damaged: let it join again with an empty folder)", entry.Index, cause, a.store.cfg.Dir, entry.Index)
}

// A server that has planted skips adds JSON of them to the greeting of raft's
// connections: who lacks one, or has another, is refused at both ends, and so gets no
// entry that it would apply in another way. One without any greets as programs do that
// know of no skips. A server with an empty folder takes over what it is greeted with: it
// has to come past the same entries.

// skipWatch compares the skips of servers that talk to each other.
type skipWatch struct {
	store *Store
	// trouble is why a server was refused last that has other skips; nil since
	// one with the same came. told is when that was logged, unix ns.
	trouble atomic.Pointer[string]
	told    atomic.Int64
}

// skipNote is what this server adds to its greeting; nil if it has no skips.
func (w *skipWatch) skipNote() ([]byte, error) {
	planted := w.skips()
	if len(planted) == 0 {
		return nil, nil
	}
	return json.Marshal(planted.Plain())
}

// readSkipNote reads the skips of another server's greeting, which may have none.
func readSkipNote(note []byte) (all []skipped.Skip, err error) {
	if note == nil {
		return nil, nil
	}
	if err := json.Unmarshal(note, &all); err != nil {
		return nil, fmt.Errorf("skips: %w: %w", log.ErrCorrupt, err)
	}
	return all, nil
}

// skips are those that this server has.
func (w *skipWatch) skips() skipped.List {
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	return w.store.head.Skips
}

// skipsPause is the least time between two words about servers with other skips, which
// try again and again.
const skipsPause = 10 * time.Second

// sameSkips reports whether a dialler of a cluster may talk raft to this server:
// it has the same skips, or one of the two has applied nothing yet. The error says that
// its note cannot be read.
func (w *skipWatch) sameSkips(from net.Addr, cluster log.UUID, note []byte) (bool, error) {
	theirs, err := readSkipNote(note)
	if err != nil {
		return false, err
	}
	if cluster.IsZero() || w.store.Head().Cluster.IsZero() && w.store.applier.adoptSkips(cluster, theirs) {
		return true, nil
	}
	what := w.skips().Differ(theirs)
	if what == "" {
		w.trouble.Store(nil)
		return true, nil
	}
	w.trouble.Store(&what)
	now := time.Now().UnixNano()
	if last := w.told.Load(); now-last > int64(skipsPause) && w.told.CompareAndSwap(last, now) {
		w.store.logger.Error("refusing a server whose skipped entries are not this one's", "peer", from, "because", what)
	}
	return false, nil
}

// adoptSkips takes over the skips of a cluster that this server, whose folder is
// empty, is about to join; false if it is not empty.
func (a *applier) adoptSkips(cluster log.UUID, theirs []skipped.Skip) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.head.Cluster.IsZero() {
		return false
	}
	a.head.Skips = nil
	for _, skip := range theirs[:min(len(theirs), skipped.Most)] {
		if skip.Cluster == cluster && skip.Check() == nil && a.head.Skips.PendingAt(skip.Index) < 0 {
			a.head.Skips = a.head.Skips.With(skip)
		}
	}
	a.store.mu.Lock()
	a.store.head.Skips = a.head.Skips
	a.store.mu.Unlock()
	return true
}

// orSkips adds to why the server is not ready that another one was refused for its
// skips, which may be the reason.
func (w *skipWatch) orSkips(err error) error {
	if what := w.trouble.Load(); what != nil {
		return fmt.Errorf("%w; another server was refused: %s", err, *what)
	}
	return err
}

// skipsName is a hash over the skips of a server, for its identity; "" is none.
func (w *skipWatch) skipsName() string {
	planted := w.skips()
	if len(planted) == 0 {
		return ""
	}
	var b []byte
	for i := range planted {
		b = append(b, planted[i].Sum().Bytes()...)
	}
	return fmt.Sprintf("%x", digest.Of(b).Bytes())
}
