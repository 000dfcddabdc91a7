// Package votes requests votes over live connections.
//
// Upstream: hashicorp/raft 1.7.3 keeps connections to a peer for its next requests
// (NetworkTransport.getConn). After a restart of the peer these belong to a process that
// has ended. Raft takes the error for a refused vote, and waits for the next election,
// most of a second. We know of no issue of raft about it.
//
// Test that fails without it: raftstore.TestVotesOverLivingConnections.
//
// To be taken out when raft repeats a request over a new connection if the kept one is
// closed.
package votes

import (
	"errors"
	"io"
	"syscall"
)

// MaxPool is how many connections to a peer raft keeps for its next requests
// (raft.NetworkTransportConfig), and so how often Ask repeats a request.
const MaxPool = 3

// Ask sends a request for a vote, and repeats it if it used a kept connection whose other
// end is closed. Requesting a vote twice is safe.
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
