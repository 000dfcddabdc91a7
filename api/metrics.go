package api

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rutter/api/auth/guard"
	"rutter/api/internal/rest"
	"rutter/log"
)

// metrics are the metrics of this package, and those of Config.Collectors.
type metrics struct {
	registry *prometheus.Registry // of all of them
	handler  http.Handler
	all      []prometheus.Collector
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(s *Server) (*metrics, error) {
	m := &metrics{
		requests: rest.Requests("rutter_http_requests_total", "Requests answered, by route, method and status.", "status"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rutter_http_request_seconds", Help: "Time to answer, streams left out.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10},
		}, []string{"route"}),
	}
	registry := prometheus.NewRegistry()
	own := s.cfg.Collectors
	if s.cfg.VMMs != nil {
		own = append(slices.Clone(own), s.cfg.VMMs.Collectors()...)
	}
	m.all = append([]prometheus.Collector{
		m.requests, m.seconds,
		buildInfo(s.cfg.Version),
		guard.BudgetMetrics{Meters: append(slices.Clone(s.cfg.Meters), s.guard.Meters()...)},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, slices.Concat(s.gauges(), s.feed.Collectors(), s.barrier.Collectors(), s.guard.Collectors(), s.support.collectors(), own)...)
	for _, c := range m.all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	// What cannot be measured does not take away the rest. More
	// than maxScrapes at a time are answered with 503.
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes})
	m.registry = registry
	return m, nil
}

// maxScrapes bounds the requests of /metrics that are answered at the same time, because
// one of 10,000 sessions takes milliseconds of a processor.
const maxScrapes = 4

// Collectors are the metrics of GET /metrics.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.all }

// BehindCNs is how many compute nodes in session with this server are behind the log
// (nodemetrics.Behind).
func (s *Server) BehindCNs() int { return s.feed.Behind() }

// gauges returns the collectors whose values are read on each request of /metrics.
func (s *Server) gauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("rutter_head_seq", "Seq of this server's head.", func() float64 { return float64(s.store.Head().Seq) }),
		gauge("rutter_floor_seq", "Lowest cursor that this server can serve.", func() float64 { return float64(s.store.Floor()) }),
		gauge("rutter_applied_index", "Raft index that this server has applied.", func() float64 { return float64(s.store.Status().Applied) }),
		gauge("rutter_ready", "1 if this server can serve.", func() float64 {
			if s.health.notReady() != nil {
				return 0
			}
			return 1
		}),
		gauge("rutter_warnings", "Things that people must see to: GET /readyz?verbose names them.", func() float64 { return float64(len(s.cfg.Warnings()) + len(s.store.Status().Alarms)) }),
		gauge("rutter_streams", "Feeds and followed logs.", func() float64 { return float64(s.streams.Load()) }),
	}
}

// buildInfo is which program this server runs.
func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rutter_build_info", Help: "1; which program runs: its version, that of Go, and the newest feature version that it knows.",
	}, []string{"version", "go_version", "feature"})
	info.WithLabelValues(version, runtime.Version(), strconv.Itoa(log.FeatureVersion)).Set(1)
	return info
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func (m *metrics) observe(route, method string, status int, took time.Duration) {
	rest.Count(m.requests, route, rest.KnownMethod(method), status)
	if route != "/feed" && route != "/log" {
		m.seconds.WithLabelValues(route).Observe(took.Seconds())
	}
}
