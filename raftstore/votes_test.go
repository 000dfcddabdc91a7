package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"
)

// A vote is asked for also when the connections that are kept are of a process that
// has ended since.
func TestVotesOverLivingConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2e9 }) // no other server is to be elected
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "a"))
	from, to := others(nodes, leader)[0], others(nodes, leader)[1]
	tr := from.transport.Load()
	id, target := raft.ServerID(to.cfg.ID), raft.ServerAddress(to.Address())
	header := raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.cfg.ID),
		Addr: tr.EncodePeer(raft.ServerID(from.cfg.ID), raft.ServerAddress(from.Address())),
	}
	for _, ask := range []func() error{
		func() error {
			return tr.RequestVote(id, target, &raft.RequestVoteRequest{RPCHeader: header}, new(raft.RequestVoteResponse))
		},
		func() error {
			return tr.RequestPreVote(id, target, &raft.RequestPreVoteRequest{RPCHeader: header}, new(raft.RequestPreVoteResponse))
		},
	} {
		if err := ask(); err != nil { // its connection is kept
			t.Fatal(err)
		}
		to.tasks.HangUp()
		if err := ask(); err != nil {
			t.Errorf("after the connections broke: %v", err)
		}
	}
}
