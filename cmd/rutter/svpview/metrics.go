package svpview

import (
	"github.com/prometheus/client_golang/prometheus"

	"rutter/varp"
)

// Metrics exports the counts of an SVP server.
type Metrics struct{ Stats func() varp.Stats }

var (
	svpRequests = prometheus.NewDesc("rutter_svp_requests_total", "Requests answered, by what they ask.", []string{"op"}, nil)
	svpMisses   = prometheus.NewDesc("rutter_svp_not_found_total", "Lookups answered NOTFOUND, by what they ask.", []string{"op"}, nil)
	svpRecords  = prometheus.NewDesc("rutter_svp_shootdowns_total", "Records of the shootdown log handed out, repeats included.", nil, nil)
	svpOpen     = prometheus.NewDesc("rutter_svp_connections", "Connections that are open.", nil, nil)
	svpAccepted = prometheus.NewDesc("rutter_svp_connections_total", "Connections taken, those never served included.", nil, nil)
	svpClosed   = prometheus.NewDesc("rutter_svp_closed_total", "Connections that ended, by why.", []string{"reason"}, nil)
	svpAccepts  = prometheus.NewDesc("rutter_svp_accept_errors_total", "Errors of the listener that were outlived.", nil, nil)
	svpAge      = prometheus.NewDesc("rutter_svp_age_seconds", "How old an answer may be: the time since the log was heard of.", nil, nil)
	svpStale    = prometheus.NewDesc("rutter_svp_stale", "1 while that is more than its bound.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{svpRequests, svpMisses, svpRecords, svpOpen, svpAccepted, svpClosed, svpAccepts, svpAge, svpStale} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(to chan<- prometheus.Metric) {
	s := m.Stats()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count(svpRequests, s.Pings, "ping")
	count(svpRequests, s.VL2, "vl2")
	count(svpRequests, s.VL3, "vl3")
	count(svpRequests, s.LogReqs, "log_req")
	count(svpRequests, s.LogRMs, "log_rm")
	count(svpMisses, s.VL2Misses, "vl2")
	count(svpMisses, s.VL3Misses, "vl3")
	count(svpRecords, s.LogRecords)
	count(svpAccepted, s.Accepted)
	count(svpAccepts, s.AcceptErrors)
	for why, n := range s.Closed {
		count(svpClosed, n, varp.CloseReason(why).String())
	}
	gauge(svpOpen, float64(s.Open))
	gauge(svpAge, s.Age.Seconds())
	stale := 0.0
	if s.Stale {
		stale = 1
	}
	gauge(svpStale, stale)
}
