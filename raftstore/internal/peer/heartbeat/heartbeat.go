// Package heartbeat keeps raft's term still while a heartbeat is handled.
//
// Raft 1.7.3 handles heartbeats in the goroutine of their connection, beside its main
// goroutine, so that a follower with a busy disk does not lose its leader. But there they
// change term and state like any request. An old leader that appends at that moment reads
// the new term, of which another server is the leader, and writes an entry of its own
// with that term, at an index where the true leader has a different entry. Raft then
// takes the two entries for the same (hashicorp/raft issue 695).
//
// So a heartbeat is handled there only if it changes neither: this server is a follower
// in the heartbeat's term. All other heartbeats are refused. That does no harm: a leader
// also sends its entries and its commit index, at the latest after CommitTimeout or
// pipelines.Quiet, and these requests go through raft's main goroutine.
//
// Upstream: hashicorp/raft issue 695, and pull request 701, both open in November 2026.
//
// Tests that fail without it: raftstore.TestHeartbeatChangesNoTerm, TestTermWaitsForHeartbeat.
//
// To be taken out when raft handles a heartbeat that changes term or state in its main
// goroutine.
package heartbeat

import (
	"bytes"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/notify"
)

// Terms is raft's stable store on top of another one. It delays the saving of a new term
// while a heartbeat is handled. Raft must use no other stable store.
type Terms struct {
	raft.StableStore
	key []byte // key of the term
	// mu is held while a heartbeat is handled, and while a new term is saved. Raft saves
	// a term before it enters it, so no new term begins while a heartbeat is handled.
	mu notify.Turn
	// saved is the last term that was saved, or read at a start.
	saved atomic.Uint64
}

// New returns Terms on top of a stable store, which has raft's term under key.
func New(below raft.StableStore, key []byte) *Terms {
	return &Terms{StableStore: below, key: key, mu: notify.NewTurn()}
}

// save saves a term, unless it is already saved: raft may save the same term again while
// it handles a heartbeat.
func (t *Terms) save(term uint64, set func() error) error {
	if t.saved.Load() == term {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := set(); err != nil {
		return err
	}
	t.saved.Store(term)
	return nil
}

// SetUint64 implements raft.StableStore.
func (t *Terms) SetUint64(key []byte, value uint64) error {
	set := func() error { return t.StableStore.SetUint64(key, value) }
	if bytes.Equal(key, t.key) {
		return t.save(value, set)
	}
	return set()
}

// GetUint64 implements raft.StableStore.
func (t *Terms) GetUint64(key []byte) (uint64, error) {
	value, err := t.StableStore.GetUint64(key)
	if err == nil && bytes.Equal(key, t.key) {
		t.saved.Store(value)
	}
	return value, err
}

// Handle passes a heartbeat to raft if it changes neither term nor state, and else
// refuses it. r is nil before raft runs.
func (t *Terms) Handle(rpc raft.RPC, r *raft.Raft, handle func(raft.RPC)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	refused := &raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if r == nil {
		rpc.Respond(refused, nil)
		return
	}
	request, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if ok && request.Term == r.CurrentTerm() && r.State() == raft.Follower {
		handle(rpc)
		return
	}
	refused.Term = r.CurrentTerm()
	rpc.Respond(refused, nil)
}
