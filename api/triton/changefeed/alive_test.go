package changefeed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a net.Listener whose connections are pipes, which know the time of
// a synctest.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// With the times that servers have: who sends heartbeats as sdc-changefeed's
// listener does stays, whether it answers pings or not, and who is half open is
// dropped within the time that Config names.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Store: newMemory()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		listener := make(pipes)
		server := &http.Server{Handler: s.Handler()}
		go func() { ended <- s.Run(ctx) }()
		go func() { ended <- server.Serve(listener) }()
		synctest.Wait()
		join := func(instance string) *wire {
			client, conn := net.Pipe()
			listener <- conn
			w := &wire{t, client, bufio.NewReader(client)}
			fmt.Fprintf(client, "GET /changefeeds HTTP/1.1\r\nHost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\naccept-version: ~2\r\n\r\n", wireKey)
			if _, err := http.ReadResponse(w.in, nil); err != nil {
				t.Fatal(err)
			}
			w.send(opText, []byte(strings.Replace(nicAndTags, "i1", instance, 1)))
			if _, _, err := w.frame(); err != nil {
				t.Fatal(err)
			}
			return w
		}
		live := func(w *wire, pongs, beats bool) {
			frames := make(chan []byte)
			go func() {
				defer close(frames)
				for {
					opcode, payload, err := w.frame()
					if err != nil {
						return
					}
					if opcode == opPing && pongs {
						frames <- payload
					}
				}
			}()
			go func() {
				beat := time.NewTicker(27817 * time.Millisecond)
				defer beat.Stop()
				for {
					select {
					case payload, ok := <-frames:
						if !ok {
							return
						}
						w.send(opPong, payload)
					case <-beat.C:
						if beats {
							w.send(opText, []byte("heartbeat"))
						}
					}
				}
			}()
		}
		joined := []*wire{join("both"), join("beats"), join("pongs"), join("neither")}
		live(joined[0], true, true)
		live(joined[1], false, true)
		live(joined[2], true, false)
		live(joined[3], false, false)
		time.Sleep(s.cfg.PingEvery + s.cfg.PongTime - time.Second)
		synctest.Wait()
		if n := len(s.hub.registered()); n != 4 {
			t.Errorf("%d listeners before the time is over, want 4", n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var left []string
		for _, l := range s.hub.registered() {
			left = append(left, l.reg.Instance)
		}
		if len(left) != 3 || strings.Contains(fmt.Sprint(left), "neither") {
			t.Errorf("after ten minutes there are %v, want all but the one that is half open", left)
		}
		for _, w := range joined {
			w.conn.Close()
		}
		cancel()
		close(listener)
		server.Close()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("ended with %v", err)
			}
		}
	})
}
