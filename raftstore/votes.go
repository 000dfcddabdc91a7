package raftstore

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/hashicorp/raft"
)

// maxPool is how many connections to a peer raft keeps for its next requests.
const maxPool = 3

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return overLiving(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote. A server that should not lead gets no
// votes, and so no higher term.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.unfit != nil {
		if err := t.unfit(); err != nil {
			return fmt.Errorf("this server does not stand for election: %w", err)
		}
	}
	return overLiving(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// overLiving repeats a request that went over a kept connection whose other end is
// gone, as after a restart there. Raft 1.7.3 takes it for a vote that was refused, and
// waits for the next election, most of a second. A vote may be asked for twice.
func overLiving(request func() error) error {
	err := request()
	for range maxPool {
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			break
		}
		err = request()
	}
	return err
}
