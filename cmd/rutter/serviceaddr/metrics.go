package serviceaddr

import "github.com/prometheus/client_golang/prometheus"

// Metrics exports the states of a Service's addresses. Service may be nil: there are none.
type Metrics struct{ Service *Service }

// metric is one number of a State.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*State) float64
}

var metrics = func() (all []metric) {
	number := func(kind prometheus.ValueType, desc *prometheus.Desc, value func(*State) float64) {
		all = append(all, metric{desc, kind, value})
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	number(gauge, prometheus.NewDesc("rutter_service_address_held", "1 while this server has the service address.", []string{"address"}, nil), func(s *State) float64 { return truth(s.Held) })
	number(gauge, prometheus.NewDesc("rutter_service_address_problem", "1 while something keeps this server from having the address: GET /readyz?verbose says what.", []string{"address"}, nil), func(s *State) float64 { return truth(s.Problem != "") })
	number(gauge, prometheus.NewDesc("rutter_service_address_foreign", "1 while a machine that is no holder has the address, so that this server does not take it.", []string{"address"}, nil), func(s *State) float64 { return truth(s.Foreign) })
	number(counter, prometheus.NewDesc("rutter_service_address_takes_total", "Times that this server took the address.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Takes) })
	number(counter, prometheus.NewDesc("rutter_service_address_losses_total", "Times that this server deleted the address.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Losses) })
	number(counter, prometheus.NewDesc("rutter_service_address_renewals_total", "Renewals of the address's lifetime in the kernel.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Renewals) })
	number(counter, prometheus.NewDesc("rutter_service_address_failures_total", "Messages about the address that the kernel refused.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Failures) })
	number(counter, prometheus.NewDesc("rutter_service_address_late_total", "Times that the address was set too late, and deleted at once.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Late) })
	number(counter, prometheus.NewDesc("rutter_service_address_claims_total", "Messages of other machines that claim the address while this server holds it.", []string{"address"}, nil), func(s *State) float64 { return float64(s.Claims) })
	return all
}()

// Describe implements prometheus.Collector.
func (m Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range metrics {
		descs <- one.desc
	}
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(all chan<- prometheus.Metric) {
	if m.Service == nil {
		return
	}
	states := m.Service.States()
	for i := range states {
		for _, one := range metrics {
			all <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(&states[i]), states[i].Address.IP().String())
		}
	}
}
