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
