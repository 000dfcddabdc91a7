package allow

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":       "it has no =",
		"10.0.0.0/8=admin": "none of read, write and programs",
		"10.0.0.1/8=read":  "has host bits: is it 10.0.0.0/8?",
		"x=read":           "is no network",
		"=write":           "is no network",
	} {
		if _, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
	if _, err := Parse([]string{"10.0.0.0/8=read", "10.0.0.0/8=write"}); err == nil {
		t.Error("a network named twice is taken")
	}
	if _, err := Parse(make([]string, MaxRows+1)); err == nil {
		t.Error("a list over the bound is taken")
	}
}

func TestOf(t *testing.T) {
	l, err := Parse([]string{"10.0.0.0/8=read", "10.1.0.0/16=write", "10.1.1.1=read", "fd00::/8=write", "10.1.2.0/24=programs"})
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]Right{
		"10.9.0.1": Read, "10.1.2.1": Programs, "10.1.0.1": Write, "10.1.1.1": Read, "11.0.0.1": None, "::ffff:10.1.0.1": Write, "fd00::1": Write, "fe80::1": None,
	} {
		if got := l.Of(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: got %d, want %d", ip, got, want)
		}
	}
	if got := (List{}).Of(netip.MustParseAddr("127.0.0.1")); got != None {
		t.Errorf("the empty list: got %d, want nobody let in", got)
	}
	if got := Loopback().Of(netip.MustParseAddr("::1")); got != Write {
		t.Errorf("this machine: got %d, want it let in", got)
	}
}

// untouched fails the test when a body is read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request was read")
	return 0, io.EOF
}

// surface is a part of NAPI's.
func surface(called func(r *http.Request)) *rest.Table {
	serve := func(_ http.ResponseWriter, r *http.Request) error { called(r); return nil }
	return &rest.Table{Surface: "napi", Routes: []rest.Route{
		{Method: "GET", Pattern: "/nics", Serve: serve}, {Method: "POST", Pattern: "/nics", Serve: serve}, {Method: "GET", Pattern: "/manage/gc", Serve: serve},
	}}
}

func TestGate(t *testing.T) {
	l, err := Parse([]string{"10.0.0.0/8=read", "10.1.0.0/16=write", "10.2.0.0/16=programs"})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	g := &Handler{List: l, Surface: "napi", Refused: func(*http.Request, string) { told++ }}
	g.Serve(surface(func(r *http.Request) {
		if who, ok := matrix.From(r.Context()); !ok || who.Role != matrix.Foreign || who.Name == "" {
			t.Errorf("who asks: got %+v", who)
		}
		if who, _ := matrix.From(r.Context()); who.Programs != strings.HasPrefix(who.Name, "10.2.") {
			t.Errorf("%s may choose programs: %v", who.Name, who.Programs)
		}
	}), nil)
	refused := 0
	for _, c := range []struct {
		from, method, path string
		want               int
	}{
		{"10.0.0.1:1", "GET", "/nics", 200},
		{"10.0.0.1:1", "HEAD", "/nics", 200},
		{"10.0.0.1:1", "POST", "/nics", 403},
		{"10.1.0.1:1", "POST", "/nics", 200},
		{"10.2.0.1:1", "POST", "/nics", 200},
		{"10.1.0.1:1", "GET", "/nothing", 404}, // the surface says that there is none
		{"10.1.0.1:1", "GET", "/manage/gc", 200},
		{"10.0.0.1:1", "GET", "/manage/gc", 403}, // a GET that is not a read
		{"10.1.0.1:1", "GET", "/nothing%2f..%2fnics", 400},
		{"11.0.0.1:1", "GET", "/nics", 403},
		{"nonsense", "GET", "/nics", 403},
	} {
		body := io.Reader(http.NoBody)
		if c.want != http.StatusOK {
			body = untouched{t}
		}
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, body)
		r.RemoteAddr = c.from
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %s from %s: got %d, want %d", c.method, c.path, c.from, w.Code, c.want)
		}
		if c.want == 403 {
			refused++
		}
	}
	refused++ // the path
	if g.Count() != uint64(refused) || told != refused {
		t.Errorf("counted %d and told %d refusals, want %d", g.Count(), told, refused)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10.0.0.0/8=read")
	f.Add("::1=write")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse([]string{text})
		if err == nil && l.Len() != 1 {
			t.Errorf("%q: %d rows", text, l.Len())
		}
	})
}

// TestStrangers: addresses that are let in nowhere take but few places, and give
// them back.
func TestStrangers(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	l := NewListener(inner, List{}.Of, slog.New(slog.NewTextHandler(&lines, nil)))
	defer l.Close()
	accepted := make(chan net.Conn, MaxStrangers+1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var held []net.Conn
	for range MaxStrangers {
		c := dial()
		defer c.Close()
		held = append(held, <-accepted)
	}
	for range 2 {
		over := dial()
		defer over.Close()
		if n, err := over.Read(make([]byte, 1)); err == nil {
			t.Errorf("one stranger too many: read %d bytes, want it cut off", n)
		}
	}
	_ = held[0].Close()
	_ = held[0].Close() // twice is once
	again := dial()
	defer again.Close()
	_ = (<-accepted).Close()
	for _, c := range held[1:] {
		_ = c.Close()
	}
	_ = l.Close()
	<-done
	if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "from=127.0.0.1 limit=64") || !strings.Contains(text, " do=") {
		t.Errorf("two strangers too many within a minute; the log has %q, want one line", text)
	}
}

// A door hangs up on the addresses that match, and forgets who left.
func TestCutOff(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(inner, Loopback().Of, slog.New(slog.DiscardHandler))
	defer l.Close()
	var theirs []net.Conn
	var ours []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		theirs = append(theirs, c)
		if c, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, c)
	}
	_ = ours[0].Close()
	if n := l.CutOff(func(ip netip.Addr) bool { return ip != netip.MustParseAddr("127.0.0.1") }); n != 0 {
		t.Errorf("%d connections of others cut off, want none", n)
	}
	if n := l.CutOff(func(ip netip.Addr) bool { return ip == netip.MustParseAddr("127.0.0.1") }); n != 1 {
		t.Errorf("%d connections cut off, want the one that is open", n)
	}
	if _, err := theirs[1].Read(make([]byte, 1)); err == nil {
		t.Error("a connection that was cut off lives")
	}
}

// A program without a slot is answered only by Enter;
// places come back.
func TestGateTakesAPlace(t *testing.T) {
	places, held := 2, 0
	g := &Handler{List: Loopback(), Surface: "napi"}
	g.Serve(surface(func(*http.Request) {
		if held != 1 {
			t.Errorf("%d places are held, want 1", held)
		}
	}), nil)
	g.Enter = func(w http.ResponseWriter, _ *http.Request, who matrix.Identity) (func(), bool) {
		if who.Key() != "foreign:127.0.0.1" {
			t.Errorf("who enters: %s", who.Key())
		}
		if places == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return nil, false
		}
		places--
		held++
		return func() { held-- }, true
	}
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/nics", http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != want || held != 0 {
			t.Errorf("got %d with %d places held afterwards, want %d and none", w.Code, held, want)
		}
	}
}
