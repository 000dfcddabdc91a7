package changefeed

import "github.com/prometheus/client_golang/prometheus"

// Why a listener's connection ended, as the metrics have it.
const (
	closedRejected = "rejected" // the registration was refused
	closedGone     = "gone"     // it disconnected, or does not answer pings
	closedSlow     = "slow"     // it received nothing for too long
	closedByServer = "server"   // this server stops, or the instance registered again
)

type metrics struct {
	listeners prometheus.GaugeFunc
	items     prometheus.Counter
	closed    *prometheus.CounterVec
}

func newMetrics(s *Service) *metrics {
	return &metrics{
		listeners: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rutter_changefeed_listeners", Help: "Listeners of the change feed with this server, registered or about to.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.listeners)
		}),
		items: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rutter_changefeed_items_sent_total", Help: "Items sent to listeners of the change feed.",
		}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rutter_changefeed_closed_total", Help: "Connections of listeners that ended, by why: rejected, gone, slow or server.",
		}, []string{"why"}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.listeners, m.items, m.closed}
}
