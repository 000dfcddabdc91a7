package api_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api"
	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/client"
	"rutter/log"
	"rutter/log/feed"
)

// running is a server on a socket, over a memory.
type running struct {
	url  string
	stop func() error // drains; what Run returned
}

func run(t *testing.T, store backend.Store) *running {
	t.Helper()
	return runOn(t, store, func(l net.Listener) net.Listener { return l })
}

// runOn is run with something around the listener.
func runOn(t *testing.T, store backend.Store, around func(net.Listener) net.Listener) *running {
	t.Helper()
	s, err := api.New(api.Config{Store: store, Identify: anybody, Limits: guard.Limits{PerIdentity: map[matrix.Role]int{}}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, around(listener)) }()
	r := &running{url: "http://" + listener.Addr().String()}
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func newClient(t *testing.T, servers ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: servers, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestClientWritesAndReads(t *testing.T) {
	store := api.NewMemory()
	c := newClient(t, run(t, store).url)
	ctx := t.Context()
	tag, err := c.Create(ctx, "/nic_tags", []byte(`{"name":"external","mtu":1500}`))
	if err != nil || tag["name"] != "external" {
		t.Fatalf("create: %v, %v", tag, err)
	}
	if tag, err = c.Update(ctx, "/nic_tags/external", []byte(`{"mtu":9000}`), log.ETag(1, 1)); err != nil || tag["mtu"] != 9000.0 {
		t.Fatalf("update: %v, %v", tag, err)
	}
	var refusal *log.Refusal
	if _, err := c.Update(ctx, "/nic_tags/external", []byte(`{"mtu":1500}`), log.ETag(1, 1)); !errors.As(err, &refusal) || refusal.Code != log.CodePreconditionFailed {
		t.Errorf("update of an old revision: %v", err)
	}
	if _, err := c.Create(ctx, "/nic_tags", []byte(`{"name":"a","colour":1}`)); !errors.As(err, &refusal) || refusal.Errors[0].Field != "colour" || refusal.Errors[0].Remedy == "" {
		t.Errorf("unknown field: %v", err)
	}
	change := &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "one"}},
		{Action: log.Delete, Kind: log.KindNICTag, ID: "external"},
	}}
	for range 2 { // a retry is applied once
		result, err := c.Submit(ctx, change)
		if err != nil || result.ChangeID != change.ID || result.First != 3 || result.Last != 4 || len(result.IDs) != 2 {
			t.Fatalf("submit: %+v, %v", result, err)
		}
	}
	if list, err := c.List(ctx, "/nic_tags", nil); err != nil || len(list) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if head, err := c.Head(ctx); err != nil || head != 4 {
		t.Errorf("head: %d, %v", head, err)
	}
	if status, err := c.Status(ctx); err != nil || status.ID != "s1" || status.LeaderID != "s1" || !status.Ready || status.Head.Seq != 4 {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// A follower of the log goes on at the next server, and misses nothing.
func TestClientFollowsTheLogAcrossServers(t *testing.T) {
	store := api.NewMemory()
	first, second := run(t, store), run(t, store)
	c := newClient(t, first.url, second.url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	write(t, second.url)
	want := log.Seq(0)
	for line, err := range c.Log(ctx, client.LogQuery{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if want++; line.Seq != want {
			t.Fatalf("got seq %d, want %d", line.Seq, want)
		}
		switch want {
		case 3:
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
		case 6:
			return
		}
		write(t, second.url)
	}
}

var writes int

func write(t *testing.T, url string) {
	t.Helper()
	writes++
	name := "t" + string(rune('a'+writes%26)) + string(rune('a'+writes/26))
	if _, err := newClient(t, url).Create(t.Context(), "/nic_tags", []byte(`{"name":"`+name+`"}`)); err != nil {
		t.Fatal(err)
	}
}

// welcomed is a handler that tells of its first bookmark.
type welcomed struct{ at chan log.Seq }

func (welcomed) Welcome(*feed.Welcome) error           { return nil }
func (welcomed) Reset(*feed.Reset) error               { return nil }
func (welcomed) Entry(*feed.Entry) error               { return nil }
func (welcomed) Object(*feed.Object) error             { return nil }
func (welcomed) ScopeBegin(*feed.ScopeBegin) error     { return nil }
func (welcomed) ScopeEnd(*feed.ScopeEnd) error         { return nil }
func (welcomed) ScopeDropped(*feed.ScopeDropped) error { return nil }
func (w welcomed) Bookmark(b *feed.Bookmark) error {
	select {
	case w.at <- b.Seq:
	default:
	}
	return nil
}

// A server that stops tells the subscribers of its feed to go elsewhere.
func TestRunDrainsFeeds(t *testing.T) {
	server := run(t, api.NewMemory())
	c := newClient(t, server.url)
	conn, err := c.Feed(t.Context(), server.url)
	if err != nil {
		t.Fatal(err)
	}
	h := welcomed{make(chan log.Seq, 1)}
	ended := make(chan error, 1)
	go func() {
		ended <- feed.NewConn(conn).Follow(t.Context(), &feed.Hello{CN: log.UUID{1}, Incarnation: 1, Session: 1}, h)
	}()
	<-h.at
	if sessions, err := c.Sessions(t.Context(), server.url); err != nil || len(sessions) != 1 || sessions[0].CN != (log.UUID{1}) || sessions[0].Server != "s1" {
		t.Errorf("sessions: %+v, %v", sessions, err)
	}
	if err := server.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	var drain *feed.DrainError
	if err := <-ended; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainShutdown {
		t.Errorf("got %v, want a drain", err)
	}
}

// Writes go on while one server of two is away.
func TestClientGoesToTheNextServer(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	server := run(t, api.NewMemory())
	c := newClient(t, away.URL, server.url)
	if _, err := c.Create(t.Context(), "/nic_tags", []byte(`{"name":"external"}`)); err != nil {
		t.Error(err)
	}
}

func TestClientRetriesWhatWasNotAnswered(t *testing.T) {
	store := api.NewMemory()
	server := run(t, store)
	c := newClient(t, server.url)
	store.FailWrites(2, backend.ErrNoLeader)
	if _, err := c.Create(t.Context(), "/nic_tags", []byte(`{"name":"external"}`)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	store.FailWrites(1<<30, errors.New("leadership lost"))
	if _, err := c.Create(ctx, "/nic_tags", []byte(`{"name":"other"}`)); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestRunFailsWithItsListener(t *testing.T) {
	s, err := api.New(api.Config{Store: api.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := s.Run(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}

// The identity on listeners of tests, with and without TLS.
func anybody(r *http.Request) matrix.Identity {
	return matrix.Identity{Role: matrix.Local, Name: strings.Split(r.RemoteAddr, ":")[0]}
}

// The library has an answer of its own to "OPTIONS *", which no check or limit sees.
func TestEachRequestIsRouted(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, run(t, api.NewMemory()).url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Opaque = "*"
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("OPTIONS * was answered with %d, want 400", response.StatusCode)
	}
}
