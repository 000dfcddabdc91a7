package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"rutter/raftstore"
)

// alarm is one kind of thing that an operator must act on.
type alarm struct {
	name   string // the value of the label alarm
	stands func(*raftstore.Status) bool
}

// alarmMetrics export which alarms stand on this server.
type alarmMetrics struct {
	status func() raftstore.Status
	all    []alarm
}

var alarmDesc = prometheus.NewDesc("rutter_alarms",
	"1 for each kind of alarm that stands on this server, else 0. GET /readyz?verbose has the words.", []string{"alarm"}, nil)

// alarms are the kinds of alarm of this server.
func (s *Server) alarms() alarmMetrics {
	return alarmMetrics{s.store.Status, []alarm{
		{"clock", func(st *raftstore.Status) bool { return len(st.Clock.Alarms) > 0 }},
		{"disk_low", func(st *raftstore.Status) bool { return st.Room.Low }},
		{"disk_full", func(st *raftstore.Status) bool { return st.Room.Full }},
		{"no_room", func(st *raftstore.Status) bool { return st.NoRoom != "" }},
		{"diverged", func(st *raftstore.Status) bool { return st.Diverged != "" }},
		{"certificate", func(*raftstore.Status) bool { return s.tls.ending() }},
		{"service_address", func(*raftstore.Status) bool { return len(s.addresses.Problems()) > 0 }},
		{"backup", func(*raftstore.Status) bool { return len(s.backups.Alarms()) > 0 }},
		{"lag", func(*raftstore.Status) bool { return s.api.BehindCNs() > 0 }},
	}}
}

// Describe implements prometheus.Collector.
func (m alarmMetrics) Describe(to chan<- *prometheus.Desc) { to <- alarmDesc }

// Collect implements prometheus.Collector.
func (m alarmMetrics) Collect(to chan<- prometheus.Metric) {
	status := m.status()
	for _, one := range m.all {
		value := 0.0
		if one.stands(&status) {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(alarmDesc, prometheus.GaugeValue, value, one.name)
	}
}
