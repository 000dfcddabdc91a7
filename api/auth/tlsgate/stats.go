package tlsgate

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/pki"
)

// refusalsLogged is how many refused handshakes per second are logged.
const refusalsLogged = 5

// stats count what a Keeper did.
type stats struct {
	cut atomic.Uint64 // connections closed because their certificate is no longer good

	mu     sync.Mutex
	shakes map[shakeKey]uint64
	second time.Time
	logged int
}

type shakeKey struct{ port, result string }

// shaken counts a handshake by its result.
func (s *stats) shaken(port string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shakes == nil {
		s.shakes = make(map[shakeKey]uint64)
	}
	s.shakes[shakeKey{port, resultOf(err)}]++
}

func (s *stats) mayLog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.second) > time.Second {
		s.second, s.logged = now, 0
	}
	s.logged++
	return s.logged <= refusalsLogged
}

// results are the metric labels of handshake errors.
var results = []struct {
	err  error
	word string
}{
	{pki.ErrNone, "no_certificate"},
	{pki.ErrExpired, "expired"},
	{pki.ErrNotYet, "not_yet"},
	{pki.ErrAuthority, "authority"},
	{pki.ErrUsage, "usage"},
	{pki.ErrRole, "role"},
	{pki.ErrRevoked, "revoked"},
	{pki.ErrMalformed, "malformed"},
	{errBusy, "crowded"},
	{errFailing, "rate"},
	{errOften, "often"},
}

func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	for _, r := range results {
		if errors.Is(err, r.err) {
			return r.word
		}
	}
	return "failed"
}

var (
	shakesDesc = prometheus.NewDesc("rutter_tls_handshakes_total", "Handshakes of those who connected, by port and result.", []string{"authority", "port", "result"}, nil)
	cutDesc    = prometheus.NewDesc("rutter_tls_cut_total", "Connections closed because a certificate was revoked, had ended, or is not trusted any more.", []string{"authority"}, nil)
	connsDesc  = prometheus.NewDesc("rutter_tls_connections", "Connections over TLS, in both directions.", []string{"authority"}, nil)
	endDesc    = prometheus.NewDesc("rutter_tls_not_after_seconds", "When a certificate ends, in Unix time: the own one, or that of a trusted authority.", []string{"authority", "subject"}, nil)
)

// Metrics exports what keepers count. It is a prometheus.Collector.
type Metrics []*Keeper

// Describe implements prometheus.Collector.
func (Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{shakesDesc, cutDesc, connsDesc, endDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, k := range m {
		k.collect(ch)
	}
}

func (k *Keeper) collect(ch chan<- prometheus.Metric) {
	name := k.cfg.Name
	k.stats.mu.Lock()
	for key, n := range k.stats.shakes {
		ch <- prometheus.MustNewConstMetric(shakesDesc, prometheus.CounterValue, float64(n), name, key.port, key.result)
	}
	k.stats.mu.Unlock()
	k.mu.Lock()
	conns := len(k.conns)
	k.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(connsDesc, prometheus.GaugeValue, float64(conns), name)
	ch <- prometheus.MustNewConstMetric(cutDesc, prometheus.CounterValue, float64(k.stats.cut.Load()), name)
	h := k.held.Load()
	// Two authorities may have one name: the first end counts.
	ends := map[string]int64{"own": h.certificate.Leaf.NotAfter.Unix()}
	for _, a := range h.trust.Authorities() {
		subject, end := strings.ToValidUTF8(a.Subject.CommonName, "?"), a.NotAfter.Unix()
		if earlier, known := ends[subject]; !known || end < earlier {
			ends[subject] = end
		}
	}
	for subject, end := range ends {
		ch <- prometheus.MustNewConstMetric(endDesc, prometheus.GaugeValue, float64(end), name, subject)
	}
}
