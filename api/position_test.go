package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api/backend"
	"rutter/api/internal/apitest"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/feed"
)

// refusedAs checks that an answer is a refusal by name.
func refusedAs(t *testing.T, what string, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var answer rest.Error
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != status || answer.Code != code || answer.Remedy == "" {
		t.Errorf("%s: %d %s; want %d %s with a remedy", what, w.Code, w.Body, status, code)
	}
}

// Every way to name a place by a cursor is taken while the log has it, and refused by
// name when it is another timeline: of another cluster, or of this one after a server
// was rebuilt.
func TestPositionsOfAnotherTimeline(t *testing.T) {
	ways := map[string]func(b *bed, at log.Cursor) *httptest.ResponseRecorder{
		"Last-Event-ID": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/log?after=0", "", "Accept", eventStream, "Last-Event-ID", at.String())
		},
		"after, events": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/log?after="+at.String(), "", "Accept", eventStream)
		},
		"after": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/log?after="+at.String(), "")
		},
		"cursor": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/log?cursor="+at.String(), "")
		},
		"binary": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/log?after="+at.String(), "", "Accept", feed.LogMedia)
		},
		"min_seq": func(b *bed, at log.Cursor) *httptest.ResponseRecorder {
			return b.call("GET", "/networks?min_seq="+at.String(), "")
		},
	}
	for name, replaced := range map[string]func(b *bed){
		"restored": func(b *bed) { b.store.Replace(t, testUUID(0xc2), 3, 8) },
		"rebuilt":  func(b *bed) { b.store.Replace(t, b.store.Cluster(), 3, 8) },
	} {
		b := newBed(t)
		for i := range 8 {
			b.store.Tag(t, fmt.Sprintf("tag%d", i))
		}
		at := b.store.CursorAt(6)
		for way, ask := range ways {
			if w := ask(b, at); w.Code != http.StatusOK {
				t.Errorf("%s, %s: before: %d %s", name, way, w.Code, w.Body)
			}
		}
		replaced(b)
		for way, ask := range ways {
			w := ask(b, at)
			refusedAs(t, name+", "+way, w, http.StatusConflict, backend.CodeOtherLog)
			if strings.Contains(w.Body.String(), "other") && !strings.Contains(w.Body.String(), "another") {
				t.Errorf("%s, %s: entries of another timeline are shown: %s", name, way, w.Body)
			}
		}
	}
}

// A stream that is open while the log becomes another one ends with a reason, and
// shows nothing of what is another timeline's.
func TestOpenStreamsOfAnotherTimeline(t *testing.T) {
	for _, c := range []struct {
		name, query, accept string
		cluster             log.UUID
	}{
		{"events, restored", "follow=1", eventStream, testUUID(0xc2)},
		{"events, rebuilt", "follow=1", eventStream, testUUID(0xc1)},
		{"lines, restored", "follow=1", "", testUUID(0xc2)},
		{"lines, rebuilt", "follow=1", "", testUUID(0xc1)},
		{"lines, filtered, rebuilt", "follow=1&kind=nic_tag", "", testUUID(0xc1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			for i := range 8 {
				b.store.Tag(t, fmt.Sprintf("tag%d", i))
			}
			server := httptest.NewServer(b.s.Handler())
			defer server.Close()
			defer b.s.Drain()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/log?"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", c.accept)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			defer http.DefaultClient.CloseIdleConnections()
			lines, seen, last := bufio.NewScanner(response.Body), 0, ""
			stop := time.AfterFunc(time.Minute, func() { response.Body.Close() })
			defer stop.Stop()
			for lines.Scan() {
				text := lines.Text()
				if strings.Contains(text, `"other`) && !strings.Contains(text, backend.CodeOtherLog) {
					t.Errorf("an entry of another timeline: %s", text)
				}
				if strings.Contains(text, `"name":"tag`) {
					if seen++; seen == 8 {
						b.store.Replace(t, c.cluster, 3, 8)
					}
				}
				if text != "" {
					last = text
				}
			}
			if seen != 8 || !strings.Contains(last, backend.CodeOtherLog) {
				t.Errorf("%d entries were seen; the last line is %q, want %s", seen, last, backend.CodeOtherLog)
			}
		})
	}
}

// What a server shows of the past after it was rebuilt is the new log's, not what it
// had read before.
func TestTailForgetsAnotherLog(t *testing.T) {
	for name, cluster := range map[string]log.UUID{"restored": testUUID(0xc2), "rebuilt": testUUID(0xc1)} {
		for extra := range 3 { // the other log ends before, at and behind where the first one did
			b := newBed(t)
			for i := range 8 {
				b.store.Tag(t, fmt.Sprintf("tag%d", i))
			}
			if w := b.call("GET", "/log?after=0", ""); strings.Count(w.Body.String(), `"name":"tag`) != 8 {
				t.Fatalf("before: %s", w.Body)
			}
			b.store.Replace(t, cluster, 3, 4+extra)
			for _, query := range []string{"after=0", "after=3", "after=5", "after=3&follow=1&limit=2"} {
				w := b.call("GET", "/log?"+query, "")
				for line := range strings.Lines(w.Body.String()) {
					var got log.Line
					if err := json.Unmarshal([]byte(line), &got); err != nil {
						t.Fatal(err)
					}
					if want := b.store.CursorAt(got.Seq).Chain; got.Chain != want {
						t.Errorf("%s, %d more, %s: seq %d has chain %s, the log's is %s", name, extra, query, got.Seq, got.Chain, want)
					}
				}
			}
			// What comes next extends the new one.
			b.store.Tag(t, "last")
			if w := b.call("GET", "/log?after="+(b.store.Head().Seq-1).String(), ""); !strings.Contains(w.Body.String(), `"last"`) {
				t.Errorf("%s: the newest entry: %s", name, w.Body)
			}
		}
	}
}

// The stream of a CN is of one log too: it is ended, and begins anew by its cursor.
func TestFeedOfARebuiltServer(t *testing.T) {
	for extra := range 3 {
		b := newBed(t)
		b.furnish()
		common := b.store.Head().Seq
		b.nic(fabricA, cn1)
		m := apitest.NewMirror(cn1)
		b.Sync(t, b.connect(), m)
		ended := make(chan error, 1)
		m.Until = 1 << 62
		c := b.connect()
		m.Tell = c.Watermark
		marked := make(chan log.Seq, 64)
		m.Check = func(_ *apitest.Mirror, at log.Seq) error { marked <- at; return nil }
		go func() { ended <- c.Follow(t.Context(), m.Hello(), m) }()
		<-marked
		b.store.Replace(t, b.store.Cluster(), common, extra)
		if err := <-ended; err == nil {
			t.Errorf("%d more: the stream went on", extra)
		}
		<-c.Done
		m.Check = nil
		b.Sync(t, b.connect(), m) // and compares with the log as it is
		if m.Kept.Cursor != b.store.Head() {
			t.Errorf("%d more: the CN is at %s, the log at %s", extra, m.Kept.Cursor, b.store.Head())
		}
	}
}

// Answers about the state say the cursor to follow the log from.
func TestAnswersHaveACursor(t *testing.T) {
	b := newBed(t)
	b.furnish()
	for _, path := range []string{"/networks", "/networks/" + fabricA.String(), "/log?after=0", "/cns/" + cn1.String() + "/feed?after=0"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodHead, path, nil)
		b.s.Handler().ServeHTTP(w, r)
		if got := w.Header().Get(rest.HeaderCursor); w.Code != 200 || got != b.store.Head().String() {
			t.Errorf("%s: %d, %s %q, want %s", path, w.Code, rest.HeaderCursor, got, b.store.Head())
		}
	}
}
