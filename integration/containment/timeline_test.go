package containment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// argument is the value of a server's flag.
func argument(s *bench.Server, flag string) string { return s.Args[slices.Index(s.Args, flag)+1] }

// follow reads n server-sent events and returns the id of the last.
func follow(t *testing.T, url string, n int) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	response := get(t, ctx, url+"/log?after=0&follow=1", "")
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if after, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			if id = after; n == 1 {
				return id
			}
			n--
		}
	}
	t.Fatalf("%d events are missing: %v", n, lines.Err())
	return ""
}

// get asks as an EventSource does, which names the last event that it saw.
func get(t *testing.T, ctx context.Context, url, last string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// A snapshot is restored under clients that follow the log. Each that comes
// back with the place it was at is refused by name, and is shown nothing of the other
// timeline; what is refused has a status that ends an EventSource.
func TestPlacesOfBeforeARestore(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{Servers: 1})
	s := c.Servers[0]
	for n := range 3 {
		post(t, c, "/nic_tags", fmt.Sprintf(`{"name":"both%d"}`, n))
	}
	snapshot := t.TempDir() + "/snapshot"
	rutter(t, 0, "snapshot", "save", snapshot, "-s", s.URL)
	for n := range 3 {
		post(t, c, "/nic_tags", fmt.Sprintf(`{"name":"old%d"}`, n))
	}
	id := follow(t, s.URL, 6)
	cursor, err := log.ParseCursor(id)
	if err != nil || cursor.Seq != 6 {
		t.Fatalf("the id of the sixth event is %q: %v", id, err)
	}
	// It is good for going on as long as the log is this one.
	post(t, c, "/nic_tags", `{"name":"old3"}`)
	before := get(t, patience(t), s.URL+"/log?after=0&limit=1", id)
	if b, err := io.ReadAll(before.Body); err != nil || before.StatusCode != http.StatusOK || !strings.Contains(string(b), `"old3"`) {
		t.Fatalf("before: %s %s %v", before.Status, b, err)
	}
	before.Body.Close()

	if err := s.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	data := argument(s, "--data")
	if err := os.Rename(data, data+".before"); err != nil {
		t.Fatal(err)
	}
	rutter(t, 0, "snapshot", "restore", snapshot, "--data", data, "--id", s.ID, "--raft", argument(s, "--raft"))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(patience(t), s); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		post(t, c, "/nic_tags", fmt.Sprintf(`{"name":"other%d"}`, n))
	}
	for what, ask := range map[string]func() *http.Response{
		"an EventSource":    func() *http.Response { return get(t, patience(t), s.URL+"/log?after=0&follow=1", id) },
		"after":             func() *http.Response { return get(t, patience(t), s.URL+"/log?follow=1&after="+id, "") },
		"cursor":            func() *http.Response { return get(t, patience(t), s.URL+"/log?cursor="+id, "") },
		"a read of its own": func() *http.Response { return get(t, patience(t), s.URL+"/nic_tags?min_seq="+id, "") },
		"a barrier":         func() *http.Response { return get(t, patience(t), s.URL+"/wait?timeout=1s&seq="+id, "") },
	} {
		response := ask()
		// One that were served would not end.
		stop := time.AfterFunc(10*time.Second, func() { response.Body.Close() })
		b, _ := io.ReadAll(response.Body)
		stop.Stop()
		response.Body.Close()
		if response.StatusCode != http.StatusConflict || !strings.Contains(string(b), "CursorOfOtherLog") || strings.Contains(string(b), `"other`) {
			t.Errorf("%s: %s %.300s; want 409 CursorOfOtherLog and no entry", what, response.Status, b)
		}
	}
	// An id of before this version has no timeline: it is refused too.
	bare := get(t, patience(t), s.URL+"/log?after=0", "6")
	b, _ := io.ReadAll(bare.Body)
	bare.Body.Close()
	if bare.StatusCode != http.StatusBadRequest || strings.Contains(string(b), `"other`) {
		t.Errorf("a bare seq as the id of an event: %s %.300s", bare.Status, b)
	}
	// A client that begins anew is served.
	if now, err := log.ParseCursor(follow(t, s.URL, 8)); err != nil || now.Seq != 8 || now.Cluster == cursor.Cluster {
		t.Errorf("anew: %v, %v", now, err)
	}
}
