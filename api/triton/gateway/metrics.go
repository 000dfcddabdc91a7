package gateway

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all gateways of a server.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	teed     *prometheus.CounterVec
	taken    *prometheus.CounterVec

	mu       sync.Mutex
	gateways []*Gateway
}

// NewMetrics returns metrics without gateways.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_triton_behind_requests_total", Help: "Requests handed on to the old services, by the class of the answer (2xx to 5xx), or none.",
		}, []string{"surface", "answer"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rutter_triton_behind_seconds", Help: "Time until the answer of an old service began.", Buckets: []float64{.005, .02, .1, .5, 2, 10, 60, 600},
		}, []string{"surface"}),
		teed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_triton_behind_teed_total", Help: "Writes that went to the log and to an old service, by call and by whether the old one took it: taken or failed.",
		}, []string{"surface", "call", "outcome"}),
		taken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_triton_behind_inventory_total", Help: "VMs and servers of the old services by what was done with them: written to the log, kept as the log has them, sent to the old service, or failed.",
		}, []string{"surface", "outcome"}),
	}
}

func (m *Metrics) add(g *Gateway) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gateways = append(m.gateways, g)
}

// answered counts a request that was handed on; status 0: there was no answer.
func (m *Metrics) answered(surface string, status int, took time.Duration) {
	answer := "none"
	if status >= 100 {
		answer = strconv.Itoa(status/100) + "xx"
		m.seconds.WithLabelValues(surface).Observe(took.Seconds())
	}
	m.requests.WithLabelValues(surface, answer).Inc()
}

// tee counts a write to both sides; err is that of the old service.
func (m *Metrics) tee(surface, call string, err error) {
	outcome := "taken"
	if err != nil {
		outcome = "failed"
	}
	m.teed.WithLabelValues(surface, call, outcome).Inc()
}

// Collectors are those of /metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.teed, m.taken, ups{m}}
}

// ups exports which old services answer.
type ups struct{ m *Metrics }

var (
	behindUp    = prometheus.NewDesc("rutter_triton_behind_up", "1 if the old service behind the surface answered last.", []string{"surface"}, nil)
	behindUnder = prometheus.NewDesc("rutter_triton_behind_under_way", "Requests that are with the old service now.", []string{"surface"}, nil)
)

// Describe implements prometheus.Collector.
func (ups) Describe(ch chan<- *prometheus.Desc) { ch <- behindUp; ch <- behindUnder }

// Collect implements prometheus.Collector.
func (u ups) Collect(ch chan<- prometheus.Metric) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	for _, g := range u.m.gateways {
		up := 0.0
		if g.up() {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(behindUp, prometheus.GaugeValue, up, g.cfg.Surface)
		ch <- prometheus.MustNewConstMetric(behindUnder, prometheus.GaugeValue, float64(g.behind.slots.total()), g.cfg.Surface)
	}
}
