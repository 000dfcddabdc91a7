package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// healthRoutes report the health of this server.
type healthRoutes struct {
	store    backend.Store
	read     *backend.Reader
	version  string
	started  time.Time
	warnings func() []string
	lines    func() []string
	feeds    func() int // compute nodes connected
	draining <-chan struct{}
	// certificateEnd is Config.CertificateEnd.
	certificateEnd func() time.Time
	zone           string // Config.Zone
}

// headerZone is the header of GET /readyz with the zone of the server.
const headerZone = "Rutter-Zone"

func (h *healthRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/ping", Serve: h.ping},
		{Method: "GET", Pattern: "/livez", Serve: h.live},
		{Method: "GET", Pattern: "/readyz", Serve: h.ready},
		{Method: "GET", Pattern: "/status", Serve: h.status},
	}
}

// pingForm is NAPI's answer to a ping (spec/napi.md section 3.2).
type pingForm struct {
	Config struct {
		Fabrics     bool `json:"fabrics_enabled"`
		SubnetAlloc bool `json:"subnet_alloc_enabled"`
	} `json:"config"`
	Healthy  bool              `json:"healthy"`
	Services map[string]string `json:"services"`
	Status   string            `json:"status"`
}

// ping answers GET /ping as NAPI does: 503 until this server can serve.
func (h *healthRoutes) ping(w http.ResponseWriter, r *http.Request) error {
	var answer pingForm
	answer.Config.Fabrics = true
	answer.Healthy, answer.Status = true, "OK"
	answer.Services = map[string]string{"moray": "online"} // the store of NAPI; here the log
	status := http.StatusOK
	if h.notReady() != nil {
		answer.Healthy, answer.Status = false, "initializing"
		answer.Services["moray"] = "offline"
		status = http.StatusServiceUnavailable
	}
	rest.WriteJSON(w, r, status, answer)
	return nil
}

// live answers GET /livez: the process runs.
func (*healthRoutes) live(w http.ResponseWriter, _ *http.Request) error {
	writeText(w, http.StatusOK, "ok\n")
	return nil
}

// notReady returns why this server should get no requests, or nil.
func (h *healthRoutes) notReady() error {
	select {
	case <-h.draining:
		return fmt.Errorf("it stops")
	default:
		return h.store.Ready()
	}
}

// ready answers GET /readyz.
func (h *healthRoutes) ready(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "verbose")
	if err != nil {
		return err
	}
	verbose, err := p.Flag("verbose")
	if err != nil {
		return err
	}
	if h.zone != "" {
		w.Header().Set(headerZone, h.zone)
	}
	status, text := http.StatusOK, "ok\n"
	why := h.notReady()
	if why != nil {
		status, text = http.StatusServiceUnavailable, "not ready: "+why.Error()+"\n"
	}
	if verbose && matrix.Find("GET /status").For(guard.GrantOf(r).Who) == matrix.Allow {
		var b bytes.Buffer
		head, st := h.store.Head(), h.store.Status()
		b.WriteString(text)
		fmt.Fprintf(&b, "head %s\nfloor %s\nstate %s\nleader %s\napplied %d of %d\nfeeds %d\n",
			head, h.store.Floor(), st.State, st.Leader, st.Applied, st.Commit, h.feeds())
		for _, line := range h.lines() {
			fmt.Fprintln(&b, line)
		}
		for _, alarm := range st.Alarms {
			fmt.Fprintf(&b, "alarm %s\n", alarm)
		}
		for _, warning := range h.warnings() {
			fmt.Fprintf(&b, "warning %s\n", warning)
		}
		text = b.String()
	}
	writeText(w, status, text)
	return nil
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // for HEAD, net/http leaves the body out
}

// statusForm is the answer to GET /status.
type statusForm struct {
	Version  string         `json:"version"`
	Uptime   string         `json:"uptime"`
	Ready    bool           `json:"ready"`
	NotReady string         `json:"not_ready,omitempty"`
	Head     log.Cursor     `json:"head"`
	Time     log.Time       `json:"time"` // of the last change
	Floor    log.Seq        `json:"floor"`
	Feeds    int            `json:"feeds"`
	Objects  map[string]int `json:"objects"` // by kind
	// Known is the newest feature version that this server's program knows.
	Known uint32 `json:"feature_known"`
	// Warnings are what an operator must act on beside the alarms, as in /readyz?verbose.
	Warnings []string `json:"warnings,omitempty"`
	// CertificateEnds is when the first of this server's certificates ends.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
	backend.Status
}

// status answers GET /status: a summary of this server.
func (h *healthRoutes) status(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r)
	if err != nil {
		return err
	}
	// It waits only if the query asks for it: a server in trouble must still answer.
	if p.Has("consistent") || p.Has("min_seq") {
		if err := h.read.Fresh(r, p); err != nil {
			return err
		}
	}
	f := statusForm{
		Status: h.store.Status(), Version: h.version, Uptime: time.Since(h.started).Round(time.Second).String(), Ready: true,
		Floor: h.store.Floor(), Feeds: h.feeds(), Objects: make(map[string]int), Known: log.FeatureVersion, Warnings: h.warnings(),
	}
	if h.certificateEnd != nil {
		f.CertificateEnds = h.certificateEnd()
	}
	if why := h.notReady(); why != nil {
		f.Ready, f.NotReady = false, why.Error()
	}
	h.store.View(func(state *projections.State, head log.Cursor) {
		f.Head, f.Time = head, state.Time()
		for _, k := range kinds {
			f.Objects[k.kind.String()] = state.Count(k.kind)
		}
	})
	rest.SetSeq(w, f.Head.Seq)
	rest.WriteJSON(w, r, http.StatusOK, f)
	return nil
}
