package feedserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/api/internal/logread"
	"rutter/api/liveness"
	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newAPI makes the API over a store, by which tests write. It is set by a test file
// outside of this package, since package api imports this one.
var newAPI func(*apitest.Memory) (http.Handler, error)

// bed is a feed of a store in memory, beside the API over it.
type bed struct {
	*apitest.World
	feed *Server
}

func newBed(t apitest.T) *bed {
	t.Helper()
	store := apitest.NewMemory()
	handler, err := newAPI(store)
	if err != nil {
		t.Fatal(err)
	}
	return &bed{&apitest.World{T: t, Store: store, Handler: handler}, newFeed(store, slog.DiscardHandler)}
}

// newFeed is a Server of a store that notes nothing.
func newFeed(store Store, logs slog.Handler) *Server {
	return feedOf(store, logs, liveness.NewTable(1, time.Now), func(audit.Record) {})
}

func feedOf(store Store, logs slog.Handler, sessions *liveness.Table, note func(audit.Record)) *Server {
	return New(Config{
		Store: store, Tail: logread.NewTail(store), Logger: slog.New(logs), Sessions: sessions, Audit: note,
		Streams: func() int64 { return 1 },
		Refuse:  func(_ string, refusal *matrix.Refusal) error { return errors.New(refusal.Missing) },
	})
}

// restart makes a new server of the feed, which keeps nothing of the log yet.
func (b *bed) restart() { b.feed = newFeed(b.Store, slog.DiscardHandler) }

// serve runs a stream on a connection until it ends.
func (b *bed) serve(conn net.Conn) error {
	u, reader, err := b.feed.accept(conn, nil, matrix.Identity{Role: matrix.Local})
	if err != nil {
		return err
	}
	return received(u, reader)
}

// received runs a subscriber until its stream is over, and returns why it is.
func received(u *subscriber, r *frames) error {
	over := make(chan error, 1)
	u.receive(r, func(err error) { over <- err })
	return <-over
}

// connect is a feed of the bed's server over a pipe.
func (b *bed) connect(context.Context) *apitest.Connection {
	return apitest.Connect(func(conn net.Conn) { _ = b.serve(conn) })
}

func (b *bed) follow(t interface{ Context() context.Context }, m *apitest.Mirror, until log.Seq) error {
	return b.Follow(t.Context(), b.connect(t.Context()), m, until)
}

func (b *bed) sync(t *testing.T, m *apitest.Mirror) {
	t.Helper()
	b.Sync(t, b.connect(t.Context()), m)
}

// counted is the value of a counter.
func counted(t *testing.T, s *Server, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
