package varp

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipeConn runs a connection of a server with default limits over a pipe,
// whose deadlines follow the bubble's clock.
func pipeConn(t *testing.T) (theirs net.Conn, ended <-chan error) {
	t.Helper()
	s, err := NewServer(Config{Lookup: vectorFixture()})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	done := make(chan error, 1)
	go func() {
		err := newConn(s, nil, ours).run()
		_ = ours.Close()
		done <- err
	}()
	return theirs, done
}

// TestQuietConnection: hours without a request end nothing, and the deadline of
// an answer long since taken does not meet the next one.
func TestQuietConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ended := pipeConn(t)
		for i, pause := range []time.Duration{0, time.Second, 4 * time.Second, 6 * time.Second, 11 * time.Second, 5 * time.Hour} {
			time.Sleep(pause)
			write(t, theirs, appendLookup(nil, i))
			checkLookup(t, i, readMessage(t, theirs))
		}
		_ = theirs.Close()
		<-ended
	})
}

// TestSlowRequestTime: MessageTimeout counts from the first byte of a request,
// whatever else comes, and anew for each.
func TestSlowRequestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ended := pipeConn(t)
		for i := range 4 { // each takes 9 s, of the 10 s that are allowed
			request := appendLookup(nil, 1+4*i)
			write(t, theirs, request[:1])
			time.Sleep(9 * time.Second)
			write(t, theirs, request[1:])
			checkLookup(t, 1+4*i, readMessage(t, theirs))
		}
		began := time.Now()
		for _, b := range appendLookup(nil, 1) {
			if _, err := theirs.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if err := <-ended; reasonOf(err) != ClosedSlowRequest {
			t.Errorf("ended with %v, want a slow request", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("cut off after %s, want 10 s", took)
		}
	})
}

// TestSlowReaderTime: a peer that takes no answers is cut off within
// WriteTimeout, also when an earlier answer was taken a moment before.
func TestSlowReaderTime(t *testing.T) {
	for _, pause := range []time.Duration{0, 3 * time.Second, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			theirs, ended := pipeConn(t)
			write(t, theirs, appendLookup(nil, 1))
			checkLookup(t, 1, readMessage(t, theirs))
			time.Sleep(pause)
			began := time.Now()
			write(t, theirs, appendLookup(nil, 2))
			if err := <-ended; !errors.Is(err, errSlowReader) {
				t.Errorf("ended with %v, want a slow reader", err)
			}
			if took := time.Since(began); took < 5*time.Second || took > 10*time.Second {
				t.Errorf("cut off after %s, want from 5 to 10 s", took)
			}
		})
	}
}
