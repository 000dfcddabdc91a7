package raftstore

import (
	"context"
	"errors"
	"net"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/peer"
	"rutter/raftstore/internal/peer/orphan"
	"rutter/raftstore/internal/raftlog"
)

// newPort returns the peer port of a run, and what it does with connections.
func (e *endpoint) newPort(life context.Context) *peer.Port {
	server := peer.NewServer(e.store.tasks, e.store.logger, e.answer)
	return peer.NewPort(life, peer.PortOptions{
		Listener: e.listener, Dial: e.store.cfg.Network.Dial, Address: e.store.address, Tasks: e.store.tasks, Logger: e.store.logger,
		Cluster:  func() log.UUID { return e.store.Head().Cluster },
		Note:     e.store.skipping.skipNote,
		Admit:    e.store.skipping.sameSkips,
		Requests: func(conn net.Conn) { server.Serve(life, conn) },
		Image:    func(conn net.Conn) { e.store.rebuilder.serveImage(life, conn) },
	})
}

// newTransport returns raft's transport over the peer port.
func (e *endpoint) newTransport(port *peer.Port) *peer.Transport {
	return peer.NewTransport(peer.TransportOptions{
		Port: port, Log: e.store.raftLog, TermKey: raftlog.KeyCurrentTerm,
		Raft: e.store.raft.Load, Unfit: e.store.disks.stalled, Logger: e.store.logger,
	})
}

// leaderWatch returns what watches the leader's process from a follower.
func (s *Store) leaderWatch(r *run) *orphan.Watch {
	peers := s.endpoint.peers.Load()
	return &orphan.Watch{
		ID: s.cfg.ID, Address: s.address, Wait: s.cfg.Heartbeat, Raft: r.raft, Logger: s.logger,
		Connected: peers.Connected, Dial: peers.Dial,
		Moved: s.lead.leaderMoved, Pause: s.pause,
		Stopping: func() bool { return s.stopCause() != nil },
		Unfit:    func() error { return errors.Join(s.Serving(), s.disks.stalled()) },
		Stand: func() error {
			return r.transport.TimeoutNow(raft.ServerID(s.cfg.ID), raft.ServerAddress(s.address), s.lead.stand(r.transport), new(raft.TimeoutNowResponse))
		},
	}
}
