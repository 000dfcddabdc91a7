package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// nodePages are the paths whose answers name compute nodes, or say of a server what is the
// operators' matter.
var nodePages = []string{
	"/metrics", "/overview", "/console/", "/cns", "/cns/%s", "/cns/%s/status", "/cns/%s/support/logs", "/vnets/4385813",
	"/cluster", "/cluster/servers", "/cluster/features", "/status", "/snapshot/schedule", "/support/logs", "/support/settings", "/support/goroutines",
}

// A reader that is limited to tenants gets no page that names compute nodes, by host name
// or by UUID; a reader that is not gets all but those that are for operators.
func TestWhoMaySeeNodes(t *testing.T) {
	store := newMemory()
	server, err := New(Config{Store: store, Identify: byHeader, Past: folded{store}})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store, server)
	b.furnishTwo()
	for _, path := range nodePages {
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, cn1)
		}
		want := http.StatusOK
		if strings.Contains(path, "/support/") {
			want = http.StatusForbidden
		}
		if w := b.call("GET", path, "", asHeader, "reader"); (w.Code == http.StatusForbidden) != (want == http.StatusForbidden) {
			t.Errorf("GET %s of a reader of everything: %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
	b.must("PUT", "/grants/reader:test", `{"owner_uuids":["`+readerOwner+`"]}`)
	for _, path := range nodePages {
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, cn1)
		}
		w := b.call("GET", path, "", asHeader, "reader")
		if text := w.Body.String(); w.Code != http.StatusForbidden || strings.Contains(text, "rutter_") || strings.Contains(text, cn2.String()) {
			t.Errorf("GET %s of a reader of one tenant: %d %.200s", path, w.Code, text)
		}
	}
	limited := matrix.Identity{Role: matrix.Reader, Owners: []log.UUID{{1}}}
	for _, what := range []string{"GET /metrics", "GET /overview", "GET /vnets/{vnet}", "GET /cns/{id}/status", "GET /support/{part}"} {
		if row := matrix.Find(what); row == nil || row.For(limited) != matrix.Deny {
			t.Errorf("%s is open to a reader of one tenant", what)
		}
	}
}
