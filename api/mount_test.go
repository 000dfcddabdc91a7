package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api"
	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
)

// TestMounts: a surface sees its own paths, with or without its prefix, has the
// API's bound on bodies, and is counted under its prefix.
func TestMounts(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %d %v", r.Method, r.URL.Path, len(body), err != nil)
		return nil
	}
	surface := &api.Surface{Surface: "napi", Clients: webcheck.Triton, NoRoute: echo, Routes: []rest.Route{
		{Method: "GET", Pattern: "/ping", Serve: echo},
		{Method: "POST", Pattern: "/nics", Serve: echo},
		{Method: "PUT", Pattern: "/nics/{mac}", Serve: echo},
		{Method: "PUT", Pattern: "/fabrics/{owner_uuid}/vlans/{vlan_id}", Serve: echo},
	}}
	s, err := api.New(api.Config{Store: api.NewMemory(), Mounts: []api.Mount{{Path: "/napi", Table: surface, Strip: true}, {Path: "/fabrics", Table: surface}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) string {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Body.String()
	}
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/napi/ping", "", "GET /ping 0 false"},
		{"PUT", "/napi/nics/aa", "xyz", "PUT /nics/aa 3 false"},
		{"PUT", "/fabrics/u/vlans/2", "x", "PUT /fabrics/u/vlans/2 1 false"},
		{"DELETE", "/fabrics", "", "DELETE /fabrics 0 false"},
		{"POST", "/napi/nics", strings.Repeat("x", api.MaxBody+1), fmt.Sprintf("POST /nics %d true", api.MaxBody)},
	} {
		if got := ask(c.method, c.path, c.body); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
	if got := ask("GET", "/metrics", ""); !strings.Contains(got, `route="/napi"`) {
		t.Error("the metrics do not count the route /napi")
	}
}
