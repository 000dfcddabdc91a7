package api

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/internal/rest"
	"rutter/api/support"
	"rutter/log"
)

// supportRoutes give what this server says of itself to operators, for `rutter support
// bundle`.
type supportRoutes struct {
	source *support.Source // nil: 501
	guard  *guard.Guard
}

func (s *supportRoutes) routes() []rest.Route {
	return []rest.Route{{Method: "GET", Pattern: "/support/{part}", Serve: s.get}}
}

// get answers GET /support/PART. Each answer is recorded in the audit log.
func (s *supportRoutes) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	if s.source == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server keeps nothing for a support bundle")
	}
	who := guard.GrantOf(r).Who
	s.guard.Note(audit.Record{Event: audit.Inspected, Actor: who.Actor(), Serial: who.Serial, Remote: r.RemoteAddr, Asked: r.Method + " " + r.URL.Path})
	text, err := s.source.Collect(r.Context(), r.PathValue("part"))
	if err != nil {
		return supportError(err)
	}
	writePart(w, text)
	return nil
}

// supportError is the answer to an error of Source.Collect.
func supportError(err error) error {
	switch {
	case errors.Is(err, support.ErrNoPart):
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "ask for one of these", "%v", err)
	case errors.Is(err, support.ErrBusy):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again", "%v", err)
	}
	return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again; see this server's log", "%v", err)
}

func writePart(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client is gone
}

// collectors are the metrics of what is given, and of the log lines that are kept.
func (s *supportRoutes) collectors() []prometheus.Collector {
	if s.source == nil {
		return nil
	}
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("rutter_log_kept_bytes", "Bytes of the last log lines, which are kept for support bundles; the bound is 1 MiB.", func() float64 { return float64(s.source.LogBytes()) }),
		counter("rutter_support_parts_total", "Parts of support bundles that this server gave of itself.", func() float64 { n, _ := s.source.Counts(); return float64(n) }),
		counter("rutter_support_parts_failed_total", "Parts of support bundles that could not be collected within their bounds.", func() float64 { _, n := s.source.Counts(); return float64(n) }),
	}
}
