package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rutter/api/auth/guard"
	"rutter/api/rest"
)

// metrics are what /metrics shows of this package, and of whom Config named.
type metrics struct {
	handler     http.Handler
	requests    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	resets      *prometheus.CounterVec
	entriesSent prometheus.Counter
	scopesSent  prometheus.Counter
	// scopesShared are those of scopesSent whose objects another stream had encoded.
	scopesShared     prometheus.Counter
	snapshotsRefused prometheus.Counter
	bytesSent        prometheus.Counter
	mismatches       prometheus.Counter
	withheld         prometheus.Counter
	disbelieved      prometheus.Counter
	barriers         *prometheus.CounterVec
	barrierTime      prometheus.Histogram
}

func newMetrics(s *Server) (*metrics, error) {
	m := &metrics{
		requests: rest.Requests("rutter_http_requests_total", "Requests answered, by route, method and status.", "status"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rutter_http_request_seconds", Help: "Time to answer, streams left out.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10},
		}, []string{"route"}),
		resets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_feed_resets_total", Help: "Feeds that had to begin anew, by reason.",
		}, []string{"reason"}),
		entriesSent:      counter("rutter_feed_entries_sent_total", "Entries sent to subscribers."),
		scopesSent:       counter("rutter_feed_scopes_sent_total", "Whole scopes sent to subscribers."),
		scopesShared:     counter("rutter_feed_scopes_shared_total", "Whole scopes sent to subscribers that had been encoded for another one."),
		snapshotsRefused: counter("rutter_feed_snapshots_refused_total", "Subscribers told to come again, since too many were being sent whole scopes."),
		bytesSent:        counter("rutter_feed_bytes_sent_total", "Bytes sent to subscribers."),
		mismatches:       counter("rutter_feed_digest_mismatches_total", "Scopes that compute nodes asked for anew because their digest differed."),
		withheld:         counter("rutter_feed_withheld_total", "Frames that were not sent since they do not concern the subscriber: always 0, or there is a bug."),
		disbelieved:      counter("rutter_feed_disbelieved_total", "Sessions that ended because a compute node said of itself what cannot be, such as a seq that it was not sent."),
		barriers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_barriers_total", Help: "Waits for the fabric that ended on this server, by result: done, missing or failed.",
		}, []string{"result"}),
		barrierTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rutter_barrier_seconds", Help: "Time until a wait for the fabric was done.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
		}),
	}
	registry := prometheus.NewRegistry()
	own := s.cfg.Collectors
	if s.cfg.VMMs != nil {
		own = append(slices.Clone(own), s.cfg.VMMs.Collectors()...)
	}
	all := append([]prometheus.Collector{
		m.requests, m.seconds, m.resets, m.entriesSent, m.scopesSent, m.scopesShared, m.snapshotsRefused, m.bytesSent, m.mismatches, m.barriers, m.barrierTime,
		m.withheld, m.disbelieved,
		guard.BudgetMetrics{Meters: append(slices.Clone(s.cfg.Meters), s.guard.Meters()...)},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, slices.Concat(s.gauges(), s.guard.Collectors(), own)...)
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m, nil
}

// gauges are what is read when it is asked for.
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
		gauge("rutter_feed_blocked", "Subscribers that take nothing of what is being written to them.", func() float64 { return float64(s.crew.held.Load()) }),
		gauge("rutter_feed_subscribers", "Compute nodes connected to this server.", func() float64 { return float64(s.cns.count()) }),
		gauge("rutter_cns_held", "Compute nodes connected to this server that hold back what the log says, since it takes too much away.", func() float64 { return float64(s.cns.held()) }),
		gauge("rutter_cns_in_trouble", "Compute nodes connected to this server that say that something else is to be seen to.", func() float64 { return float64(s.cns.inTrouble()) }),
		gauge("rutter_streams", "Feeds and followed logs.", func() float64 { return float64(s.streams.Load()) }),
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
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
