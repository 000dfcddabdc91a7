package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/console"
	"rutter/log"
	"rutter/log/intake"
)

// endpoint answers a request, or returns the error to answer with.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// methods are the endpoints of a path. HEAD is answered by GET's.
type methods map[string]endpoint

// path is a pattern of net/http with its endpoints.
type path struct {
	pattern string
	methods methods
}

// table is every path of this package. What is not in it is not served.
func (s *Server) table() []path {
	var all []path
	add := func(pattern string, m methods) { all = append(all, path{pattern, m}) }
	for _, k := range kinds {
		add("/"+k.path, methods{http.MethodGet: s.list(k), http.MethodPost: s.create(k)})
		one := methods{http.MethodGet: s.get(k), http.MethodPut: s.update(k), http.MethodPost: s.update(k), http.MethodDelete: s.remove(k)}
		if k.kind == log.KindVMM {
			one[http.MethodPut] = s.ring(http.StatusNoContent) // as Omicron's agents report, whatever the body says
		}
		add("/"+k.path+"/{id}", one)
		add("/"+k.path+"/{id}/history", methods{http.MethodGet: s.history(k)})
	}
	add("/vms/lookup", methods{http.MethodGet: s.lookupVMs})
	add("/vmms/{id}/doorbell", methods{http.MethodPost: s.ring(http.StatusAccepted)})
	add("/vmms/{id}/state", methods{http.MethodPut: s.setState})
	add("/vmms/{id}/register", methods{http.MethodPost: s.register})
	add("/vmms/{id}/unregister", methods{http.MethodPost: s.unregister})
	add("/networks/{id}/nics", methods{http.MethodPost: s.provision})
	add("/changes", methods{http.MethodPost: s.change})
	add(intake.Path, methods{http.MethodGet: s.writes, http.MethodPost: s.writes})
	add("/log", methods{http.MethodGet: s.logs.get})
	add("/log/state", methods{http.MethodGet: s.getState})
	add("/log/history", methods{http.MethodGet: s.getHistory})
	add("/log/diff", methods{http.MethodGet: s.getDiff})
	add("/feed", methods{http.MethodGet: s.getFeed})
	add("/cns", methods{http.MethodGet: s.cns.list})
	add("/cns/{id}", methods{http.MethodGet: s.cns.get})
	add("/cns/{id}/accept", methods{http.MethodPost: s.cns.accept})
	add("/cns/{id}/feed", methods{http.MethodGet: s.cns.observe})
	add("/wait", methods{http.MethodGet: s.barrier.get})
	add("/lookup/vl2", methods{http.MethodGet: s.lookupVL2})
	add("/lookup/vl3", methods{http.MethodGet: s.lookupVL3})
	add("/trace", methods{http.MethodGet: s.trace})
	add("/cluster", methods{http.MethodGet: s.getCluster})
	add("/cluster/members", methods{http.MethodPost: s.addMember})
	add("/cluster/members/{id}", methods{http.MethodDelete: s.removeMember})
	add("/cluster/members/{id}/promote", methods{http.MethodPost: s.promote})
	add("/cluster/members/{id}/rebuild", methods{http.MethodPost: s.rebuild})
	add("/snapshot", methods{http.MethodGet: s.backup})
	add("/cluster/transfer", methods{http.MethodPost: s.transfer})
	add("/grants", methods{http.MethodGet: s.listGrants})
	add("/grants/{subject...}", methods{http.MethodPut: s.putGrant, http.MethodDelete: s.deleteGrant})
	add("/cluster/retention", methods{http.MethodGet: s.getRetention, http.MethodPut: s.putRetention})
	add("/ping", methods{http.MethodGet: s.ping})
	add("/livez", methods{http.MethodGet: s.live})
	add("/readyz", methods{http.MethodGet: s.ready})
	add("/status", methods{http.MethodGet: s.status})
	add("/metrics", methods{http.MethodGet: s.serveMetrics})
	page := console.Handler()
	add(console.Prefix, methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) error {
		page.ServeHTTP(w, r)
		return nil
	}})
	return all
}

// Endpoints are the METHOD /PATTERN of every endpoint of this package, sorted.
// Those of Config.Mounts are their own.
func (s *Server) Endpoints() []string {
	var names []string
	for _, p := range s.table() {
		for method := range p.methods {
			names = append(names, method+" "+p.pattern)
		}
	}
	slices.Sort(names)
	return names
}

// routes builds the handler of all paths.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, p := range s.table() {
		if get, ok := p.methods[http.MethodGet]; ok {
			p.methods[http.MethodHead] = get
		}
		mux.Handle(p.pattern, s.measured(p.pattern, p.methods, rowsOf(p)))
	}
	for _, m := range s.cfg.Mounts {
		h := s.mounted(m)
		mux.Handle(m.Path, h)
		mux.Handle(m.Path+"/", h)
	}
	mux.Handle("/", s.measured("unknown", nil, func(*http.Request) *matrix.Row { return matrix.Find(matrix.NoRoute) }))
	return mux
}

// rowsOf finds the rows of a path, by method. A method that there is not has the
// row of what is not there.
func rowsOf(p path) func(*http.Request) *matrix.Row {
	rows := make(map[string]*matrix.Row, len(p.methods))
	for method := range p.methods {
		what := method
		if method == http.MethodHead {
			what = http.MethodGet
		}
		rows[method] = matrix.Find(what + " " + p.pattern)
	}
	return func(r *http.Request) *matrix.Row {
		if row, ok := rows[r.Method]; ok {
			return row
		}
		return matrix.Find(matrix.NoRoute)
	}
}

// mounted measures and limits a surface's handler as if it were one endpoint of
// any method.
func (s *Server) mounted(m Mount) http.Handler {
	h := m.Handler
	surface := m.Surface
	if surface == "" {
		surface = strings.TrimPrefix(m.Path, "/")
	}
	if m.Strip {
		h = http.StripPrefix(m.Path, h)
	}
	pass := func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
	all := methods{}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		all[method] = pass
	}
	strip := ""
	if m.Strip {
		strip = m.Path
	}
	return s.measured(m.Path, all, func(r *http.Request) *matrix.Row { return matrix.FindOn(surface, r, strip) })
}

// measured asks whether the request may be answered, calls the endpoint of its
// method, answers its error, and counts both under the route's name. rowOf finds
// the request's row of the matrix.
func (s *Server) measured(route string, m methods, rowOf func(*http.Request) *matrix.Row) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		begin := time.Now()
		seen := &statusWriter{ResponseWriter: w}
		control := http.NewResponseController(w)
		// Connections that know no deadlines (those of tests) have no strangers.
		_ = control.SetReadDeadline(begin.Add(bodyTime))
		_ = control.SetWriteDeadline(begin.Add(answerTime))
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		err := s.mayChange(route, r.Method)
		if err == nil {
			err = s.answer(seen, r, m, rowOf(r), route)
		}
		if err != nil {
			writeError(seen, r, err)
		}
		// The next request's header has a deadline of its own.
		_ = control.SetReadDeadline(time.Time{})
		s.metrics.observe(route, r.Method, seen.status, time.Since(begin))
	})
}

// streamed are the routes whose answers may last: they are bounded by MaxStreams.
var streamed = map[string]bool{"/feed": true, "/log": true, intake.Path: true, "/cns/{id}/feed": true, "/wait": true, "/changefeeds": true}

// answer answers a request that may be answered.
func (s *Server) answer(w *statusWriter, r *http.Request, m methods, row *matrix.Row, route string) error {
	who := s.identify(r)
	leave, err := s.enter(r, who, streamed[route])
	if err != nil {
		return err
	}
	defer leave()
	if r, err = s.authorise(r, who, row); err != nil {
		return err
	}
	if err := s.mayWork(r, route); err != nil {
		return s.overBudget(r, err)
	}
	if !streamed[route] && !unbudgeted[route] {
		defer func() { s.accountsOf(r.Context()).sent(w.bytes) }()
	}
	return s.overBudget(r, m.serve(w, r))
}

// mayChange refuses what a log that is only shown does not do.
func (s *Server) mayChange(route, method string) error {
	reads := method == http.MethodGet || method == http.MethodHead
	if !s.cfg.ReadOnly || reads && route != "/feed" && route != intake.Path {
		return nil
	}
	return fail(http.StatusForbidden, codeReadOnly, "ask a server of a cluster that runs", "this server shows a log of the past, and changes nothing")
}

func (m methods) serve(w http.ResponseWriter, r *http.Request) error {
	if m == nil {
		return fail(http.StatusNotFound, codeNoRoute, "the paths are /nic_tags, /networks, /nics, /servers, /vms, /vmms, /changes, /log, /feed, /cns, /wait, /lookup, /trace, /cluster, /status, /console, /ping, /livez, /readyz and /metrics", "%s does not exist", r.URL.Path)
	}
	e, ok := m[r.Method]
	if !ok {
		allowed := make([]string, 0, len(m))
		for method := range m {
			allowed = append(allowed, method)
		}
		slices.Sort(allowed)
		allow := strings.Join(allowed, ", ")
		w.Header().Set("Allow", allow)
		return fail(http.StatusMethodNotAllowed, codeNoMethod, "use one of "+allow, "%s is not allowed on %s", r.Method, r.URL.Path)
	}
	return e(w, r)
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int // of the body
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += n
	return n, err
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
