package varp

import (
	"errors"
	"sync/atomic"
	"testing"
)

// A server that must not serve answers nothing on open connections, and takes
// no new ones, until it may again.
func TestServing(t *testing.T) {
	var diverged atomic.Bool
	s, addr := startServer(t, Config{Lookup: vectorFixture(), Serving: func() error {
		if diverged.Load() {
			return errors.New("diverged")
		}
		return nil
	}})
	open := dialTCP(t, addr)
	write(t, open, appendLookup(nil, 1))
	readMessage(t, open)
	diverged.Store(true)
	write(t, open, appendLookup(nil, 1))
	if b := readAll(t, open); len(b) > 0 {
		t.Errorf("%d bytes were sent by a server that must not", len(b))
	}
	if b := readAll(t, dialTCP(t, addr)); len(b) > 0 {
		t.Errorf("%d bytes were sent on a new connection", len(b))
	}
	eventually(t, "that none is open", func() bool { return s.Stats().Open == 0 })
	diverged.Store(false)
	again := dialTCP(t, addr)
	write(t, again, appendLookup(nil, 1))
	readMessage(t, again)
}
