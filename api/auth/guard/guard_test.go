package guard

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/internal/slots"
	"rutter/api/auth/matrix"
	"rutter/log"
)

// named is a listener whose connections say who is there, as those with TLS do.
type named struct {
	net.Listener
	who matrix.Identity
}

type namedConn struct {
	net.Conn
	who matrix.Identity
}

func (c namedConn) Identity() matrix.Identity { return c.who }

func (l named) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return namedConn{conn, l.who}, nil
}

func TestConnectionsOfOneIdentityAreBounded(t *testing.T) {
	who := matrix.Identity{Role: matrix.CN, UUID: log.UUID{1}, Serial: "7"}
	for name, limits := range map[string]Limits{
		"identity": {PerIdentity: map[matrix.Role]int{matrix.CN: 2}},
		"address":  {PerAddress: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var lines bytes.Buffer
			s := New(Config{Limits: limits, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := s.Listener(named{inner, who}, 10)
			defer l.Close()
			taken := make(chan net.Conn)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						close(taken)
						return
					}
					taken <- conn
				}
			}()
			dial := func() net.Conn {
				conn, err := net.Dial("tcp", inner.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				return conn
			}
			dial()
			first := <-taken
			dial()
			second := <-taken
			third := dial()
			if _, err := third.Read(make([]byte, 1)); err == nil {
				t.Error("a third connection was let in")
			}
			if _, err := dial().Read(make([]byte, 1)); err == nil {
				t.Error("a fourth connection was let in")
			}
			first.Close()
			first.Close() // counts once
			dial()
			if conn := <-taken; conn == nil {
				t.Error("no connection took the place of one that ended")
			}
			if n := s.CutOff(func(id matrix.Identity) bool { return id.Serial == "7" }); n != 2 {
				t.Errorf("%d connections cut off, want 2", n)
			}
			if _, err := second.Read(make([]byte, 1)); err == nil {
				t.Error("a connection that was cut off lives")
			}
			l.Close()
			for range taken { // Accept has ended then
			}
			if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "from=127.0.0.1") ||
				!strings.Contains(text, "limit=per_"+name+" most=2") || !strings.Contains(text, " do=") {
				t.Errorf("two connections over the limit within a minute; the log has %q, want one line", text)
			}
		})
	}
}

// awayConn is a connection of another machine without TLS.
type awayConn struct {
	net.Conn
	from net.Addr
}

// RemoteAddr implements net.Conn.
func (c awayConn) RemoteAddr() net.Addr { return c.from }

// Without TLS (--insecure) one machine does not take the connections of all; programs of
// the server's own machine are not bounded by their address.
func TestConnectionsWithoutTLSAreBounded(t *testing.T) {
	s := New(Config{Limits: Limits{PerAddress: 2}})
	at := func(ip string) *limitedConn {
		own, other := net.Pipe()
		t.Cleanup(func() { own.Close(); other.Close() })
		conn := awayConn{own, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		return &limitedConn{Conn: conn, who: whoIs(conn), l: &limited{Listener: slots.New(nil, 99), connections: s.connections}}
	}
	first := at("10.0.0.1")
	for i, c := range []struct {
		conn *limitedConn
		want bool
	}{{first, true}, {at("10.0.0.1"), true}, {at("::ffff:10.0.0.1"), false}, {at("10.0.0.2"), true}, {at("127.0.0.1"), true}, {at("127.0.0.1"), true}, {at("127.0.0.1"), true}, {at("::1"), true}} {
		if got := s.connections.admit(c.conn); got != c.want {
			t.Errorf("connection %d of %s: admitted %v, want %v", i, c.conn.RemoteAddr(), got, c.want)
		}
	}
	s.connections.left(first)
	if !s.connections.admit(at("10.0.0.1")) {
		t.Error("no connection took the place of one that ended")
	}
}

func TestSharesOfRequests(t *testing.T) {
	now := time.Unix(1, 0)
	s := newRequestLimits(Limits{Requests: 40, Rate: map[matrix.Role]int{matrix.CN: 2}})
	s.now = func() time.Time { return now }
	mad, meek := matrix.Identity{Role: matrix.Operator, Name: "mad"}, matrix.Identity{Role: matrix.Operator, Name: "meek"}
	var held []func()
	for {
		leave, limit := s.enter(mad, false)
		if limit != "" {
			break
		}
		held = append(held, leave)
	}
	if len(held) > 20 {
		t.Errorf("one identity holds %d of 40 places", len(held))
	}
	for range minShare {
		leave, limit := s.enter(meek, false)
		if limit != "" {
			t.Fatalf("another identity is refused: %s", limit)
		}
		held = append(held, leave)
	}
	for _, leave := range held {
		leave()
	}
	if s.taken != 0 || s.busy != 0 {
		t.Errorf("%d requests of %d identities are left", s.taken, s.busy)
	}
	cn := matrix.Identity{Role: matrix.CN, UUID: log.UUID{1}}
	granted := 0
	for range 100 {
		if leave, limit := s.enter(cn, true); limit == "" {
			leave()
			granted++
		}
	}
	if granted != 2*RateBurst {
		t.Errorf("%d requests at once, want %d", granted, 2*RateBurst)
	}
	now = now.Add(time.Second)
	for range 2 {
		if _, limit := s.enter(cn, true); limit != "" {
			t.Errorf("a second later: %s", limit)
		}
	}
	if _, limit := s.enter(cn, true); limit != LimitRate {
		t.Errorf("got %q, want %q", limit, LimitRate)
	}
}

func TestSharesForgetWhoIsGone(t *testing.T) {
	now := time.Unix(1, 0)
	s := newRequestLimits(DefaultLimits())
	s.now = func() time.Time { return now }
	stranger := func(n int) matrix.Identity {
		return matrix.Identity{Role: matrix.CN, UUID: log.UUID{byte(n), byte(n >> 8), byte(n >> 16), 1}}
	}
	for n := range maxIdentities {
		leave, limit := s.enter(stranger(n), false)
		if limit != "" {
			t.Fatalf("identity %d: %s", n, limit)
		}
		leave()
	}
	if _, limit := s.enter(stranger(maxIdentities), false); limit != limitShare {
		t.Errorf("one more than are remembered: got %q", limit)
	}
	now = now.Add(2 * forgetIdentity)
	if leave, limit := s.enter(stranger(maxIdentities), false); limit != "" {
		t.Errorf("after the others were forgotten: %s", limit)
	} else {
		leave()
	}
}

// One long read runs for each place, one of each identity; who runs the cluster
// does not wait for others.
func TestScansTakeTurns(t *testing.T) {
	s := newScans()
	s.others, s.operators = make(chan struct{}, 1), make(chan struct{}, 1)
	reader := func(name string) matrix.Identity { return matrix.Identity{Role: matrix.Reader, Name: name} }
	leave, _, err := s.enter(t.Context(), reader("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // it cannot be waited for that nothing is let in
		if _, _, err := s.enter(ctx, reader(name)); err == nil {
			t.Errorf("reader %s ran beside reader a", name)
		}
		cancel()
	}
	people, rest, err := s.enter(t.Context(), matrix.Identity{Role: matrix.Operator, Name: "ops"})
	if err != nil || rest != operatorsRest {
		t.Fatalf("an operator waits for a reader: %v, rest %d", err, rest)
	}
	people()
	leave()
	if leave, _, err = s.enter(t.Context(), reader("b")); err != nil {
		t.Fatal(err)
	}
	leave()
	if len(s.busy) != 0 {
		t.Errorf("%d identities are remembered", len(s.busy))
	}
}
