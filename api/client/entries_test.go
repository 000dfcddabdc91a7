package client

import (
	"net/http"
	"strconv"
	"testing"

	"rutter/log"
	"rutter/log/feed"
)

// serveEntries answers as a server with a log of n entries does, but for each of
// the first answers, which it breaks off after as many entries.
func serveEntries(t *testing.T, n int, brokenOff ...int) *Client {
	answer := 0
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", feed.LogMedia)
		after, err := strconv.Atoi(r.URL.Query().Get("after"))
		if err != nil {
			t.Error(err)
		}
		last := n
		if answer < len(brokenOff) {
			last = after + brokenOff[answer]
		}
		answer++
		var b []byte
		for seq := after + 1; seq <= last && err == nil; seq++ {
			b, err = feed.AppendEntry(b, log.Entry{Seq: log.Seq(seq), Bytes: []byte{1, byte(seq)}})
		}
		if last == n {
			b, err = feed.Append(b, &feed.Bookmark{Seq: log.Seq(n)})
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	})
}

// What is read ahead comes whole and in order, also over answers that break off.
func TestEntriesReadAhead(t *testing.T) {
	const n = 4*batchesAhead*batchEntries + 3
	for _, brokenOff := range [][]int{nil, {batchEntries}, {1, batchEntries + 1, 3 * batchesAhead * batchEntries}} {
		c := serveEntries(t, n, brokenOff...)
		want := log.Seq(1)
		for e, err := range c.Entries(t.Context(), 0) {
			if err != nil || e.Seq != want || len(e.Bytes) != 2 || e.Bytes[1] != byte(want) {
				t.Fatalf("broken off after %v: got %d %x, %v, want entry %d", brokenOff, e.Seq, e.Bytes, err, want)
			}
			want++
		}
		if want != n+1 {
			t.Errorf("broken off after %v: %d entries, want %d", brokenOff, want-1, n)
		}
	}
}

// A caller that takes no more entries leaves no reader of them behind: the server's
// answer ends, and serve waits for that.
func TestEntriesStopped(t *testing.T) {
	c := serveEntries(t, 100*batchesAhead*batchEntries)
	for e, err := range c.Entries(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 2 {
			break
		}
	}
}
