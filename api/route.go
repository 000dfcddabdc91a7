package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/backend"
	"rutter/api/console"
	"rutter/api/internal/rest"
	"rutter/api/internal/writestream"
	"rutter/log"
	"rutter/log/intake"
)

// table returns every path of this package.
func (s *Server) table() []rest.Route {
	return slices.Concat(
		(&objectRoutes{s.store, s.read, s.write, s.logs.Get}).routes(),
		(&vmmRoutes{s.store, s.read, s.cfg.VMMs, s.guard, &s.acknowledged}).routes(),
		(&changeRoutes{s.store, s.write}).routes(),
		writestream.New(s.store, s.guard, s.logger, &s.acknowledged, s.draining, s.streams.Enter).Routes(),
		(&pastRoutes{s.store, s.cfg.Past, s.guard, s.read}).routes(),
		(&nameRoutes{s.read}).routes(),
		(&lookupRoutes{s.store, s.read, s.nodes, s.nodes}).routes(),
		(&clusterRoutes{s.store, s.guard, s.read, s.cfg.Cluster, s.cfg.Retainer, s.cfg.Backups, s.logger}).routes(),
		(&grantRoutes{s.store, s.cfg.NewID, s.guard, s.write, s.logger}).routes(),
		s.health.routes(),
		s.described.routes(),
		s.overview.Routes(),
		s.nodes.Routes(),
		s.barrier.Routes(),
		[]rest.Route{
			{Method: "GET", Pattern: "/log", Serve: s.logs.Get},
			{Method: "GET", Pattern: "/log/search", Serve: s.logs.Search},
			{Method: "GET", Pattern: "/metrics", Serve: rest.Serve(s.metrics.handler)},
			{Method: "GET", Pattern: strings.TrimSuffix(console.Prefix, "/"), Serve: rest.Serve(http.RedirectHandler(console.Prefix, http.StatusMovedPermanently))},
			{Method: "GET", Pattern: console.Prefix, Serve: rest.Serve(console.Handler())},
		},
	)
}

// Endpoints returns METHOD /PATTERN of every endpoint of this package, sorted, without
// those of Config.Mounts.
func (s *Server) Endpoints() []string {
	names := (&rest.Table{Routes: s.table()}).Endpoints()
	slices.Sort(names)
	return names
}

// pathsRemedy names the paths: those of the kinds, by their table, and the others.
var pathsRemedy = func() string {
	var paths strings.Builder
	for _, kind := range log.Kinds() {
		if path := kind.Describe().Path; path != "" {
			paths.WriteString("/" + path + ", ")
		}
	}
	return "the paths are " + paths.String() + "/changes, /log, /feed, /cns, /vnets, /wait, /names, /lookup, /trace, /cluster, /status, /overview, /console, /openapi.json, /ping, /livez, /readyz and /metrics"
}()

// own is the table of this package's routes.
func (s *Server) own() *rest.Table {
	return &rest.Table{
		Routes: s.table(),
		NoRoute: func(_ http.ResponseWriter, r *http.Request) error {
			return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, pathsRemedy, "%s does not exist", r.URL.Path)
		},
		NoMethod: noMethod,
	}
}

// routes builds the mux of all paths: those of this package and those of its mounts.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.own().Register(mux, rest.Place{Gate: func(w http.ResponseWriter, r *http.Request, m rest.Match, serve rest.Endpoint) {
		s.answer(w, r, m.Pattern, m.Row, serve)
	}})
	for _, m := range s.cfg.Mounts {
		m.Table.Register(mux, rest.Place{Prefix: m.Path, Strip: m.Strip, Gate: func(w http.ResponseWriter, r *http.Request, match rest.Match, serve rest.Endpoint) {
			s.answer(w, r, m.Path, match.Row, serve)
		}})
	}
	return mux
}

// checked returns the handler of every path. It refuses requests that webcheck refuses
// before they are routed. hosts may be nil: then the header Host is not checked.
func (s *Server) checked(hosts *webcheck.Hosts) http.Handler {
	malformed := matrix.Find(matrix.Malformed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := hosts
		if who, ok := matrix.From(r.Context()); ok && (who.Role == matrix.CN || who.Role == matrix.Server) {
			asked = nil // no browser has such a certificate, and these programs check whom they ask by its role
		}
		refusal := webcheck.Request(r, asked)
		if refusal == nil {
			s.mux.ServeHTTP(w, r)
			return
		}
		s.answer(w, r, rest.Unknown, malformed, func(http.ResponseWriter, *http.Request) error { return rest.OfRefusal(refusal) })
	})
}

// noMethod answers a method that the path does not have. The header Allow is already
// set.
func noMethod(w http.ResponseWriter, r *http.Request) error {
	return rest.Fail(http.StatusMethodNotAllowed, rest.CodeNoMethod, "use one of "+w.Header().Get("Allow"), "%s is not allowed on %s", r.Method, r.URL.Path)
}

// answer checks whether the request may be answered, calls the endpoint that it matched,
// answers its error, and counts both under the route's name. row is the endpoint's.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route string, row *matrix.Row, serve rest.Endpoint) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	begin := time.Now()
	seen := &rest.Recorder{ResponseWriter: w}
	control := http.NewResponseController(w)
	// Only connections of tests have no deadlines; their clients are trusted.
	_ = control.SetReadDeadline(begin.Add(bodyTime))
	_ = control.SetWriteDeadline(begin.Add(rest.AnswerTime))
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	err := s.mayChange(r, route)
	if err == nil {
		err = s.guard.Serve(seen, r, row, guard.Work{Stream: streamed[route], Free: unbudgeted[route]}, serve)
	}
	if err != nil {
		backend.WriteError(seen, r, err)
	}
	// The next request's header has its own deadline.
	_ = control.SetReadDeadline(time.Time{})
	s.metrics.observe(route, r.Method, seen.Status, time.Since(begin))
}

// streamed are the routes whose answers may last. guard.MaxStreams bounds them.
var streamed = map[string]bool{"/feed": true, "/log": true, intake.Path: true, "/cns/{id}/feed": true, "/wait": true, "/changefeeds": true}

// unbudgeted are the paths whose answers are counted elsewhere, or cost little. A
// client that has used up its budget of reading may still use them.
var unbudgeted = map[string]bool{
	"/feed": true, "/write": true, "/wait": true, "/changefeeds": true, "/ping": true, "/livez": true, "/readyz": true, "/status": true, "/overview": true, "/metrics": true,
	"/cluster": true, "/snapshot": true, "/cns/{id}/feed": true,
}

// mayChange refuses writes on a read-only server.
func (s *Server) mayChange(r *http.Request, route string) error {
	if !s.cfg.ReadOnly || rest.IsRead(r) && route != "/feed" && route != intake.Path {
		return nil
	}
	return rest.Fail(http.StatusForbidden, rest.CodeReadOnly, "ask a server of a cluster that runs", "this server shows a log of the past, and changes nothing")
}

// Enter is for a listener of a surface that is not the API's own. It takes a slot of
// who for a request. If there is none, it answers with 429, and ok is false. leave must
// be called when the request is answered.
func (s *Server) Enter(w http.ResponseWriter, r *http.Request, who matrix.Identity) (leave func(), ok bool) {
	leave, err := s.guard.Enter(r, who, streamed[r.URL.Path])
	if err != nil {
		backend.WriteError(w, r, err)
		return nil, false
	}
	return leave, true
}

// CutOff closes the connections of the identities that match: see guard.Guard.CutOff.
func (s *Server) CutOff(match func(matrix.Identity) bool) int { return s.guard.CutOff(match) }
