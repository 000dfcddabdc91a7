package guard

import (
	"net/http"
	"sync/atomic"

	"rutter/api/internal/rest"
)

// MaxStreams bounds the feeds, write streams and followed logs of a server at once.
const MaxStreams = 12288

// Streams counts the streams of a server.
type Streams struct {
	atomic.Int64
	guard *Guard
}

// NewStreams returns a count of no streams.
func (g *Guard) NewStreams() *Streams { return &Streams{guard: g} }

// Enter counts a stream, or refuses it at MaxStreams. done must be called when it ends.
func (s *Streams) Enter() (done func(), err error) {
	if s.Add(1) > MaxStreams {
		s.Add(-1)
		s.guard.CountLimit(LimitStreams)
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try another server", "this server serves %d streams already", MaxStreams)
	}
	return func() { s.Add(-1) }, nil
}
