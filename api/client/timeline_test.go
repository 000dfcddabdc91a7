package client

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"rutter/log"
)

// A stream that breaks goes on from a cursor, so that a log which became another one
// meanwhile is refused, and an entry of it never yielded behind those of the first.
func TestLogOfAnotherTimeline(t *testing.T) {
	cluster := log.UUID{0xc1, 6: 0x40, 8: 0x80}
	event, err := (&log.Line{Seq: 6, Chain: log.ChainPrefix{6}, Event: &log.Event{Kind: log.KindNICTag, Action: log.Create, ID: "a", Object: &log.NICTag{Name: "a"}}}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := log.Cursor{Cluster: cluster, Seq: 6, Chain: log.ChainPrefix{6}}
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		query := r.URL.Query()
		switch {
		case asked == 1:
			if query.Get("after") != "5" {
				t.Errorf("the first question: %s", r.URL)
			}
			w.Header().Set("Rutter-Cursor", log.Cursor{Cluster: cluster, Seq: 9, Chain: log.ChainPrefix{9}}.String())
			fmt.Fprintf(w, "%s\n", event)
		case query.Get("cursor") == want.String() && !query.Has("after"):
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"CursorOfOtherLog","message":"the cursor is of another log than this cluster's"}`)
		default:
			t.Errorf("it goes on with %s, want cursor=%s", r.URL, want)
			fmt.Fprintf(w, "%s\n", event)
		}
	})
	entries := 0
	for _, err := range c.Log(t.Context(), LogQuery{After: 5, Follow: true}) {
		var refusal *log.Refusal
		switch {
		case err == nil && entries == 0:
			entries++
		case !errors.As(err, &refusal) || refusal.Code != "CursorOfOtherLog":
			t.Fatalf("got %v after %d entries, want a refusal by name", err, entries)
		}
	}
	if entries != 1 || asked != 2 {
		t.Errorf("%d entries, %d questions", entries, asked)
	}
}

// If the fate of the first try is unknown, the answer to a later try, that nothing
// was written, is not returned as the answer to the first.
func TestLaterTryWithoutRoom(t *testing.T) {
	for _, first := range []int{http.StatusServiceUnavailable, 0} {
		asked := 0
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 1 && first != 0 {
				w.WriteHeader(first)
				fmt.Fprint(w, `{"code":"OutcomeUnknown","message":"it is not known whether the change was made"}`)
				return
			}
			w.WriteHeader(http.StatusInsufficientStorage)
			fmt.Fprint(w, `{"code":"NoRoom","message":"the disks are full"}`)
		})
		_, err := c.Raw(t.Context(), http.MethodPost, "/changes", nil)
		if unknown := errors.Is(err, ErrUnavailable); err == nil || unknown != (first != 0) {
			t.Errorf("after %d: %v", first, err)
		}
	}
}
