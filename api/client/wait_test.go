package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"rutter/log"
)

// TestWaitOfAServerOfBefore: a server that does not know the parameter vm refuses it. Then
// it is asked for all that is in the scopes. Another refusal is the result.
func TestWaitOfAServerOfBefore(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	refused := "vm"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Query().Get("vm"))
		if r.URL.Query().Has(refused) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"code":"InvalidParameters","message":"Invalid parameters","errors":[{"field":%q,"code":"Unknown","message":"unknown query parameter"}]}`, refused)
			return
		}
		fmt.Fprint(w, `{"done":true,"seq":7,"cns":1}`)
	}))
	defer server.Close()
	c, err := New(Config{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := Barrier{Seq: 7, Scopes: []log.Scope{log.VNetScope(7)}, VM: log.UUID{1}, Timeout: time.Minute}
	if v, err := c.Wait(t.Context(), b); err != nil || !v.Done || len(asked) != 2 || asked[0] == "" || asked[1] != "" {
		t.Errorf("got %+v, %v after questions for the VMs %q", v, err, asked)
	}
	mu.Lock()
	refused = "scope"
	mu.Unlock()
	if _, err := c.Wait(t.Context(), b); err == nil {
		t.Error("another refusal: want it")
	}
}

// TestSubmittedOnce: a change that is waited for longer than an attempt may take is submitted
// once: the server waits in the request that writes it.
func TestSubmittedOnce(t *testing.T) {
	const attempt = 20 * time.Millisecond
	var mu sync.Mutex
	var timeouts []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		timeouts = append(timeouts, r.URL.Query().Get("timeout"))
		mu.Unlock()
		asked, err := time.ParseDuration(r.URL.Query().Get("timeout"))
		if err != nil {
			t.Error(err)
		}
		time.Sleep(min(asked, 10*attempt)) // then all nodes have it, or the time is over
		if asked < 10*attempt {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"code":"FabricPending","message":"not there"}`)
			return
		}
		fmt.Fprint(w, `{"first":7,"last":7,"events":1}`)
	}))
	defer server.Close()
	c, err := New(Config{Servers: []string{server.URL}, AttemptTimeout: attempt})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	change := &log.Change{ID: NewChangeID(), Ops: []log.Op{{Action: log.Delete, Kind: log.KindVM, ID: log.UUID{1}.String()}}}
	result, err := c.SubmitAwaiting(t.Context(), change, time.Minute)
	if err != nil || result.Last != 7 {
		t.Errorf("got %+v, %v", result, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(timeouts) != 1 {
		t.Errorf("submitted with the times %q, want once", timeouts)
	}
}
