package cnapi

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
	"rutter/projections"
)

// counts are what this server has taken and done.
type counts struct {
	heartbeats, sysinfos, reports, dropped atomic.Uint64
	posted, postsFailed                    atomic.Uint64
	refusedAddresses                       atomic.Uint64
	placed, unplaced                       atomic.Uint64
}

var (
	unsetupDesc   = prometheus.NewDesc("rutter_cnapi_servers_unsetup", "Compute nodes that have announced themselves and are not set up.", nil, nil)
	openDesc      = prometheus.NewDesc("rutter_cnapi_tasks_open", "Tasks of the log that have not ended.", nil, nil)
	takenDesc     = prometheus.NewDesc("rutter_cnapi_messages_total", "Messages of compute nodes that this server has taken.", []string{"kind"}, nil)
	droppedDesc   = prometheus.NewDesc("rutter_cnapi_reports_dropped_total", "Status reports that found no room; the next whole one comes within a minute.", nil, nil)
	postsDesc     = prometheus.NewDesc("rutter_cnapi_posts_total", "Tasks that this server has posted to cn-agents.", []string{"outcome"}, nil)
	placedDesc    = prometheus.NewDesc("rutter_cnapi_placements_total", "Answers to POST /allocate: a server, or none that is fit.", []string{"outcome"}, nil)
	unreachedDesc = prometheus.NewDesc("rutter_cnapi_addresses_refused_total", "Admin addresses of sysinfos to which no task is posted.", nil, nil)
)

// Collectors are those of /metrics.
func (s *Service) Collectors() []prometheus.Collector { return []prometheus.Collector{metrics{s}} }

type metrics struct{ s *Service }

// Describe implements prometheus.Collector.
func (metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{unsetupDesc, openDesc, takenDesc, droppedDesc, postsDesc, placedDesc, unreachedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	unsetup, open := 0, 0
	m.s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			if !rec.Object.(*log.Server).Setup {
				unsetup++
			}
		}
		for range state.TasksBy(false) {
			open++
		}
	})
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counter := func(d *prometheus.Desc, n *atomic.Uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	gauge(unsetupDesc, unsetup)
	gauge(openDesc, open)
	c := &m.s.counts
	counter(takenDesc, &c.heartbeats, "heartbeat")
	counter(takenDesc, &c.sysinfos, "sysinfo")
	counter(takenDesc, &c.reports, "status")
	counter(droppedDesc, &c.dropped)
	counter(postsDesc, &c.posted, "complete")
	counter(postsDesc, &c.postsFailed, "failure")
	counter(placedDesc, &c.placed, "server")
	counter(placedDesc, &c.unplaced, "none")
	counter(unreachedDesc, &c.refusedAddresses)
}
