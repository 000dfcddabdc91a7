// Package votes asks for votes over connections that live.
//
// Upstream: hashicorp/raft 1.7.3 keeps connections to a peer for its next requests
// (NetworkTransport.getConn). After a restart there they are of a process that has
// ended, and raft takes the error for a vote that was refused, and waits for the next
// election, most of a second. No issue of raft's is known to us.
//
// Test that fails without it: raftstore.TestVotesOverLivingConnections.
//
// To be taken out when raft repeats a request over a new connection if the kept one
// turns out to be closed.
package votes

import (
	"errors"
	"io"
	"syscall"
)

// MaxPool is how many connections to a peer raft keeps for its next requests
// (raft.NetworkTransportConfig), and so how often Ask repeats.
const MaxPool = 3

// Ask sends a request for a vote, and repeats it if it went over a kept connection whose
// other end is gone. A vote may be asked for twice.
func Ask(request func() error) error {
	err := request()
	for range MaxPool {
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			break
		}
		err = request()
	}
	return err
}
