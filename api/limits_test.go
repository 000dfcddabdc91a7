package api

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

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
	who := matrix.Identity{Role: matrix.CN, UUID: cn1, Serial: "7"}
	for name, limits := range map[string]Limits{
		"identity": {PerIdentity: map[matrix.Role]int{matrix.CN: 2}},
		"address":  {PerAddress: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{Store: newMemory(), Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := s.gate.limitListener(named{inner, who}, 10)
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
		})
	}
}

func TestSharesOfRequests(t *testing.T) {
	now := time.Unix(1, 0)
	s := newShares(Limits{Requests: 40, Rate: map[matrix.Role]int{matrix.CN: 2}})
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
	cn := matrix.Identity{Role: matrix.CN, UUID: cn1}
	granted := 0
	for range 100 {
		if leave, limit := s.enter(cn, true); limit == "" {
			leave()
			granted++
		}
	}
	if granted != 2*shareBurst {
		t.Errorf("%d requests at once, want %d", granted, 2*shareBurst)
	}
	now = now.Add(time.Second)
	for range 2 {
		if _, limit := s.enter(cn, true); limit != "" {
			t.Errorf("a second later: %s", limit)
		}
	}
	if _, limit := s.enter(cn, true); limit != limitRate {
		t.Errorf("got %q, want %q", limit, limitRate)
	}
}

func TestSharesForgetWhoIsGone(t *testing.T) {
	now := time.Unix(1, 0)
	s := newShares(DefaultLimits())
	s.now = func() time.Time { return now }
	stranger := func(n int) matrix.Identity { return matrix.Identity{Role: matrix.CN, UUID: testUUID(n)} }
	for n := range maxShares {
		leave, limit := s.enter(stranger(n), false)
		if limit != "" {
			t.Fatalf("identity %d: %s", n, limit)
		}
		leave()
	}
	if _, limit := s.enter(stranger(maxShares), false); limit != limitShare {
		t.Errorf("one more than are remembered: got %q", limit)
	}
	now = now.Add(2 * shareForget)
	if leave, limit := s.enter(stranger(maxShares), false); limit != "" {
		t.Errorf("after the others were forgotten: %s", limit)
	} else {
		leave()
	}
}

func TestJSONDepth(t *testing.T) {
	b := newBed(t)
	for _, body := range []string{strings.Repeat("[", 100_000), `{"ops":` + strings.Repeat(`{"a":`, 100)} {
		if w := b.call("POST", "/changes", body); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "nested") {
			t.Errorf("nested body: %s", pretty(w))
		}
	}
}

// What the roles get at the door, and that a refusal names what is missing.
func TestRolesAtTheDoor(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	b.furnish()
	b.nic(fabricA, cn1)
	b.nic(fabricB, cn2)
	me := cn1.String()
	for _, c := range []struct {
		as, method, path, body string
		want                   int
	}{
		{"reader", "GET", "/networks", "", 200},
		{"reader", "POST", "/nic_tags", `{"name":"x"}`, 403},
		{"operator", "POST", "/nic_tags", `{"name":"x"}`, 200},
		{"server", "POST", "/nic_tags", `{"name":"y"}`, 403},
		{"foreign", "POST", "/nic_tags", `{"name":"y"}`, 403},
		{"join", "GET", "/networks", "", 403},
		{"join", "GET", "/livez", "", 200},
		{"reader", "GET", "/snapshot", "", 403},
		{"reader", "PUT", "/cluster/retention", `{}`, 403},
		{me, "GET", "/servers/" + me, "", 200},
		{me, "GET", "/servers/" + cn2.String(), "", 404},
		{me, "GET", "/networks/" + fabricA.String(), "", 200},
		{me, "GET", "/networks/" + fabricB.String(), "", 404},
		{me, "GET", "/log", "", 403},
		{me, "GET", "/servers/" + me + "?at=3", "", 403},
		{me, "PUT", "/servers/" + me, `{"current_platform":"x"}`, 200},
		{me, "PUT", "/servers/" + me, `{"comments":"x"}`, 403},
		{me, "PUT", "/servers/" + cn2.String(), `{"current_platform":"x"}`, 403},
		{me, "POST", "/changes", `{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"z"}}]}`, 403},
		{me, "POST", "/networks/" + fabricA.String() + "/nics", "{}", 403},
		{me, "DELETE", "/cluster/members/s1", "", 403},
	} {
		w := b.call(c.method, c.path, c.body, asHeader, c.as)
		if w.Code != c.want {
			t.Errorf("%s: %s %s: %s, want %d", c.as, c.method, c.path, pretty(w), c.want)
		}
		if w.Code == 403 && !strings.Contains(w.Body.String(), log.CodeNotAuthorized) {
			t.Errorf("%s: %s %s: the refusal has no code: %s", c.as, c.method, c.path, pretty(w))
		}
	}
}
