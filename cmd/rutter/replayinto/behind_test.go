package replayinto

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/log/feed"
)

// A server that stays behind the one that said how long the target's log is ends a replay
// with an error that says so, and is not asked without a rest.
func TestServerThatStaysBehind(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", feed.LogMedia)
		end, err := feed.Append(nil, &feed.Bookmark{Seq: 0})
		if err == nil {
			_, err = w.Write(end)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	api, err := client.New(client.Config{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	r := &replay{api: api, o: Options{behindFor: 4 * behindPoll}}
	err = r.readUpTo(t.Context(), 7)
	if !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("ended with %v", err)
	}
	if n := asked.Load(); n > 8 {
		t.Errorf("it was asked %d times in %d rests", n, 4)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(behindPoll, cancel)
	r.o.behindFor = time.Hour
	if err := r.readUpTo(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

// What is kept of each change of the target has the change's whole id.
func TestWritten(t *testing.T) {
	tag := tagOf(mappedChange{Cluster: log.UUID{1}, First: 7})
	id := tag.id(1 << 40)
	got := written{first: 3, ms: 1 << 40, last: 4}.of(log.UUID{2}, tagIn(id))
	if want := (mappedChange{Cluster: log.UUID{2}, First: 3, Last: 4, ID: id}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
