package rest

import (
	"net/http"
	"slices"
	"strings"
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

// Unknown is the pattern that Table.Wrap gets for paths without a route.
const Unknown = "unknown"

// Table is everything that a surface serves.
type Table struct {
	Routes []Route
	// Wrap makes the handler of a path. serve has the endpoints of all its methods.
	Wrap func(pattern string, serve Endpoint) http.Handler
	// NoRoute answers paths without a route; nil: as net/http does.
	NoRoute Endpoint
	// NoMethod answers a method that the path does not have; the header Allow is
	// already set. nil: as NoRoute, or as net/http if that is nil too.
	NoMethod Endpoint
}

// Endpoints are the routes as "METHOD /pattern", in the order of the table.
func (t *Table) Endpoints() []string {
	names := make([]string, len(t.Routes))
	for i, route := range t.Routes {
		names[i] = route.String()
	}
	return names
}

// Handler returns the handler of all routes.
func (t *Table) Handler() http.Handler {
	mux := http.NewServeMux()
	t.Register(mux)
	return mux
}

// Register adds all routes to mux.
func (t *Table) Register(mux *http.ServeMux) {
	paths := make(map[string]map[string]Endpoint)
	for _, route := range t.Routes {
		methods := paths[route.Pattern]
		if methods == nil {
			methods = make(map[string]Endpoint)
			paths[route.Pattern] = methods
		}
		methods[route.Method] = route.Serve
		if _, given := methods[http.MethodHead]; route.Method == http.MethodGet && !given {
			methods[http.MethodHead] = route.Serve
		}
	}
	for pattern, methods := range paths {
		mux.Handle(pattern, t.Wrap(pattern, t.dispatch(methods)))
	}
	if t.NoRoute != nil {
		mux.Handle("/", t.Wrap(Unknown, t.NoRoute))
	}
}

// dispatch calls the endpoint of the request's method.
func (t *Table) dispatch(methods map[string]Endpoint) Endpoint {
	allowed := make([]string, 0, len(methods))
	for method := range methods {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, r *http.Request) error {
		if serve, ok := methods[r.Method]; ok {
			return serve(w, r)
		}
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
