package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// errSkippedEntry: an operator took the cluster past the entry. It is the response to an
// entry that is not a batch; no caller of this process waits for it.
var errSkippedEntry = errors.New("raftstore: the entry was skipped by an operator")

// fails calls the fault that a test set.
func (a *applier) fails(change log.UUID) error {
	if a.fault == nil {
		return nil
	}
	return a.fault(a.index, change)
}

// applyOrSkip applies an entry, or skips it if an operator planted a skip for it. A panic
// becomes an error like any other, so that a skip can pass it too.
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

// dropForeignSkips drops pending skips of another cluster: a server with an empty folder
// took them from a server whose cluster it then did not join.
func (a *applier) dropForeignSkips() {
	foreign := func(p skipped.Planted) bool { return p.State == skipped.Pending && p.Cluster != a.head.Cluster }
	if !a.head.Cluster.IsZero() && slices.ContainsFunc(a.head.Skips, foreign) {
		a.head.Skips = slices.DeleteFunc(slices.Clone(a.head.Skips), foreign)
	}
}

// skipEntry applies the changes of an entry that are not skipped, and records the skip.
// If the entry is a batch, the response is that of the batch.
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
			return nil, err // some changes must be applied, and cannot be told from the others
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

// skipChange refuses a change, of which it reads only the id, and remembers the refusal
// for retries. It does not move the cluster's time.
func (a *applier) skipChange(id log.UUID, skip *skipped.Skip, u *changesdb.Unit) (log.Result, error) {
	result := log.Result{ChangeID: id, Refusal: skip.Refusal(id)}
	a.store.counters.refused.Add(1)
	if !a.window.Takes(id, a.head.Time) {
		return result, nil // the window already has the result for a retry
	}
	encoded, err := a.enc.Result(&result)
	if err != nil {
		return log.Result{}, fmt.Errorf("result of change %s: %w", id, err)
	}
	// The row has no author: any client with the id gets the refusal. The change counts
	// as applied now, or at the time of its id if that is later, so that it is not
	// forgotten while its id could be taken.
	if a.window.Contained() {
		row := window.Row{Applied: max(a.head.Time, window.TimeOf(id)), Result: encoded}
		encoded = row.Encode()
	}
	a.window.Add(id, encoded, a.index)
	u.Window.Results = append(u.Window.Results, window.Result{ID: id, Value: encoded})
	u.Bytes += len(encoded)
	return result, nil
}

// recordSkip makes the one event of a skip. It uses only the planted record and the
// state, which are the same on all servers.
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

// maxStopError bounds the bytes of the reason that are kept.
const maxStopError = 8 << 10

// stoppedBy returns the error with which an entry stops this server; its text says how to
// go past the entry. It also writes the error to the data folder, for the operator.
func (a *applier) stoppedBy(entry *raft.Log, cause error) error {
	text := cause.Error()
	note, _ := json.Marshal(offline.Stop{Index: entry.Index, Error: text[:min(len(text), maxStopError)], At: a.store.cfg.Now()}) // plain fields
	if werr := os.WriteFile(filepath.Join(a.store.cfg.Dir, offline.StopFile), note, 0o600); werr != nil {
		a.store.logger.Warn("what stopped the server could not be noted in its folder", "error", werr)
	}
	return fmt.Errorf("raft entry %d: %w (if it stops every server: stop them all, and run rutter cluster skip --data %s --index %d, which shows the entry and says how to go past it; if it stops only this one, its files are damaged: let it join again with an empty folder)", entry.Index, cause, a.store.cfg.Dir, entry.Index)
}

// A server that has planted skips sends them, as JSON, in the greeting of raft's
// connections. A server that lacks one, or has another one, is refused at both ends, so
// it gets no entry that it would apply differently. A server without skips greets like a
// program that does not know skips. A server with an empty folder takes over the skips of
// the greeting, because it has to pass the same entries.

// skipWatch compares the skips of servers that talk to each other.
type skipWatch struct {
	core   *core
	logger *slog.Logger
	// adopt takes over the skips of a cluster, unless this server has one: see
	// applier.adoptSkips.
	adopt func(cluster log.UUID, theirs []skipped.Skip) bool

	// trouble is why a server with other skips was refused last; nil after one with the
	// same skips was admitted. told is when that was last logged, in Unix ns.
	trouble  atomic.Pointer[string]
	loggedAt atomic.Int64
}

// skipNote returns what this server adds to its greeting; nil if it has no skips.
func (w *skipWatch) skipNote() ([]byte, error) {
	planted := w.skips()
	if len(planted) == 0 {
		return nil, nil
	}
	return json.Marshal(planted.Plain())
}

// readSkipNote decodes the skips in another server's greeting; none if note is nil.
func readSkipNote(note []byte) (all []skipped.Skip, err error) {
	if note == nil {
		return nil, nil
	}
	if err := json.Unmarshal(note, &all); err != nil {
		return nil, fmt.Errorf("skips: %w: %w", log.ErrCorrupt, err)
	}
	return all, nil
}

// skips returns the skips of this server.
func (w *skipWatch) skips() skipped.List {
	w.core.mu.RLock()
	defer w.core.mu.RUnlock()
	return w.core.head.Skips
}

// skipsPause is the least time between two log messages about servers with other skips,
// which connect again and again.
const skipsPause = 10 * time.Second

// sameSkips reports whether a dialler may send raft requests to this server: it has the
// same skips, or one of the two servers has applied nothing yet. An error means that its
// note cannot be read.
func (w *skipWatch) sameSkips(from net.Addr, cluster log.UUID, note []byte) (bool, error) {
	theirs, err := readSkipNote(note)
	if err != nil {
		return false, err
	}
	if cluster.IsZero() || w.core.cursor().Cluster.IsZero() && w.adopt(cluster, theirs) {
		return true, nil
	}
	what := w.skips().Differ(theirs)
	if what == "" {
		w.trouble.Store(nil)
		return true, nil
	}
	w.trouble.Store(&what)
	now := time.Now().UnixNano()
	if last := w.loggedAt.Load(); now-last > int64(skipsPause) && w.loggedAt.CompareAndSwap(last, now) {
		w.logger.Error("refusing a server whose skipped entries are not this one's", "peer", from, "because", what)
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

// orSkips adds to the error why this server is not ready that another server was refused
// for its skips, because that may be the cause.
func (w *skipWatch) orSkips(err error) error {
	if what := w.trouble.Load(); what != nil {
		return fmt.Errorf("%w; another server was refused: %s", err, *what)
	}
	return err
}

// skipsName returns a hash over the skips of this server, for its identity; "" if it has
// none.
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
