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
func (s *Store) newPort(life context.Context) *peer.Port {
	server := peer.NewServer(s.tasks, s.logger, s.answer)
	return peer.NewPort(life, peer.PortOptions{
		Listener: s.listener, Dial: s.cfg.Network.Dial, Address: s.address, Tasks: s.tasks, Logger: s.logger,
		Cluster:  func() log.UUID { return s.Head().Cluster },
		Note:     s.skipping.skipNote,
		Admit:    s.skipping.sameSkips,
		Requests: func(conn net.Conn) { server.Serve(life, conn) },
		Image:    func(conn net.Conn) { s.serveImage(life, conn) },
	})
}

// newTransport returns raft's transport over the peer port.
func (s *Store) newTransport(port *peer.Port) *peer.Transport {
	return peer.NewTransport(peer.TransportOptions{
		Port: port, Log: s.raftLog, TermKey: raftlog.KeyCurrentTerm,
		Raft: s.raft.Load, Unfit: s.disks.stalled, Logger: s.logger,
	})
}

// leaderWatch returns what watches the leader's process from a follower.
func (s *Store) leaderWatch(r *run) *orphan.Watch {
	peers := s.peers.Load()
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
