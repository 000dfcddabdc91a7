package varp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// CloseReason is why a connection ended, or was never served.
type CloseReason int

// Reasons, in the order of Stats.Closed. The first two are the ordinary ones.
const (
	ClosedByPeer      CloseReason = iota // FIN, or the whole of a last request and FIN
	ClosedShutdown                       // this server is stopping
	ClosedReset                          // RST, or another error of the socket
	ClosedBadCRC                         // ErrBadCRC
	ClosedTooBig                         // ErrTooBig
	ClosedBadOp                          // ErrBadOp
	ClosedBadBody                        // ErrBadBody
	ClosedSlowRequest                    // a request did not arrive whole within MessageTimeout
	ClosedSlowReader                     // answers were not taken within WriteTimeout
	ClosedIdle                           // idle for IdleTimeout, and its place was needed
	ClosedNoPlace                        // never served: MaxConns were open and none was idle
	ClosedNotAllowed                     // never served: address outside Config.Allow
	ClosedPeerLimit                      // never served: MaxConnsPerPeer of this peer were open and none was idle
	numReasons
)

var reasonNames = [numReasons]string{
	"peer", "shutdown", "reset", "bad_crc", "too_big", "bad_op", "bad_body",
	"slow_request", "slow_reader", "idle", "no_place", "not_allowed",
	"peer_limit",
}

// String returns the reason as one word for the label of a metric.
func (r CloseReason) String() string { return reasonNames[r] }

// reasonOf returns the reason of an error of a read or an answer.
func reasonOf(err error) CloseReason {
	switch {
	case errors.Is(err, io.EOF):
		return ClosedByPeer
	case errors.Is(err, ErrBadCRC):
		return ClosedBadCRC
	case errors.Is(err, ErrTooBig):
		return ClosedTooBig
	case errors.Is(err, ErrBadOp):
		return ClosedBadOp
	case errors.Is(err, ErrBadBody):
		return ClosedBadBody
	case errors.Is(err, errSlowReader):
		return ClosedSlowReader
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ClosedSlowRequest
	case errors.Is(err, net.ErrClosed):
		return ClosedShutdown
	}
	return ClosedReset
}

// counter is one of the numbers that a connection counts for itself and adds to the
// server's once for each batch: adding for each message makes every core wait for the
// same cache line.
type counter int

const (
	countPing counter = iota
	countVL2
	countVL2Miss
	countVL3
	countVL3Miss
	countLogReq
	countLogRecord
	countLogRM
	countWrite
	numCounters
)

type counters [numCounters]atomic.Uint64

// add moves what batch has counted into c.
func (c *counters) add(batch *[numCounters]uint64) {
	for i, n := range batch {
		if n > 0 {
			c[i].Add(n)
			batch[i] = 0
		}
	}
}

// Stats are a server's counts since it was made. Each is exact once its connections are
// quiet; they are not taken at one instant.
type Stats struct {
	Accepted uint64 // connections taken from a listener, including those never served
	Open     int    // connections being served now

	Pings      uint64
	VL2        uint64 // requests, including misses
	VL2Misses  uint64 // answered NOTFOUND
	VL3        uint64
	VL3Misses  uint64
	LogReqs    uint64
	LogRecords uint64 // records delivered, including repeats
	LogRMs     uint64
	Writes     uint64 // with pipelining, many answers share a write

	AcceptErrors uint64 // listener errors survived, as when no file descriptor was left

	Closed [numReasons]uint64 // ended connections by CloseReason

	Age   time.Duration // the highest age of answers, Config.Age
	Stale bool          // Age is more than Config.MaxAge
}
