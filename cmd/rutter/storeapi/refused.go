package storeapi

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/backend"
	"rutter/log"
)

// maxCodes bounds the codes that Refused tells apart. There are about 25; they come from
// the leader, which may be of a later version.
const maxCodes = 64

// Refused counts the changes that were sent to this server and refused, by the code of the
// answer. It is a prometheus.Collector.
type Refused struct {
	*prometheus.CounterVec

	mu    sync.Mutex      // protects what follows
	codes map[string]bool // that were counted
}

// NewRefused returns a Refused without any count.
func NewRefused() *Refused {
	return &Refused{codes: make(map[string]bool), CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rutter_writes_refused_total",
		Help: "Changes that this server was asked to write, by clients or by its own services, and that were refused: by the log's rules, a budget or the cluster's condition, by the code of the answer. Requests that were refused before they were a change are in rutter_http_requests_total.",
	}, []string{"code"})}
}

// count counts a change, if it was refused.
func (r *Refused) count(result log.Result, err error) {
	switch {
	case r == nil:
	case err != nil:
		r.add(backend.ErrorOf(err).Code)
	case result.Refusal != nil:
		r.add(result.Refusal.Code)
	}
}

func (r *Refused) add(code string) {
	r.mu.Lock()
	if !r.codes[code] && len(r.codes) == maxCodes {
		code = "other"
	} else {
		r.codes[code] = true
	}
	r.mu.Unlock()
	r.WithLabelValues(code).Inc()
}
