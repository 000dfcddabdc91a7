// Package early lets a leader's own disk write an entry while the followers' do (Raft's
// thesis, section 10.2.1). Raft 1.7.3 writes its own log first and sends the entry
// when that is on disk, so that one writer waits for two disks in a row. Here
// StoreLogs of a leader returns at once, the entry is read from memory until it is
// on disk, and raft counts this server among those that have it, too early.
//
// So what raft takes for committed is not let out before the entry is on this
// server's disk too: the FSM waits for it (Log.Await), and thereby every answer, and the
// followers are told of no commit beyond it (Log.Bound). Nobody has then seen a
// commit that a quorum's disks do not hold. "The leader's own disk" in
// raftstore/DESIGN.md has the whole argument.
//
// Only changes go this way. Before anything else of the log, as the entry that
// begins a term, a barrier, a configuration, or what a follower is sent, is stored
// or deleted, all that was early is on disk.
//
// Upstream: hashicorp/raft 1.7.3, dispatchLogs; issue 414 asks for it, and a comment in
// issue 578 says that it is considered. Figure: p50 of one writer 1.4 ms, and 2.0 ms without (bench: make
// bench-store PART=append).
//
// Tests that fail without it: TestEarlyLog here; raftstore.TestNothingOutBeforeLeadersDisk
// and raftstore.TestPowerCutOfLeader fail without Await and without Bound.
//
// To be taken out when raft writes the leader's log beside the replication and lets
// nothing out before its own disk has it. Then Await, Bound and Settle go with it; what
// admits entries (Options.Admit) stays, and so does the rule of "owed".
//
// Another piece stands in DeleteRange and owed. Upstream: in raft 1.7.3 a follower whose
// store is refused, after it deleted what the entries replace, believes to have the
// deleted ones (a comment in appendEntries says so; issue 163). Test:
// TestRefusedEntriesAreOwed. To be taken out when raft forgets its last index with the
// deletion.
package early

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/disk"
)

// Log is a raft.LogStore above another one. Its methods may be called from any
// goroutine, except that those that store and delete are for raft's own.
type Log struct {
	raft.LogStore // a write to it returns when it is on disk
	opts          Options
	// owed: newer entries were deleted for those that are stored next, which raft
	// believes to have already. Raft's goroutine only.
	owed bool

	mu      sync.Mutex
	moved   sync.Cond   // on mu: something below has changed
	waiting []*raft.Log // stored early and not yet on disk, in order
	writing bool        // a goroutine writes what waits
	err     error       // of the first write that failed: nothing is written after it
}

// Options are what a Log needs to know of the server. Leads, Changes and Report must
// be there.
type Options struct {
	// Leads reports whether raft leads; it is asked by raft's main goroutine, which
	// is the one that stores.
	Leads func() bool
	// Changes reports whether a command is a batch of changes, which alone may be early.
	Changes func(command []byte) bool
	// Report is told of an error of a write, before those who wait for it go on.
	Report func(error)
	// Admit says why entries are not stored now; nil, or if it returns nil, they are.
	// What it returns is a Refusal for the caller.
	Admit func([]*raft.Log) error
	// Ops notes what is under way; may be nil.
	Ops *disk.Ops
}

// Refusal is an error of Options.Admit, as StoreLogs and DeleteRange return it: nothing
// was written, and the disk is well.
type Refusal struct{ error }

// Unwrap returns what Admit said.
func (r Refusal) Unwrap() error { return r.error }

// maxEarly bounds the entries that are not yet on disk. The proposer has two
// batches under way at most.
const maxEarly = 64

// New returns a Log above below.
func New(below raft.LogStore, opts Options) *Log {
	e := &Log{LogStore: below, opts: opts}
	e.moved.L = &e.mu
	return e
}

// admit asks whether entries are stored now.
func (e *Log) admit(entries []*raft.Log) error {
	if e.opts.Admit == nil {
		return nil
	}
	if err := e.opts.Admit(entries); err != nil {
		return Refusal{err}
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore.
func (e *Log) IsMonotonic() bool {
	m, ok := e.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// StoreLogs implements raft.LogStore.
func (e *Log) StoreLogs(entries []*raft.Log) error {
	if !e.owed {
		if err := e.admit(entries); err != nil {
			return err
		}
	}
	e.owed = false
	early := e.mayBeEarly(entries)
	e.mu.Lock()
	defer e.mu.Unlock()
	room := 1 // none may wait
	if early {
		room = maxEarly
	}
	for e.err == nil && len(e.waiting) >= room {
		e.moved.Wait()
	}
	if e.err != nil || len(entries) == 0 {
		return e.err
	}
	if !early {
		return e.storeLocked(entries)
	}
	e.waiting = append(e.waiting, entries...)
	if !e.writing {
		e.writing = true
		go e.write()
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (e *Log) StoreLog(entry *raft.Log) error { return e.StoreLogs([]*raft.Log{entry}) }

// mayBeEarly reports whether entries are changes that this server, as the leader,
// appends. Raft stores what another leader sends as a follower only.
func (e *Log) mayBeEarly(entries []*raft.Log) bool {
	for _, entry := range entries {
		if entry.Type != raft.LogCommand || !e.opts.Changes(entry.Data) {
			return false
		}
	}
	return e.opts.Leads()
}

// storeLocked stores entries and returns when they are on disk. The caller holds
// mu, which is free meanwhile.
func (e *Log) storeLocked(entries []*raft.Log) error {
	e.mu.Unlock()
	op := e.opts.Ops.Begin("a write of raft's log", 1)
	err := e.LogStore.StoreLogs(entries)
	e.opts.Ops.End(op)
	e.mu.Lock()
	return err
}

// write writes what waits, all of it at once, until nothing does.
func (e *Log) write() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.waiting) > 0 && e.err == nil {
		n := len(e.waiting)
		err := e.storeLocked(e.waiting[:n:n])
		if err == nil {
			e.waiting = slices.Clone(e.waiting[n:])
		} else {
			e.err = err
			e.opts.Report(err) // before those who wait go on
		}
		e.moved.Broadcast()
	}
	e.writing = false
	e.moved.Broadcast()
}

// GetLog implements raft.LogStore.
func (e *Log) GetLog(index uint64, entry *raft.Log) error {
	e.mu.Lock()
	if n := len(e.waiting); n > 0 && index >= e.waiting[0].Index && index <= e.waiting[n-1].Index {
		*entry = *e.waiting[index-e.waiting[0].Index]
		e.mu.Unlock()
		return nil
	}
	e.mu.Unlock()
	return e.LogStore.GetLog(index, entry)
}

// LastIndex implements raft.LogStore.
func (e *Log) LastIndex() (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.waiting); n > 0 {
		return e.waiting[n-1].Index, nil
	}
	return e.LogStore.LastIndex()
}

// DeleteRange implements raft.LogStore. What is deleted is on disk before. Entries
// at the end go only if others can be stored in their place: raft 1.7.3 takes what
// it deleted for what it has, if the store of the others is refused.
func (e *Log) DeleteRange(lo, hi uint64) error {
	if last, err := e.LastIndex(); err == nil && hi >= last && e.opts.Admit != nil {
		if err := e.admit([]*raft.Log{{Type: raft.LogCommand}}); err != nil {
			return err
		}
		e.owed = true
	}
	if err := e.Await(hi); err != nil {
		return err
	}
	op := e.opts.Ops.Begin("a deletion in raft's log", disk.Slack)
	defer e.opts.Ops.End(op)
	return e.LogStore.DeleteRange(lo, hi)
}

// Await returns when the entries up to an index are on disk, or the error for
// which they cannot get there.
func (e *Log) Await(index uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.err == nil && len(e.waiting) > 0 && e.waiting[0].Index <= index {
		e.moved.Wait()
	}
	return e.err
}

// Bound returns the part of a commit index that others may be told of.
func (e *Log) Bound(commit uint64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		return commit
	}
	return min(commit, e.waiting[0].Index-1)
}

// Settle returns when nothing is being written.
func (e *Log) Settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.writing {
		e.moved.Wait()
	}
}
