package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/api"
	"rutter/api/auth/allow"
	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/triton/changefeed"
	"rutter/api/triton/cnapi"
	"rutter/api/triton/napi"
	"rutter/api/triton/netreport"
	"rutter/api/triton/vmapi"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
)

// surfaces are the tables of all surfaces, without the API's own, over no store.
func surfaces(t *testing.T) map[string]*api.Surface {
	t.Helper()
	store := storeapi.SurfaceStore{}
	feeds, err := changefeed.New(changefeed.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := netreport.New(netreport.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	networks, err := napi.New(napi.Config{Store: store, Changefeeds: feeds.Table().Routes})
	if err != nil {
		t.Fatal(err)
	}
	pki, err := enrol.New(enrol.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	vms, err := vmapi.New(vmapi.Config{Store: store, Changefeeds: feeds.Table().Routes})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := cnapi.New(cnapi.Config{Store: store, NewID: func() (log.UUID, error) { return log.UUID{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*api.Surface{
		"changefeeds": feeds.Table(), "reports": reports.Table(), "napi": networks.Table(), "pki": pki.Table(), "vmapi": vms.Table(), "cnapi": nodes.Table(),
	}
}

// mountsOf are the mounts of a server with TLS.
func mountsOf(all map[string]*api.Surface) []api.Mount {
	mounts := append(napiMounts(all["napi"]), cnapiMounts(all["cnapi"])...)
	return append(mounts,
		api.Mount{Path: "/changefeeds", Table: all["changefeeds"]}, api.Mount{Path: "/reports", Table: all["reports"], Strip: true},
		api.Mount{Path: "/vmapi", Table: all["vmapi"], Strip: true}, api.Mount{Path: enrol.Path, Table: all["pki"], Strip: true})
}

// Each route of each surface has a row, and each row a route.
func TestEverySurfaceHasRows(t *testing.T) {
	served := make(map[string]bool)
	for surface, table := range surfaces(t) {
		if table.Surface != surface {
			t.Errorf("the table of %s has the rows of %q", surface, table.Surface)
		}
		for _, route := range table.Routes {
			row := table.Row(route.Method, route.Pattern)
			if row == nil {
				t.Errorf("%s %s has no row in api/auth/matrix: say who may do it, and why", surface, route)
				continue
			}
			served[row.What] = true
		}
	}
	for _, row := range matrix.Surfaces() {
		if !served[row.What] {
			t.Errorf("the row %q is of nothing that is served", row.What)
		}
	}
}

// reached is what answers in place of every endpoint: the route whose endpoint runs.
func reached(all map[string]*api.Surface) {
	for surface, table := range all {
		routes := slices.Clone(table.Routes)
		for i, route := range routes {
			routes[i].Serve = func(w http.ResponseWriter, r *http.Request) error {
				method := route.Method
				if method == http.MethodHead {
					method = http.MethodGet
				}
				w.Header().Set("Reached", surface+" "+method+" "+route.Pattern)
				w.WriteHeader(http.StatusTeapot)
				return nil
			}
		}
		table.Routes = routes
	}
}

// concrete is a path of a pattern.
func concrete(pattern string) string {
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i] = "x"
		}
	}
	return strings.Join(parts, "/")
}

// who may reach an endpoint is decided by the row of that endpoint: for every role,
// every route of every surface, every place where it is served, and paths with an
// escaped letter. Nothing that answers is another route than the one whose row decided.
func TestWhatDecidesIsWhatAnswers(t *testing.T) {
	all := surfaces(t)
	reached(all)
	var who matrix.Identity
	s, err := api.New(api.Config{Store: storeapi.Store{}, Mounts: mountsOf(all), Identify: func(*http.Request) matrix.Identity { return who }})
	if err != nil {
		t.Fatal(err)
	}
	roles := []matrix.Identity{
		{Role: matrix.Join, Name: "192.0.2.1"},
		{Role: matrix.CN, UUID: log.UUID{1}},
		{Role: matrix.Operator, Name: "ada"},
		{Role: matrix.Server, Name: "s1"},
		{Role: matrix.Foreign, Name: "10.0.0.1"},
		{Role: matrix.Foreign, Name: "10.0.0.2", Write: true},
	}
	asked := 0
	for _, m := range mountsOf(all) {
		for _, route := range m.Table.Routes {
			path := concrete(route.Pattern)
			switch {
			case m.Strip:
				path = m.Path + path
			case path != m.Path && !strings.HasPrefix(path, m.Path+"/"):
				continue
			}
			row := m.Table.Row(route.Method, route.Pattern)
			for _, who = range roles {
				asked++
				who.Name = fmt.Sprint(asked) // a client of its own, because of the limits of one
				if who.Role == matrix.CN {
					who.UUID = log.UUID{byte(asked >> 8), byte(asked), 1}
				}
				for _, path := range []string{path, strings.Replace(path, "s", "%73", 1), strings.Replace(path, "x", "%78", 1)} {
					w := httptest.NewRecorder()
					s.Handler().ServeHTTP(w, httptest.NewRequest(route.Method, path, nil))
					got, want := w.Header().Get("Reached"), row.What
					if row.For(who) == matrix.Deny {
						want = ""
					}
					if got != want || (got == "") != (w.Code == http.StatusForbidden) {
						t.Errorf("%s %s as %s: %d, reached %q, want %q", route.Method, path, who.Actor(), w.Code, got, want)
					}
				}
			}
		}
	}
	t.Logf("%d identities asked", asked)
}

// The decision and the dispatch once read one path in two ways: without a certificate
// this reached the endpoint of POST /servers/{server}. Such paths reach nothing, at the
// API and at the listeners of the surfaces.
func TestPathsWithTwoReadings(t *testing.T) {
	all := surfaces(t)
	reached(all)
	s, err := api.New(api.Config{Store: storeapi.Store{}, Mounts: mountsOf(all), Identify: func(*http.Request) matrix.Identity {
		return matrix.Identity{Role: matrix.Join, Name: "192.0.2.1"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	const id = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	for _, path := range []string{
		"/cnapi/servers/" + id + "%2f..%2f..%2f..%2fping", "/cnapi/servers/%2e%2e/ping", "/cnapi/servers/..%2fping", "/cnapi/servers/x/../../ping",
		"/napi/nics/%2e%2e/ping", "/napi//ping", "/vmapi/vms/x%5c..%5c..%5cping", "/pki/tokens/..%2f..%2fpki%2fbundle", "/pki/./bundle", "//pki/bundle", "/pki/bundle%00",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusBadRequest || w.Header().Get("Reached") != "" || !strings.Contains(w.Body.String(), "BadPath") {
				t.Errorf("%s %s: %d %s, reached %q", method, path, w.Code, w.Body, w.Header().Get("Reached"))
			}
		}
	}
	for name, table := range all {
		g := &allow.Handler{List: allow.Loopback(), Surface: name, Granted: func(netip.Addr, string) (allow.Right, bool) { return allow.Read, true }}
		g.Serve(table, nil)
		for _, path := range []string{"/servers/" + id + "%2f..%2f..%2fping", "/nics/..%2f..%2fping", "//ping", "/x/../ping"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			if g.ServeHTTP(w, r); w.Code != http.StatusBadRequest || w.Header().Get("Reached") != "" {
				t.Errorf("the listener of %s, %s: %d, reached %q", name, path, w.Code, w.Header().Get("Reached"))
			}
		}
	}
}

// JSON that is nested deeper than 32 is refused by every route that takes a body, before
// its endpoint runs; a body of a type that a page of any site can send is, too.
func TestBodiesOfEveryRoute(t *testing.T) {
	all := surfaces(t)
	reached(all)
	local := matrix.Identity{Role: matrix.Local}
	s, err := api.New(api.Config{Store: storeapi.Store{}, Mounts: mountsOf(all), Identify: func(r *http.Request) matrix.Identity {
		if r.URL.Path == enrol.Path+"/renew" {
			return matrix.Identity{Role: matrix.CN, UUID: log.UUID{1}}
		}
		return local
	}})
	if err != nil {
		t.Fatal(err)
	}
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	ask := func(method, path, media, body string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	check := func(method, path string, own bool) {
		t.Helper()
		if status, text := ask(method, path, "application/json", nested(33)); status != http.StatusUnprocessableEntity || !strings.Contains(text, "nested deeper than 32") {
			t.Errorf("%s %s with 33 levels: %d %s", method, path, status, text)
		}
		for _, media := range []string{"text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			if status, text := ask(method, path, media, "{}"); status != http.StatusUnsupportedMediaType || !strings.Contains(text, "application/json") {
				t.Errorf("%s %s with %s: %d %s", method, path, media, status, text)
			}
		}
		if own {
			if status, text := ask(method, path, "", "{}"); status != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s without a type: %d %s", method, path, status, text)
			}
		}
	}
	routes := 0
	for _, m := range mountsOf(all) {
		for _, route := range m.Table.Routes {
			path := concrete(route.Pattern)
			if !m.Strip && path != m.Path && !strings.HasPrefix(path, m.Path+"/") || route.Method == "GET" || route.Method == "HEAD" {
				continue
			}
			if m.Strip {
				path = m.Path + path
			}
			check(route.Method, path, m.Path == enrol.Path || m.Path == "/reports")
			if status, _ := ask(route.Method, path, "application/json", nested(32)); status != http.StatusTeapot && m.Path != enrol.Path {
				t.Errorf("%s %s with 32 levels: %d", route.Method, path, status)
			}
			routes++
		}
	}
	for _, name := range s.Endpoints() {
		method, pattern, _ := strings.Cut(name, " ")
		if method != "GET" && method != "HEAD" {
			check(method, concrete(pattern), true)
			routes++
		}
	}
	t.Log(fmt.Sprint(routes, " routes that take a body"))
}
