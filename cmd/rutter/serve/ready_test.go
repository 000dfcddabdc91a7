package serve

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/cmd/rutter/storeapi"
	"rutter/cmd/rutter/svpview"
	"rutter/projections"
	"rutter/raftstore"
	"rutter/varp"
)

// A server says that it is ready when its SVP server has the mappings, and not before.
func TestReadyWithMappings(t *testing.T) {
	s, err := Open(Options{
		Store: raftstore.Config{ID: "s1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Bootstrap: true},
		API:   "127.0.0.1:0", SVP: "127.0.0.1:0", CNPort: 5309, Insecure: true, Version: "test", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	readyz := func() (status int, text string) {
		t.Helper()
		answer, err := http.Get("http://" + s.Address().String() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(b)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		status, text := readyz()
		if status == http.StatusOK {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("/readyz: %d %s", status, text)
		}
	}
	if err := s.mappings.Ready(); err != nil {
		t.Errorf("/readyz says ok, and the mappings: %v", err)
	}
	// The same store with mappings that are not made.
	unread := varp.NewMappings(svpview.Source{
		OfHead: s.store.Head, OfEntries: s.store.Entries,
		OfState: func(fn func(*projections.State)) { s.store.View(func(v raftstore.View) { fn(v.State) }) },
	}, nil)
	if err := (loadedStore{storeapi.Store{Store: s.store}, unread}).Ready(); err == nil || !strings.Contains(err.Error(), "reads the mappings") {
		t.Errorf("ready without mappings: %v", err)
	}
}
