package rest

import (
	"net/http"
	"slices"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
)

// Endpoint answers a request, or writes nothing and returns the error to answer with.
type Endpoint func(w http.ResponseWriter, r *http.Request) error

// Serve makes an endpoint from a handler that answers its own errors.
func Serve(h http.Handler) Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
}

// Route is a method of a path with its endpoint. The route of GET answers HEAD too.
type Route struct {
	Method  string
	Pattern string // a path of net/http's ServeMux, without a method
	Serve   Endpoint
}

// String is "METHOD /pattern".
func (r Route) String() string { return r.Method + " " + r.Pattern }

// Unknown is the pattern of requests without a route.
const Unknown = "unknown"

// Table is everything that a surface serves.
type Table struct {
	// Surface is the name before the surface's rows of the matrix; "": the API itself.
	Surface string
	// Clients says which types of bodies are accepted.
	Clients webcheck.Kind
	Routes  []Route
	// Wrap makes the handler of a route; nil: its errors are returned to the gate.
	Wrap func(pattern string, serve Endpoint) http.Handler
	// NoRoute answers paths without a route; nil: the mux does.
	NoRoute Endpoint
	// NoMethod answers a method that the path does not have; the header Allow is
	// already set. nil: as NoRoute, or as net/http if that is nil too.
	NoMethod Endpoint
}

// Match is the route that the mux chose for a request: a request is authorised by the
// row of the route whose endpoint runs.
type Match struct {
	Pattern string      // of the mux, with the place's prefix; Unknown if there is no route
	Row     *matrix.Row // nil if the matrix has none
}

// Gate decides whether a request is answered by the route that it matched, and calls
// serve if so. It answers the error of serve.
type Gate func(w http.ResponseWriter, r *http.Request, m Match, serve Endpoint)

// Open is a gate that lets every request pass, for tables whose errors are answered by
// Wrap.
func Open(w http.ResponseWriter, r *http.Request, _ Match, serve Endpoint) { _ = serve(w, r) }

// Place is where a table is served.
type Place struct {
	// Prefix is a path that begins with a slash and ends without one, or "".
	Prefix string
	// Strip: the prefix stands before the patterns of the table, whose endpoints do not
	// see it. Else only those routes are served whose patterns begin with it.
	Strip bool
	Gate  Gate
}

// Endpoints are the routes as "METHOD /pattern", in the order of the table.
func (t *Table) Endpoints() []string {
	names := make([]string, len(t.Routes))
	for i, route := range t.Routes {
		names[i] = route.String()
	}
	return names
}

// Row returns the row of a route; nil if the matrix has none. HEAD has the row of GET.
func (t *Table) Row(method, pattern string) *matrix.Row {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	name := method + " " + pattern
	if t.Surface != "" {
		name = t.Surface + " " + name
	}
	return matrix.Find(name)
}

// Handler returns the handler of all routes, at the root and without a gate.
func (t *Table) Handler() http.Handler { return t.At(Place{Gate: Open}) }

// At returns the handler of all routes at a place.
func (t *Table) At(at Place) http.Handler {
	mux := http.NewServeMux()
	t.Register(mux, at)
	return mux
}

// Register adds the routes to mux, at a place.
func (t *Table) Register(mux *http.ServeMux, at Place) {
	paths := make(map[string][]Route)
	for _, route := range t.Routes {
		if at.has(route.Pattern) {
			paths[route.Pattern] = append(paths[route.Pattern], route)
		}
	}
	for pattern, routes := range paths {
		mux.Handle(at.full(pattern), t.served(pattern, routes, at))
	}
	if t.NoRoute == nil {
		return
	}
	none := t.none(Unknown, Unknown, t.NoRoute, at)
	unknown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { none.pass(w, r, at.Gate) })
	below := at.Prefix + "/"
	if _, taken := paths[below]; !taken {
		mux.Handle(below, unknown)
	}
	if _, taken := paths[at.Prefix]; !taken && at.Prefix != "" {
		mux.Handle(at.Prefix, unknown)
	}
}

// has reports whether a pattern of a table is served at the place.
func (at Place) has(pattern string) bool {
	return at.Strip || at.Prefix == "" || pattern == at.Prefix || strings.HasPrefix(pattern, at.Prefix+"/")
}

// full is the pattern of the mux for a pattern of a table.
func (at Place) full(pattern string) string {
	if at.Strip {
		return at.Prefix + pattern
	}
	return pattern
}

// end is where a request arrives: what it is authorised for, and what answers it.
type end struct {
	match Match
	serve Endpoint
}

func (e *end) pass(w http.ResponseWriter, r *http.Request, gate Gate) { gate(w, r, e.match, e.serve) }

// served is the handler of a pattern: the method chooses the end.
func (t *Table) served(pattern string, routes []Route, at Place) http.Handler {
	ends := make(map[string]*end)
	for _, route := range routes {
		e := &end{Match{at.full(pattern), t.Row(route.Method, pattern)}, at.stripped(t.wrapped(pattern, t.bodied(route.Serve)))}
		ends[route.Method] = e
		if _, given := ends[http.MethodHead]; route.Method == http.MethodGet && !given {
			ends[http.MethodHead] = e
		}
	}
	allowed := make([]string, 0, len(ends))
	for method := range ends {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	other := t.none(pattern, at.full(pattern), t.noMethod(strings.Join(allowed, ", ")), at)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e, ok := ends[r.Method]; ok {
			e.pass(w, r, at.Gate)
			return
		}
		other.pass(w, r, at.Gate)
	})
}

// none is the end of requests without a route. pattern is the table's, full the mux's.
func (t *Table) none(pattern, full string, serve Endpoint, at Place) *end {
	return &end{Match{full, matrix.Find(matrix.NoRoute)}, at.stripped(t.wrapped(pattern, serve))}
}

// noMethod answers a method that a path does not have.
func (t *Table) noMethod(allow string) Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if t.NoMethod == nil && t.NoRoute != nil {
			return t.NoRoute(w, r)
		}
		w.Header().Set("Allow", allow)
		if t.NoMethod != nil {
			return t.NoMethod(w, r)
		}
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return nil
	}
}

func (t *Table) wrapped(pattern string, serve Endpoint) Endpoint {
	if t.Wrap == nil {
		return serve
	}
	return Serve(t.Wrap(pattern, serve))
}

// stripped takes the prefix from the path that an endpoint sees. The values of the
// pattern's wildcards stay.
func (at Place) stripped(serve Endpoint) Endpoint {
	if !at.Strip || at.Prefix == "" {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		inner, u := *r, *r.URL
		if u.Path = strings.TrimPrefix(u.Path, at.Prefix); u.Path == "" {
			u.Path = "/"
		}
		u.RawPath = strings.TrimPrefix(u.RawPath, at.Prefix)
		inner.URL = &u
		return serve(w, &inner)
	}
}

// Bounded returns a Table.Wrap that reads at most maxBody bytes of a body, and answers
// the errors of endpoints with write.
func Bounded(maxBody int64, write func(w http.ResponseWriter, r *http.Request, err error)) func(string, Endpoint) http.Handler {
	return func(_ string, serve Endpoint) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if err := serve(w, r); err != nil {
				write(w, r, err)
			}
		})
	}
}

// IsRead reports whether a request only reads: GET or HEAD.
func IsRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
