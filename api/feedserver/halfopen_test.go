package feedserver

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/internal/apitest"
	"rutter/log/feed"
)

// A peer that is frozen, that is neither sends nor takes anything, while the
// connection itself never ends, is given up within silenceTime, also when the
// server is in the middle of a write to it; nothing of it is left.
func TestFeedFrozenSubscriber(t *testing.T) {
	for name, test := range map[string]struct {
		thaws  func(conn net.Conn) // what it does before it freezes
		within time.Duration
		writes int // changes afterwards, so that there is something to write to it
	}{
		"from the start":       {func(net.Conn) {}, helloTime, 0},
		"before the hello":     {func(conn net.Conn) { readSome(t, conn) }, helloTime, 3},
		"in the first frames":  {func(conn net.Conn) { readSome(t, conn); sayHello(t, conn) }, silenceTime, 3},
		"after the first ones": {func(conn net.Conn) { readSome(t, conn); sayHello(t, conn); readSome(t, conn) }, silenceTime, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.Furnish()
				near, far := net.Pipe() // without buffers: each write waits for a read
				ended := make(chan error, 1)
				begin := time.Now()
				go func() { ended <- b.serve(far); far.Close() }()
				test.thaws(near)
				for i := range test.writes {
					time.Sleep(time.Second)
					b.Must("PUT", "/nic_tags/external", `{"mtu":`+[]string{"1600", "1700", "1800"}[i]+`}`)
				}
				err := <-ended
				if took := time.Since(begin); err == nil || took > test.within {
					t.Errorf("given up after %v with %v, want an error within %v", took, err, test.within)
				}
				if n := b.feed.SessionCount(); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
				near.Close()
			})
		})
	}
}

func readSome(t *testing.T, conn net.Conn) {
	if _, err := conn.Read(make([]byte, 64<<10)); err != nil {
		t.Error(err)
	}
}

func sayHello(t *testing.T, conn net.Conn) {
	hello, err := feed.Append(nil, &feed.Hello{CN: apitest.CN1, Incarnation: 1, Session: 1})
	if err == nil {
		_, err = conn.Write(hello)
	}
	if err != nil {
		t.Error(err)
	}
}
