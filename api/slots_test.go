package api

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"rutter/api/auth/guard"
	"rutter/log/feed"
)

// limited is how often GET /metrics says that a limit was in the way.
func (b *bed) limited(limit string) float64 {
	b.T.Helper()
	for line := range strings.Lines(b.call("GET", "/metrics", "").Body.String()) {
		text, ok := strings.CutPrefix(line, "rutter_limited_total{limit=\""+limit+"\"} ")
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			b.T.Fatal(err)
		}
		return n
	}
	return 0 // of what was never counted there is no line
}

// piped is a listener of connections in memory.
type piped chan net.Conn

func (p piped) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p piped) Close() error   { close(p); return nil }
func (p piped) Addr() net.Addr { return &net.TCPAddr{} }

// A client that finds every place for a connection taken waits, and is counted once.
// A client that finds a place is not counted.
func TestAllConnectionsTakenIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		inner := make(piped)
		l := b.s.guard.Listener(inner, 2)
		accepted := make(chan net.Conn, 3)
		go func() {
			defer close(accepted)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- conn
			}
		}()
		expect := func(what string, conns int, limited float64) {
			t.Helper()
			synctest.Wait()
			if got := len(accepted); got != conns {
				t.Errorf("%s: %d connections are let in and not looked at, want %d", what, got, conns)
			}
			if got := b.limited(guard.LimitConnections); got != limited {
				t.Errorf("%s: %v are counted, want %v", what, got, limited)
			}
		}
		dial := func() {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { ours.Close() })
			inner <- theirs
		}
		dial()
		expect("one connection of two", 1, 0)
		dial()
		expect("the last place is taken, and somebody waits for the next", 2, 1)
		(<-accepted).Close()
		expect("a place is free", 1, 1)
		dial()
		expect("it is taken", 2, 2)
		l.Close() // no connection waits for a slot of a closed listener
		for conn := range accepted {
			conn.Close()
		}
	})
}

// A stream that finds every place taken is refused and counted, and takes none.
func TestAllStreamsTakenIsCounted(t *testing.T) {
	b := newBed(t)
	b.furnish()
	lines, binary := []string{"Accept", "application/x-ndjson"}, []string{"Accept", feed.LogMedia}
	for _, c := range []struct {
		streams int64
		header  []string
		want    int
		limited float64
	}{
		{guard.MaxStreams - 1, lines, http.StatusOK, 0},
		{guard.MaxStreams - 1, binary, http.StatusOK, 0},
		{guard.MaxStreams, lines, http.StatusServiceUnavailable, 1},
		{guard.MaxStreams, binary, http.StatusServiceUnavailable, 2},
	} {
		b.s.streams.Store(c.streams)
		if w := b.call("GET", "/log", "", c.header...); w.Code != c.want {
			t.Errorf("with %d streams: %s, want %d", c.streams, pretty(w), c.want)
		}
		if got := b.limited(guard.LimitStreams); got != c.limited {
			t.Errorf("with %d streams: %v are counted, want %v", c.streams, got, c.limited)
		}
		if got := b.s.streams.Load(); got != c.streams {
			t.Errorf("%d streams are left of %d", got, c.streams)
		}
	}
}
