package metrics

import "github.com/prometheus/client_golang/prometheus"

// Helper is what an agent knows of the process that runs its VMs.
type Helper struct {
	Up bool // it answers
	// Said: it has answered once, and what follows is its last answer.
	Said bool
	// Open are its connections, and Working the requests that it is doing.
	Open, Working int
	// Done counts requests about VMs since it began, and Failed those of them that failed.
	Done, Failed uint64
	Refused      map[string]uint64 // connections and requests, by one of a few reasons
}

func (h Helper) collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(helperUp, prometheus.GaugeValue, is(h.Up))
	if !h.Said {
		return
	}
	out <- prometheus.MustNewConstMetric(helperOpen, prometheus.GaugeValue, float64(h.Open))
	out <- prometheus.MustNewConstMetric(helperWorks, prometheus.GaugeValue, float64(h.Working))
	out <- prometheus.MustNewConstMetric(helperDone, prometheus.CounterValue, float64(h.Done-h.Failed), "done")
	out <- prometheus.MustNewConstMetric(helperDone, prometheus.CounterValue, float64(h.Failed), "failed")
	for reason, n := range h.Refused {
		out <- prometheus.MustNewConstMetric(helperRefuse, prometheus.CounterValue, float64(n), reason)
	}
}
