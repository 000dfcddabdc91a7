package feedserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/internal/nodemetrics"
	"rutter/log/feed"
)

// metrics are the counters of the feed.
type metrics struct {
	resets      *prometheus.CounterVec
	entriesSent prometheus.Counter
	scopesSent  prometheus.Counter
	// scopesShared counts the scopes of scopesSent whose objects another stream had
	// encoded.
	scopesShared     prometheus.Counter
	snapshotsRefused prometheus.Counter
	bytesSent        prometheus.Counter
	mismatches       prometheus.Counter
	withheld         prometheus.Counter
	disbelieved      prometheus.Counter
	lagging          prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
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
		lagging:          counter("rutter_feed_lagging_drains_total", "Subscribers sent to another server because this replica lags."),
	}
}

// collectors returns the counters, and gauges that are read on each request of
// /metrics.
func (m *metrics) collectors(s *Server) []prometheus.Collector {
	return []prometheus.Collector{
		m.resets, m.entriesSent, m.scopesSent, m.scopesShared, m.snapshotsRefused, m.bytesSent, m.mismatches, m.withheld, m.disbelieved, m.lagging,
		gauge("rutter_feed_blocked", "Subscribers that take nothing of what is being written to them.", func() float64 { return float64(s.blocked.Load()) }),
		gauge("rutter_cns_held", "Compute nodes connected to this server that hold back what the log says, since it takes too much away.", func() float64 {
			return float64(s.sessions.countIf(func(c *feed.Condition) bool { return c.Hold != "" }))
		}),
		gauge("rutter_cns_in_trouble", "Compute nodes connected to this server that say that something else is to be seen to.", func() float64 {
			return float64(s.sessions.countIf(func(c *feed.Condition) bool { return c.Trouble != "" }))
		}),
		&nodemetrics.Collector{Tracker: s.tracker, Nodes: s.sessions.nodes, View: s.store.View},
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}
