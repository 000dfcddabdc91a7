package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"
)

// beat sends a heartbeat of a term from one server to another.
func beat(t *testing.T, from, to *node, term uint64) raft.AppendEntriesResponse {
	t.Helper()
	tr := from.transport.Load()
	leader := tr.EncodePeer(raft.ServerID(from.cfg.ID), raft.ServerAddress(from.Address()))
	request := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.cfg.ID), Addr: leader},
		Term:      term,
	}
	var answer raft.AppendEntriesResponse
	if err := tr.NetworkTransport.AppendEntries(raft.ServerID(to.cfg.ID), raft.ServerAddress(to.Address()), request, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// A heartbeat moves no server into another term beside raft's main goroutine, which may
// be appending an entry: neither a leader nor a follower. The leader of the term is
// heard.
func TestHeartbeatChangesNoTerm(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2e9 }) // no other server is to be elected
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "a"))
	term := leader.raft.Load().CurrentTerm()
	for _, n := range nodes {
		until(t, n, "all are in the leader's term", func() bool { return n.raft.Load().CurrentTerm() == term })
		from := nodes[0]
		if n == from {
			from = nodes[1]
		}
		if answer := beat(t, from, n, term+7); answer.Success || answer.Term != term {
			t.Errorf("%s answers %+v to a heartbeat of a later term", n.cfg.ID, answer)
		}
		if got := n.raft.Load().CurrentTerm(); got != term {
			t.Errorf("a heartbeat moved %s from term %d to %d", n.cfg.ID, term, got)
		}
		if n != leader && !beat(t, leader, n, term).Success {
			t.Errorf("%s does not hear its leader", n.cfg.ID)
		}
	}
	if leader.raft.Load().State() != raft.Leader {
		t.Error("a heartbeat ended a leadership")
	}
	must(t, leader, tagChange(newID(), "b"))
}
