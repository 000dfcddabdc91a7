package peer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/hashilog"
	"rutter/raftstore/internal/peer/heartbeat"
	"rutter/raftstore/internal/peer/pipelines"
	"rutter/raftstore/internal/peer/votes"
)

// exchangeTimeout bounds raft's own requests.
const exchangeTimeout = 5 * time.Second

// Transport is raft's transport over a Port, with the workarounds for raft 1.7.3 in
// packages heartbeat, pipelines and votes. Raft must use the stable store and the FSM
// that it returns.
type Transport struct {
	*raft.NetworkTransport
	opts      TransportOptions
	terms     *heartbeat.Terms
	pipelines pipelines.Set
	acks      acks
}

// TransportOptions are the options of a Transport. All must be set.
type TransportOptions struct {
	Port *Port
	Log  Log
	// TermKey is raft's key of its term in Log.
	TermKey []byte
	// Raft returns raft itself; nil before it runs.
	Raft func() *raft.Raft
	// Unfit returns why this server should not lead; nil if it may.
	Unfit  func() error
	Logger *slog.Logger
}

// Log is raft's stable store, and reports how much of raft's log is on this server's
// disk.
type Log interface {
	raft.StableStore
	// Await returns when the entries up to an index are on disk, or returns the error
	// that prevents it.
	Await(index uint64) error
	// Bound returns the part of a commit index that is on disk.
	Bound(commit uint64) uint64
}

// NewTransport returns a transport, which accepts the connections for raft from its port.
func NewTransport(opts TransportOptions) *Transport {
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: opts.Port, MaxPool: votes.MaxPool, Timeout: exchangeTimeout, Logger: hashilog.New(opts.Logger),
		}),
		opts:      opts,
		terms:     heartbeat.New(opts.Log, opts.TermKey),
		pipelines: pipelines.Set{Bound: opts.Log.Bound},
	}
}

// Stable returns the stable store for raft.
func (t *Transport) Stable() raft.StableStore { return t.terms }

// FSM returns the FSM for raft. It passes entries to the given FSM when they are on this
// server's disk, and sends their commit to the followers.
func (t *Transport) FSM(of raft.BatchingFSM) raft.BatchingFSM { return committingFSM{of, t} }

// Shutdown stops raft, and closes pipelines that delay its end.
func (t *Transport) Shutdown(r *raft.Raft) error { return t.pipelines.Shutdown(r) }

// committingFSM is an FSM that sends commits to the followers.
type committingFSM struct {
	raft.BatchingFSM
	t *Transport
}

// ApplyBatch implements raft.BatchingFSM.
func (f committingFSM) ApplyBatch(entries []*raft.Log) []any {
	n := len(entries)
	if n == 0 {
		return nil
	}
	if f.t.opts.Log.Await(entries[n-1].Index) == nil { // else the store has failed
		f.t.pipelines.Committed(entries[n-1].Index, entries[n-1].Term)
	}
	return f.BatchingFSM.ApplyBatch(entries)
}

// SetHeartbeatHandler implements raft.Transport.
func (t *Transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) { t.terms.Handle(rpc, t.opts.Raft(), handle) })
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return votes.Ask(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote. A server that should not lead asks no other
// server, and so its term does not rise.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.opts.Unfit(); err != nil {
		return fmt.Errorf("this server does not stand for election: %w", err)
	}
	return votes.Ask(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	args.LeaderCommitIndex = t.opts.Log.Bound(args.LeaderCommitIndex)
	begun := time.Now()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if err == nil && resp.Success && resp.Term == args.Term {
		t.acks.note(id, args.Term, begun)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return t.pipelines.Open(inner), nil
}
