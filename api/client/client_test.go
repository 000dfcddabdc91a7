package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a server that answers with h.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(Config{Servers: []string{server.URL}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestConfigIsChecked(t *testing.T) {
	for _, servers := range [][]string{nil, {"127.0.0.1:7420"}, {"ftp://host"}, {"http://host/path"}} {
		if _, err := New(Config{Servers: servers}); err == nil {
			t.Errorf("servers %q were taken", servers)
		}
	}
}

// A retry of a write has the id of the first attempt.
func TestRetriesKeepTheChangeID(t *testing.T) {
	ids := make(map[string]int)
	calls := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ids[r.Header.Get(HeaderChangeID)]++
		if calls++; calls < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"name":"a"}`)
	})
	if _, err := c.Create(t.Context(), "/nic_tags", []byte(`{"name":"a"}`)); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 1 || calls != 4 {
		t.Errorf("%d calls with ids %v, want 4 with one id", calls, ids)
	}
	for id := range ids {
		u, err := log.ParseUUID(id)
		if _, v7 := u.UnixMilli(); err != nil || !v7 {
			t.Errorf("change id %q is no version 7 UUID", id)
		}
	}
}

func TestAnswersBecomeErrors(t *testing.T) {
	for _, test := range []struct {
		status  int
		body    string
		refusal string // its code, or "" for *Error
	}{
		{422, `{"code":"InvalidParameters","message":"m"}`, "InvalidParameters"},
		{404, `{"code":"ResourceNotFound","message":"m"}`, "ResourceNotFound"},
		{507, `{"code":"SubnetFull","message":"m"}`, "SubnetFull"},
		{410, `{"code":"CursorCompacted","message":"m"}`, "CursorCompacted"},
		{500, `{"code":"InternalError","message":"m"}`, ""},
		{501, `not JSON`, ""},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			fmt.Fprint(w, test.body)
		})
		_, err := c.Get(t.Context(), "/nics/x", nil)
		var refusal *log.Refusal
		var failed *Error
		switch {
		case test.refusal != "" && (!errors.As(err, &refusal) || refusal.Code != test.refusal):
			t.Errorf("%d: got %v, want the refusal %s", test.status, err, test.refusal)
		case test.refusal == "" && (!errors.As(err, &failed) || failed.Status != test.status):
			t.Errorf("%d: got %v, want an *Error", test.status, err)
		}
	}
}

const logLine = `{"seq":%d,"time":"2026-11-21T09:00:00.000000001Z","kind":"nic_tag","action":"create","id":"a","revision":1,"actor":"x","change_id":"0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6","more":0,"scopes":["all"],"object":{"name":"a","mtu":1500},"chain":"0011223344556677"}` + "\n"

// A log that breaks off goes on from where it was; one that ends with a reason
// ends with it.
func TestLogGoesOn(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			fmt.Fprintf(w, logLine+"\n", 1)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			if after := r.URL.Query().Get("after"); after != "1" {
				t.Errorf("asked after %s, want 1", after)
			}
			fmt.Fprintf(w, logLine, 2)
		default:
			_, _ = io.WriteString(w, `{"error":{"code":"CursorCompacted","message":"gone"}}`+"\n")
		}
	})
	var got []log.Seq
	var last error
	for line, err := range c.Log(t.Context(), LogQuery{Follow: true}) {
		if last = err; err == nil {
			got = append(got, line.Seq)
		}
	}
	var refusal *log.Refusal
	if fmt.Sprint(got) != "[1 2]" || !errors.As(last, &refusal) || refusal.Code != "CursorCompacted" {
		t.Errorf("got %v, then %v", got, last)
	}
}

// An answer that ends at the reader's budget is not the end of the log (SAFETY W1): the reader
// goes on from the cursor of its last line, and no entry is missing or comes twice.
func TestLogGoesOnAfterABudget(t *testing.T) {
	next := log.Cursor{Cluster: log.UUID{7}, Seq: 5}
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			fmt.Fprintf(w, logLine+"\n"+`{"next":%q}`+"\n", 1, next)
			return
		}
		if at := r.URL.Query().Get("cursor"); at != next.String() {
			t.Errorf("asked from %q, want %s", at, next)
		}
		fmt.Fprintf(w, logLine, 6)
	})
	var got []log.Seq
	for line, err := range c.Log(t.Context(), LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line.Seq)
	}
	if fmt.Sprint(got) != "[1 6]" || calls.Load() != 2 {
		t.Errorf("got %v in %d answers, want [1 6] in 2", got, calls.Load())
	}
}

func TestFeedThatIsRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"NotReady","message":"catching up"}`)
	})
	if _, err := c.Feed(t.Context(), c.Servers()[0]); err == nil {
		t.Error("a refused upgrade gave a connection")
	}
}

func TestContextEndsRetries(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "/nics", nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// Who is refused by each server in turn is told so at once; by some, goes on.
func TestUnwelcomeEverywhere(t *testing.T) {
	var asked atomic.Int32
	welcome := int32(1 << 30)
	c, err := New(Config{
		Servers: []string{"http://a", "http://b", "http://c"}, Timeout: 20 * time.Second,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if asked.Add(1) == welcome {
				return nil, errors.New("connection refused")
			}
			return nil, errors.New("alert")
		},
		Unwelcome: func(err error) error {
			if strings.HasSuffix(err.Error(), "alert") {
				return errors.New("it was revoked")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{3, 5} { // the second time one server is only away
		asked.Store(0)
		if _, err := c.Get(t.Context(), "/nics", nil); !errors.Is(err, ErrCertificate) || !strings.Contains(err.Error(), "it was revoked") || errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v, want ErrCertificate with its reason", err)
		}
		if got := asked.Load(); got != want {
			t.Errorf("%d servers asked, want %d", got, want)
		}
		welcome = 2
	}
	s := c.NewStream()
	if err := s.Run(t.Context()); !errors.Is(err, ErrCertificate) {
		t.Errorf("a stream ended with %v, want ErrCertificate", err)
	}
}
