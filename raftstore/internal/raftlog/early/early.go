// Package early lets a leader's own disk write an entry while the followers' disks do
// (Raft's thesis, section 10.2.1). Raft 1.7.3 first writes its own log, and sends the
// entry when that is on disk, so one writer waits for two disks in a row. Here StoreLogs
// of a leader returns at once, and the entry is read from memory until it is on disk. So
// raft counts this server too early among those that have the entry.
//
// Therefore a commit is not made visible before the entry is on this server's disk too:
// the FSM, and so every answer, waits for it (Log.Await), and no commit beyond it is sent
// to the followers (Log.Bound). So no client or server sees a commit that a quorum's
// disks do not have. "The leader's own disk" in raftstore/DESIGN.md has the whole
// argument.
//
// Only changes are stored early. Before any other entry (the entry that begins a term, a
// barrier, a configuration, or an entry that a follower gets) is stored or deleted, all
// early entries are on disk.
//
// Upstream: hashicorp/raft 1.7.3, dispatchLogs; issue 414 asks for it, and a comment in
// issue 578 says that the authors consider it. Figure: p50 of one writer 1.4 ms, and 2.0
// ms without (bench: make bench-store PART=append).
//
// Tests that fail without it: TestEarlyLog here; raftstore.TestNothingOutBeforeLeadersDisk
// and raftstore.TestPowerCutOfLeader fail without Await and without Bound.
//
// To be taken out when raft writes the leader's log at the same time as the replication,
// and shows no commit before its own disk has it. Await, Bound and Settle go with it. The
// admission of entries (Options.Admit) stays, and so does the rule of "owed".
//
// Another piece is in DeleteRange and owed. Upstream: in raft 1.7.3 a follower deletes
// entries that new ones replace, and then stores these. If that store is refused, it
// assumes that it still has the deleted ones (a comment in appendEntries says so; issue
// 163). Test: TestRefusedEntriesAreOwed. To be taken out when raft forgets its last index
// with the deletion.
package early

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/disk"
)

// Log is a raft.LogStore on top of another one. Any goroutine may call its methods,
// except that only raft's own goroutine may store and delete.
type Log struct {
	raft.LogStore // a write to it returns when the entries are on disk
	opts          Options
	// owed: entries were deleted to be replaced by those that are stored next, and raft
	// assumes that it has these. For raft's goroutine only.
	owed bool

	mu      sync.Mutex
	moved   sync.Cond   // on mu: a field below has changed
	waiting []*raft.Log // stored early and not yet on disk, in order
	writing bool        // a goroutine is writing the waiting entries
	err     error       // error of the first failed write; nothing is written after it
}

// Options are what a Log needs to know about the server. Leads, Changes and Report must
// be set.
type Options struct {
	// Leads reports whether raft leads. Raft's main goroutine, which stores, calls it.
	Leads func() bool
	// Changes reports whether a command is a batch of changes. Only batches may be early.
	Changes func(command []byte) bool
	// Report is called with the error of a write, before the callers that wait for the
	// write go on.
	Report func(error)
	// Admit returns why entries must not be stored now, or nil. The caller gets its error
	// as a Refusal. A nil Admit admits all.
	Admit func([]*raft.Log) error
	// Ops watches the operations under way; may be nil.
	Ops *disk.Ops
}

// Refusal is an error of Options.Admit, as StoreLogs and DeleteRange return it: nothing
// was written, and the disk is sound.
type Refusal struct{ error }

// Unwrap returns the error of Admit.
func (r Refusal) Unwrap() error { return r.error }

// maxEarly bounds the entries that are not yet on disk. The proposer has at most two
// batches under way.
const maxEarly = 64

// New returns a Log on top of below.
func New(below raft.LogStore, opts Options) *Log {
	e := &Log{LogStore: below, opts: opts}
	e.moved.L = &e.mu
	return e
}

// admit returns a Refusal if entries must not be stored now.
func (e *Log) admit(entries []*raft.Log) error {
	if e.opts.Admit == nil {
		return nil
	}
	if err := e.opts.Admit(entries); err != nil {
		return Refusal{err}
	}
	return nil
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
	most := 1 // no entry may wait
	if early {
		most = maxEarly
	}
	for e.err == nil && len(e.waiting) >= most {
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

// mayBeEarly reports whether entries are changes that this server appends as the leader.
// Raft stores another leader's entries only as a follower.
func (e *Log) mayBeEarly(entries []*raft.Log) bool {
	for _, entry := range entries {
		if entry.Type != raft.LogCommand || !e.opts.Changes(entry.Data) {
			return false
		}
	}
	return e.opts.Leads()
}

// storeLocked stores entries and returns when they are on disk. The caller holds mu,
// which is unlocked during the write.
func (e *Log) storeLocked(entries []*raft.Log) error {
	e.mu.Unlock()
	e.opts.Ops.Before("a write of raft's log", 1)
	op := e.opts.Ops.Begin("a write of raft's log", 1)
	err := e.LogStore.StoreLogs(entries)
	e.opts.Ops.End(op)
	e.mu.Lock()
	return err
}

// write writes all waiting entries at once, and repeats that until none waits.
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
			e.opts.Report(err) // before the waiting callers go on
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

// DeleteRange implements raft.LogStore. Entries are on disk before they are deleted.
// Entries at the end are deleted only if others may be stored in their place: if that
// store is refused, raft 1.7.3 assumes that it still has the deleted ones.
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
	e.opts.Ops.Before("a deletion in raft's log", disk.Slack)
	op := e.opts.Ops.Begin("a deletion in raft's log", disk.Slack)
	defer e.opts.Ops.End(op)
	return e.LogStore.DeleteRange(lo, hi)
}

// Await returns when the entries up to an index are on disk, or returns the error that
// prevents it.
func (e *Log) Await(index uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.err == nil && len(e.waiting) > 0 && e.waiting[0].Index <= index {
		e.moved.Wait()
	}
	return e.err
}

// Bound returns the part of a commit index that may be sent to others.
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
