package raftstore

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/disk"
)

// earlyLog lets a leader's own disk write an entry while the followers' do (Raft's
// thesis, section 10.2.1). Raft 1.7.3 writes its own log first and sends the entry
// when that is on disk, so that one writer waits for two disks in a row. Here
// StoreLogs of a leader returns at once, the entry is read from memory until it is
// on disk, and raft counts this server among those that have it, too early.
//
// So what raft takes for committed is not let out before the entry is on this
// server's disk too: the FSM waits for it (await), and thereby every answer, and the
// followers are told of no commit beyond it (bound). Nobody has then seen a
// commit that a quorum's disks do not hold. DESIGN.md has the whole argument.
//
// Only changes go this way. Before anything else of the log, as the entry that
// begins a term, a barrier, a configuration, or what a follower is sent, is stored
// or deleted, all that was early is on disk.
type earlyLog struct {
	raft.LogStore // a write to it returns when it is on disk
	// leads says whether raft leads; it is asked by raft's main goroutine, which
	// is the one that stores. report is told of an error of a write that nobody
	// waits for.
	leads  func() bool
	report func(error)
	ops    *disk.Ops // notes what is under way; may be nil
	// admit says why entries are not stored now; nil, or if it returns nil, they are.
	admit func([]*raft.Log) error
	// owed: newer entries were deleted for those that are stored next, which raft
	// believes to have already. Raft's goroutine only.
	owed bool

	mu      sync.Mutex
	moved   sync.Cond   // on mu: something below has changed
	waiting []*raft.Log // stored early and not yet on disk, in order
	writing bool        // a goroutine writes what waits
	err     error       // of the first write that failed: nothing is written after it
}

// maxEarly bounds the entries that are not yet on disk. The proposer has two
// batches under way at most.
const maxEarly = 64

func newEarlyLog(below raft.LogStore, leads func() bool, report func(error)) *earlyLog {
	e := &earlyLog{LogStore: below, leads: leads, report: report}
	e.moved.L = &e.mu
	return e
}

// IsMonotonic implements raft.MonotonicLogStore.
func (e *earlyLog) IsMonotonic() bool {
	m, ok := e.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// StoreLogs implements raft.LogStore.
func (e *earlyLog) StoreLogs(entries []*raft.Log) error {
	if e.admit != nil && !e.owed {
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
func (e *earlyLog) StoreLog(entry *raft.Log) error { return e.StoreLogs([]*raft.Log{entry}) }

// mayBeEarly reports whether entries are changes that this server, as the leader,
// appends. Raft stores what another leader sends as a follower only.
func (e *earlyLog) mayBeEarly(entries []*raft.Log) bool {
	for _, entry := range entries {
		if entry.Type != raft.LogCommand || len(entry.Data) == 0 || entry.Data[0] != commandBatch {
			return false
		}
	}
	return e.leads()
}

// storeLocked stores entries and returns when they are on disk. The caller holds
// mu, which is free meanwhile.
func (e *earlyLog) storeLocked(entries []*raft.Log) error {
	e.mu.Unlock()
	op := e.ops.Begin("a write of raft's log", 1)
	err := e.LogStore.StoreLogs(entries)
	e.ops.End(op)
	e.mu.Lock()
	return err
}

// write writes what waits, all of it at once, until nothing does.
func (e *earlyLog) write() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.waiting) > 0 && e.err == nil {
		n := len(e.waiting)
		err := e.storeLocked(e.waiting[:n:n])
		if err == nil {
			e.waiting = slices.Clone(e.waiting[n:])
		} else {
			e.err = err
			e.report(err) // before those who wait go on
		}
		e.moved.Broadcast()
	}
	e.writing = false
	e.moved.Broadcast()
}

// GetLog implements raft.LogStore.
func (e *earlyLog) GetLog(index uint64, entry *raft.Log) error {
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
func (e *earlyLog) LastIndex() (uint64, error) {
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
func (e *earlyLog) DeleteRange(lo, hi uint64) error {
	if last, err := e.LastIndex(); err == nil && hi >= last && e.admit != nil {
		if err := e.admit([]*raft.Log{{Type: raft.LogCommand}}); err != nil {
			return err
		}
		e.owed = true
	}
	if err := e.await(hi); err != nil {
		return err
	}
	op := e.ops.Begin("a deletion in raft's log", disk.Slack)
	defer e.ops.End(op)
	return e.LogStore.DeleteRange(lo, hi)
}

// await returns when the entries up to an index are on disk, or the error for
// which they cannot get there.
func (e *earlyLog) await(index uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.err == nil && len(e.waiting) > 0 && e.waiting[0].Index <= index {
		e.moved.Wait()
	}
	return e.err
}

// bound returns the part of a commit index that others may be told of.
func (e *earlyLog) bound(commit uint64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		return commit
	}
	return min(commit, e.waiting[0].Index-1)
}

// settle returns when nothing is being written.
func (e *earlyLog) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.writing {
		e.moved.Wait()
	}
}
