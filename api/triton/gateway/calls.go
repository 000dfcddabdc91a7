package gateway

import (
	"errors"
	"net/http"
	"strings"

	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
)

// right is what a client needs so that a call is handed on.
type right uint8

const (
	reading   right = iota
	writing         // write
	programs        // what may choose what runs on a compute node
	operating       // an operator's certificate: no program of a listener has it
)

// checking says how the fields of a call are looked at before it is handed on.
type checking uint8

const (
	unlooked checking = iota
	// ofVM: fields that choose what runs on the compute node need the right programs.
	ofVM
)

// call is a documented call of an old service.
type call struct {
	name  string // METHOD /pattern
	right right
	check checking
	// serve answers it; nil: it is handed on.
	serve func(*asked) error
}

// asked is a request with what is known of it.
type asked struct {
	w    http.ResponseWriter
	r    *http.Request
	call *call
	// ours answers it from the log; nil: the surface has no such route.
	ours rest.Endpoint
	// body is nil if there is none.
	body   []byte
	fields fields
}

// Handler implements http.Handler, so that a mux of net/http finds calls.
func (*call) ServeHTTP(http.ResponseWriter, *http.Request) {}

func muxOf(calls []call) *http.ServeMux {
	mux := http.NewServeMux()
	for i := range calls {
		mux.Handle(calls[i].name, &calls[i])
	}
	return mux
}

// callOf returns the call that a request is, and sets the values of its path. A request
// that is no documented call is handed on too; if it writes, it needs the right programs.
func (g *Gateway) callOf(r *http.Request) *call {
	h, pattern := g.calls.Handler(r)
	c, ok := h.(*call)
	if ok && pattern != "" {
		setValues(r, pattern)
		return c
	}
	c = &call{name: rest.Unknown}
	if !rest.IsRead(r) {
		c.right = programs
	}
	return c
}

// setValues sets the wildcards of a pattern from the request's path, which matches it.
func setValues(r *http.Request, pattern string) {
	_, pattern, _ = strings.Cut(pattern, " ")
	want, have := strings.Split(pattern, "/"), strings.Split(r.URL.Path, "/")
	for i, part := range want {
		if name, ok := strings.CutPrefix(part, "{"); ok && i < len(have) {
			r.SetPathValue(strings.TrimSuffix(name, "}"), have[i])
		}
	}
}

// Table is the wrapped table: a request without a route goes to the old service, as does
// one of a route that the log does not own.
func (g *Gateway) Table() *rest.Table {
	inner := g.cfg.Table
	t := &rest.Table{Surface: inner.Surface, Clients: inner.Clients, NoRoute: func(w http.ResponseWriter, r *http.Request) error { return g.dispatch(w, r, nil) }}
	for _, route := range inner.Routes {
		ours := route.Serve
		if inner.Wrap != nil {
			ours = rest.Serve(inner.Wrap(route.Pattern, route.Serve))
		}
		route.Serve = func(w http.ResponseWriter, r *http.Request) error { return g.dispatch(w, r, ours) }
		t.Routes = append(t.Routes, route)
	}
	t.Wrap = func(_ string, serve rest.Endpoint) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limit := int64(MaxBody)
			if r.Method == http.MethodPut && r.URL.Path == "/vms" {
				limit = MaxInventory
			}
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			if err := serve(w, r); err != nil {
				g.writeError(w, r, err)
			}
		})
	}
	return t
}

// dispatch answers a request. Every request of the listener comes here, after the gate.
func (g *Gateway) dispatch(w http.ResponseWriter, r *http.Request, ours rest.Endpoint) error {
	if by := r.Header.Get(HeaderLoop); by != "" || r.Header[HeaderLoop] != nil {
		return rest.Fail(http.StatusLoopDetected, codeLoop, "point "+g.setting()+" at the old service itself", "this request came through the gateway of server %.64q already: the URL behind leads to a server of Rutter", by)
	}
	if path := r.URL.Path; len(path) > 1 && strings.HasSuffix(path, "/") {
		// The old services read it as the path without the slash.
		return rest.Fail(http.StatusBadRequest, webcheck.CodePath, "leave the slash at the end out", "the path %q ends with a slash", path)
	}
	a := &asked{w: w, r: r, call: g.callOf(r), ours: ours}
	if err := a.read(); err != nil {
		return err
	}
	if a.call.serve != nil {
		return a.call.serve(a)
	}
	return g.handOn(a, nil)
}

// read reads the body and the fields of a request.
func (a *asked) read() error {
	var err error
	if !rest.IsRead(a.r) {
		if a.body, err = rest.ReadBody(a.r); err != nil {
			var refused *rest.Error
			if errors.As(err, &refused) {
				return refused
			}
			return rest.Fail(http.StatusRequestEntityTooLarge, rest.CodeTooLarge, "send less at once", "the body is larger than may be handed on: %v", err)
		}
		if len(a.body) > 0 {
			if refusal := webcheck.Body(a.r, webcheck.Triton); refusal != nil {
				return rest.OfRefusal(refusal)
			}
			if err := rest.Shallow(a.body); err != nil {
				return err
			}
		}
		if len(a.body) == 0 {
			a.body = nil
		}
	}
	return nil
}

// own answers from the log.
func (g *Gateway) own(a *asked) error {
	if a.ours == nil {
		return g.absent(a.r)
	}
	if a.body != nil {
		a.r.Body = bodyOf(a.body)
		a.r.ContentLength = int64(len(a.body))
	}
	return a.ours(a.w, a.r)
}

// absent refuses what neither side serves.
func (g *Gateway) absent(r *http.Request) *rest.Error {
	return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "", "%s %s is not served for this compute node: it has Rutter's agent, which %s cannot ask", r.Method, r.URL.Path, g.name())
}

// handOn hands a request on if its client may have it handed on.
func (g *Gateway) handOn(a *asked, after func(*http.Response) error) error {
	if err := g.vet(a); err != nil {
		return err
	}
	return g.behind.handOn(a.w, a.r, a.body, g.patienceOf(a.r, a.fields), after)
}

// writeError answers in the form of Triton's services.
func (g *Gateway) writeError(w http.ResponseWriter, r *http.Request, err error) {
	var p *rest.Error
	if !errors.As(err, &p) {
		p = rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "", "%v", err)
	}
	rest.RetryAfter(w, p.Status, p.Budget)
	rest.WriteJSON(w, r, p.Status, p.Bounded())
}
