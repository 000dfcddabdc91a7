package listen

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errEnough = errors.New("enough")

// publisher is a server of which a test says what it does.
type publisher struct {
	probe   func(w http.ResponseWriter)           // nil: 200
	upgrade func(w http.ResponseWriter) bool      // nil, or false: upgraded
	session func(c *websocket.Conn, hello string) // after the registration

	asked atomic.Int64 // requests
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	if r.Header.Get("Upgrade") == "" {
		if p.probe != nil {
			p.probe(w)
		}
		return
	}
	if p.upgrade != nil && p.upgrade(w) {
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	_, hello, err := conn.Read(r.Context())
	if err == nil {
		p.session(conn, string(hello))
	}
}

func start(t *testing.T, p *publisher) string {
	t.Helper()
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL
}

// say sends texts.
func say(c *websocket.Conn, texts ...string) {
	for _, text := range texts {
		if c.Write(context.Background(), websocket.MessageText, []byte(text)) != nil {
			return
		}
	}
}

func reply(seq int, more string) string {
	return fmt.Sprintf(`{"bootstrapRoutes":[{"resource":"nic","subResources":["create"],"bootstrapRoute":"/nics"}],"seq":%d,"cursor":"c%d"%s}`, seq, seq, more)
}

func item(seq int) string {
	return fmt.Sprintf(`{"changeKind":{"resource":"nic","subResources":["create"]},"changedResourceId":"n%d","published":"1","seq":%d,"cursor":"c%d"}`, seq, seq, seq)
}

// config is of a listener to servers.
func config(servers ...string) Config {
	return Config{Servers: servers, Instance: "i", Service: "s", Wants: []Want{{"nic", []string{"create"}}}}
}

// until runs a listener until it got an item of seq, and returns all that it got.
func until(t *testing.T, cfg Config, seq uint64) (boots []Bootstrap, seqs []uint64) {
	t.Helper()
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = l.Run(ctx, Handler{
		Bootstrap: func(b Bootstrap) error { boots = append(boots, b); return nil },
		Item: func(it Item) error {
			if seqs = append(seqs, it.Seq); it.Seq == seq {
				return errEnough
			}
			return nil
		},
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("Run: %v, after %v and %v", err, boots, seqs)
	}
	return boots, seqs
}

// What a server may do (spec/changefeed.md section 1.5), it does first; ours goes
// to the next one each time, where the real listener hangs or fails.
func TestServersThatFail(t *testing.T) {
	good := start(t, &publisher{session: func(c *websocket.Conn, _ string) { say(c, reply(1, ""), item(2)) }})
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Location", good+"/changefeeds")
			w.WriteHeader(code)
		}
	}
	refused := func(code int) func(http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool { status(code)(w); return true }
	}
	for name, p := range map[string]*publisher{
		"probe 503":         {probe: status(503)},
		"probe 404":         {probe: status(404)},
		"probe 307":         {probe: status(307)},
		"upgrade 503":       {upgrade: refused(503)},
		"upgrade 307":       {upgrade: refused(307)},
		"upgrade closed":    {upgrade: func(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }},
		"close with reason": {session: func(c *websocket.Conn, _ string) { _ = c.Close(websocket.StatusNormalClosure, "unknown resource: nic") }},
		"FIN":               {session: func(c *websocket.Conn, _ string) { _ = c.CloseNow() }},
		"no bootstrap":      {session: func(c *websocket.Conn, _ string) { say(c, item(1)) }},
		"bad bootstrap":     {session: func(c *websocket.Conn, _ string) { say(c, "{") }},
	} {
		t.Run(name, func(t *testing.T) {
			boots, seqs := until(t, config(start(t, p), good), 2)
			if len(boots) != 1 || boots[0].Server != good || !slices.Equal(seqs, []uint64{2}) {
				t.Errorf("got %+v and %v", boots, seqs)
			}
			if p.asked.Load() == 0 {
				t.Error("the server was not asked")
			}
		})
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if boots, _ := until(t, config(gone.URL, good), 2); len(boots) != 1 {
		t.Errorf("refused connection: got %+v", boots)
	}
}

// A listener goes on behind what it got, on the next server, and names its place.
func TestGoesOn(t *testing.T) {
	var mu sync.Mutex
	var hellos []string
	note := func(hello string) {
		mu.Lock()
		defer mu.Unlock()
		hellos = append(hellos, hello)
	}
	first := start(t, &publisher{session: func(c *websocket.Conn, hello string) {
		note(hello)
		say(c, reply(1, `,"resumed":false`), item(2), `{"cursor":"c5","seq":5}`) // a bookmark, then the end
	}})
	second := start(t, &publisher{session: func(c *websocket.Conn, hello string) {
		note(hello)
		say(c, reply(5, `,"resumed":true`), item(6))
	}})
	boots, seqs := until(t, config(first, second), 6)
	if !slices.Equal(seqs, []uint64{2, 6}) || len(boots) != 2 || boots[0].Resumed || !boots[1].Resumed || boots[1].Routes[0].BootstrapRoute != "/nics" {
		t.Errorf("got %v and %+v", seqs, boots)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(hellos) != 2 || !strings.Contains(hellos[0], `"cursor":""`) || !strings.Contains(hellos[1], `"cursor":"c5"`) {
		t.Errorf("registered with %q", hellos)
	}
}

// An item that is none ends the connection, not the listener.
func TestBadItem(t *testing.T) {
	var times atomic.Int64
	p := &publisher{session: func(c *websocket.Conn, _ string) {
		if times.Add(1) == 1 {
			say(c, reply(1, ""), "{")
			return
		}
		say(c, reply(1, ""), item(2))
	}}
	if boots, _ := until(t, config(start(t, p)), 2); len(boots) != 2 {
		t.Errorf("got %+v", boots)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"needs Servers":   {Instance: "i", Wants: []Want{{}}},
		"needs":           {Servers: []string{"http://a"}, Wants: []Want{{}}},
		"want a base URL": {Servers: []string{"a:80"}, Instance: "i", Wants: []Want{{}}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
