package vmm

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the service counts.
type metrics struct {
	all []prometheus.Collector

	rings    *prometheus.CounterVec
	pulls    *prometheus.CounterVec
	asked    *prometheus.CounterVec
	recorded *prometheus.CounterVec
	ringTime prometheus.Histogram
	checks   *prometheus.CounterVec
	sweep    prometheus.Histogram
	sweeps   prometheus.Counter
	reports  *prometheus.CounterVec
	reaped   prometheus.Counter
}

func newMetrics() *metrics {
	m := new(metrics)
	counts := func(name, label, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.all = append(m.all, c)
		return c
	}
	times := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.all = append(m.all, h)
		return h
	}
	m.rings = counts("rutter_vmm_rings_total", "result", "Rings of the doorbell: taken, coalesced with one that waits, unknown or refused as too many.")
	m.pulls = counts("rutter_vmm_pulls_total", "result", "States of VMMs asked for after rings: state, gone or inconclusive.")
	m.asked = counts("rutter_vmm_asked_total", "way", "Requests to compute nodes, by the way that answered: connection, peer, admin or none.")
	m.recorded = counts("rutter_vmm_recorded_total", "result", "States of VMMs brought to the log: applied, old, failed, or unplaced (the log does not have the VM on the compute node yet).")
	m.ringTime = times("rutter_vmm_ring_seconds", "Time from a ring to its state in the log.", []float64{.001, .0025, .005, .01, .02, .05, .1, .25, .5, 1, 5, 10})
	m.checks = counts("rutter_vmm_checks_total", "finding", "VMMs that the watcher looked at: same, updated, gone, expunged or inconclusive.")
	m.sweep = times("rutter_vmm_sweep_seconds", "Time of the watcher's sweeps over all VMMs.", []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300})
	m.sweeps = prometheus.NewCounter(prometheus.CounterOpts{Name: "rutter_vmm_sweeps_total", Help: "Sweeps of the watcher that this server began."})
	m.reports = counts("rutter_vm_reports_total", "result", "VMs in which a compute node's report differed from the log: written, refused, retried or fenced (the CN has a newer connection elsewhere).")
	m.reaped = prometheus.NewCounter(prometheus.CounterOpts{Name: "rutter_vmm_reaped_total", Help: "VMMs that had ended, and migrations between such, that this server deleted."})
	m.all = append(m.all, m.sweeps, m.reaped)
	return m
}

func (m *metrics) waiting(s *Service) {
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rutter_vmm_rings_waiting", Help: "VMMs that were rung for and whose state is not recorded yet.",
	}, func() float64 { return float64(s.pulls.len()) }))
}

// Collectors returns the service's metrics.
func (s *Service) Collectors() []prometheus.Collector { return s.metrics.all }
