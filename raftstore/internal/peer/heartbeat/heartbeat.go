// Package heartbeat keeps raft's term still while a heartbeat is handled.
//
// Raft 1.7.3 handles heartbeats in the goroutine of their connection, beside its
// main one, so that a follower whose disk is busy still hears its leader. But they
// change term and state there like any request: a leader that is to append reads
// the new term, of which another one is the leader, and writes an entry of its own
// at that term and an index at which the true leader has a different one. Raft
// then takes the two for the same (hashicorp/raft issue 695).
//
// So a heartbeat is handled there only if it changes neither: this server follows
// in the heartbeat's term. All others are refused. Nothing is lost by that: a leader
// also sends its entries and its commit index, at the latest with CommitTimeout or
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
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Terms is raft's stable store above another one: it holds back a new term while a
// heartbeat is handled. Raft must get no other stable store.
type Terms struct {
	raft.StableStore
	key []byte // of the term
	// mu is held while a heartbeat is handled, and while a new term is saved, which
	// raft does before it is in that term. So none begins meanwhile.
	mu sync.Mutex
	// saved is the last term that was saved, or read at a start.
	saved atomic.Uint64
}

// New returns Terms above a stable store, which has raft's term under key.
func New(below raft.StableStore, key []byte) *Terms {
	return &Terms{StableStore: below, key: key}
}

// save saves a term, unless it was saved before: raft may do that again while it
// handles a heartbeat.
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

// Handle hands a heartbeat to raft if it changes nothing, and else refuses it. r is nil
// as long as raft does not run.
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
