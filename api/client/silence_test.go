package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"rutter/log"
)

// A follower of a server that says nothing more, and does not end the stream
// either, goes on with the next server from where it was.
func TestSilentServer(t *testing.T) {
	release := make(chan struct{})
	// Each says what follows one seq only: either may be taken for silent when the
	// machine stands still, and be asked again.
	line := func(w http.ResponseWriter, r *http.Request, after string, seq int) {
		if r.URL.Query().Get("after") == after {
			fmt.Fprintf(w, `{"seq":%d,"chain":"0000000000000000","event":{"kind":"nic_tag","action":"delete","id":"a"}}`+"\n", seq)
		}
		_ = http.NewResponseController(w).Flush()
	}
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line(w, r, "0", 1)
		select { // as a process that is stopped
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(release)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line(w, r, "1", 2)
		<-r.Context().Done()
	}))
	defer other.Close()
	c, err := New(Config{Servers: []string{silent.URL, other.URL}, Silence: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := log.Seq(1)
	for l, err := range c.Log(t.Context(), LogQuery{Follow: true}) {
		if err != nil || l.Seq != want {
			t.Fatalf("got seq %d, %v, want %d", l.Seq, err, want)
		}
		if want++; l.Seq == 2 {
			break
		}
	}
}

// A reader that takes its time is no silent server.
func TestSlowReaderIsNotSilence(t *testing.T) {
	sent := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			fmt.Fprintln(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		close(sent)
	})
	c.cfg.Silence = time.Second // longer than a machine stands still
	response, err := c.stream(t.Context(), request{method: http.MethodGet, path: "/log"})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-sent // only the reader takes its time
	b := make([]byte, 2)
	for {
		n, err := response.Body.Read(b)
		if errors.Is(err, errSilent) {
			t.Fatal(err)
		}
		if n == 0 || err != nil {
			return
		}
		<-time.After(2 * c.cfg.Silence / 3) // longer than Silence in all
	}
}
