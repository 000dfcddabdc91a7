package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rutter/api/backend"
	"rutter/log"
)

// Paths take names, addresses and the beginnings of ids, and answer with the id.
func TestNamesInPaths(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	vm := testUUID(770).String()
	b.must("POST", "/vms", `{"uuid":"`+vm+`","alias":"a b","owner_uuid":"`+ownerA.String()+`","state":"running","server_uuid":"`+cn1.String()+`"}`)
	for path, id := range map[string]string{
		"/nics/10.0.0.5":               mac,
		"/nics/" + mac[:14]:            "",
		"/vms/a%20b":                   vm,
		"/servers/" + cn1.String()[:9]: "",
		"/networks/" + strings.ToUpper(fabricA.String()): "",
	} {
		w := b.call("GET", path, "")
		if got := w.Header().Get(backend.HeaderID); id != "" && (got != id || w.Code != http.StatusOK) {
			t.Errorf("GET %s: %s, %q; want %s", path, pretty(w), got, id)
		} else if w.Code != http.StatusOK && w.Code != http.StatusConflict {
			t.Errorf("GET %s: %s", path, pretty(w))
		}
	}
	// A write by a name is one of the object; the answer says of which.
	w := b.call("PUT", "/vms/a%20b", `{"alias":"web0"}`)
	if w.Code != http.StatusOK || w.Header().Get(backend.HeaderID) != vm {
		t.Errorf("PUT by name: %s, %v", pretty(w), w.Header())
	}
	if w := b.call("PUT", "/vms/a%20b", `{"alias":"web1"}`); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("PUT by the name of before: %s", pretty(w))
	}
	// Two of one name: none is chosen, for reads and writes.
	other := testUUID(771).String()
	b.must("POST", "/vms", `{"uuid":"`+other+`","alias":"web0","owner_uuid":"`+ownerB.String()+`","state":"running","server_uuid":"`+cn1.String()+`"}`)
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		w := b.call(method, "/vms/web0", `{"quota":10}`)
		if text := w.Body.String(); w.Code != http.StatusConflict || !strings.Contains(text, vm) || !strings.Contains(text, other) || !strings.Contains(text, ownerB.String()) || !strings.Contains(text, "AmbiguousName") {
			t.Errorf("%s of two: %s", method, pretty(w))
		}
	}
	// The UUID of another as a name wins nothing, and the other's is deleted by its own.
	b.must("PUT", "/vms/"+other, `{"alias":"`+vm+`"}`)
	if w := b.call("DELETE", "/vms/"+vm, ""); w.Code != http.StatusNoContent {
		t.Errorf("DELETE: %s", pretty(w))
	}
	if w := b.call("DELETE", "/vms/"+vm, ""); w.Code != http.StatusNotFound {
		t.Errorf("DELETE of what is gone: %s", pretty(w))
	}
	b.must("GET", "/vms/"+other, "")
	// What a path cannot have.
	b.must("PUT", "/vms/"+other, `{"alias":"a/b"}`)
	w = b.call("GET", "/names?kind=vm&name="+url.QueryEscape("a/b"), "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), other) {
		t.Errorf("GET /names: %s", pretty(w))
	}
	for _, query := range []string{"", "?name=", "?name=a&kind=thing", "?name=" + strings.Repeat("a", 600)} {
		if w := b.call("GET", "/names"+query, ""); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("GET /names%s: %s", query, pretty(w))
		}
	}
	// A past place: by the name of then.
	at := b.store.Head().Seq
	if w := b.call("DELETE", "/vms/"+vm+"x", ""); w.Code != http.StatusUnprocessableEntity || b.store.Head().Seq != at {
		t.Errorf("DELETE of no name: %s", pretty(w))
	}
}

// A write by a name is refused if the object changes after the name was looked up: the name
// may be another's by then.
func TestWriteByAChangedName(t *testing.T) {
	b := newBed(t)
	b.furnish()
	vm := testUUID(770).String()
	b.must("POST", "/vms", `{"uuid":"`+vm+`","alias":"web0","owner_uuid":"`+ownerA.String()+`","state":"running","server_uuid":"`+cn1.String()+`"}`)
	tag := b.call("GET", "/vms/web0", "").Header().Get("Etag")
	b.must("PUT", "/vms/"+vm, `{"quota":7}`)
	if w := b.call("DELETE", "/vms/web0", "", "If-Match", tag); w.Code != http.StatusPreconditionFailed {
		t.Errorf("the client's own condition: %s", pretty(w))
	}
	if w := b.call("DELETE", "/vms/web0", ""); w.Code != http.StatusNoContent || w.Header().Get(backend.HeaderID) != vm {
		t.Errorf("DELETE: %s %v", pretty(w), w.Header())
	}
}

// between is a store in which something happens after a write was looked up and before it is
// decided.
type between struct {
	*memory
	happen func()
}

// Propose implements backend.Store.
func (b *between) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	if happen := b.happen; happen != nil {
		b.happen = nil
		happen()
	}
	return b.memory.Propose(ctx, c)
}

// A name that another object takes between the look-up and the decision deletes and changes
// neither; what is addressed by its id has no such condition.
func TestNameMovesBeforeTheDecision(t *testing.T) {
	store := &between{memory: newMemory()}
	s, err := New(Config{Version: "test", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store.memory, s)
	b.furnish()
	mine, other := testUUID(770).String(), testUUID(771).String()
	for id, alias := range map[string]string{mine: "web", other: "old"} {
		b.must("POST", "/vms", `{"uuid":"`+id+`","alias":"`+alias+`","owner_uuid":"`+ownerA.String()+`","state":"running","server_uuid":"`+cn1.String()+`"}`)
	}
	for _, method := range []string{"DELETE", "PUT"} {
		store.happen = func() {
			b.must("PUT", "/vms/"+mine, `{"alias":"old"}`)
			b.must("PUT", "/vms/"+other, `{"alias":"web"}`)
		}
		if w := b.call(method, "/vms/web", `{"quota":11}`); w.Code != http.StatusPreconditionFailed {
			t.Errorf("%s: %s", method, pretty(w))
		}
		if vm := b.must("GET", "/vms/"+mine, ""); vm["quota"] == 11.0 {
			t.Errorf("%s has changed it: %v", method, vm)
		}
		b.must("GET", "/vms/"+other, "")
		mine, other = other, mine
	}
	store.happen = func() { b.must("PUT", "/vms/"+mine, `{"alias":"x"}`) }
	if w := b.call("DELETE", "/vms/"+mine, ""); w.Code != http.StatusNoContent {
		t.Errorf("DELETE by id: %s", pretty(w))
	}
}

// A write by a name that is sent again, because its answer was lost, is the same change: the
// first try has changed the object, and so the condition that the name stands for.
func TestRetryOfAWriteByName(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.must("PUT", "/networks/"+fabricA.String(), `{"name":"blue"}`)
	for path, body := range map[string]string{"/networks/blue": `{"description":"once"}`, "/servers/cn1": `{"comments":"once"}`} {
		for range 2 {
			id := log.UUID(uuid.Must(uuid.NewV7())).String()
			first := b.call("PUT", path, body, "Rutter-Change-Id", id)
			again := b.call("PUT", path, body, "Rutter-Change-Id", id)
			if first.Code != http.StatusOK || again.Code != http.StatusOK || first.Header().Get("Etag") != again.Header().Get("Etag") {
				t.Errorf("PUT %s: %s, and again %s", path, pretty(first), pretty(again))
			}
			if w := b.call("PUT", path, strings.Replace(body, "once", "twice", 1), "Rutter-Change-Id", id); w.Code == http.StatusOK {
				t.Errorf("another content: %s", pretty(w))
			}
		}
	}
}
