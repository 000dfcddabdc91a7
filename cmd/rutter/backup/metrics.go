package backup

import "github.com/prometheus/client_golang/prometheus"

// metric is one number of a Status.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Status) (value float64, known bool)
}

// Metrics exports a schedule's status. Without a schedule there are no numbers.
type Metrics struct{ *Schedule }

func metricOf(kind prometheus.ValueType, name, help string, value func(*Status) (float64, bool)) metric {
	return metric{prometheus.NewDesc("rutter_backup"+name, help, nil, nil), kind, value}
}

var metrics = []metric{
	metricOf(prometheus.GaugeValue, "_last_success_timestamp_seconds", "When the newest backup in the folder was begun.", func(s *Status) (float64, bool) {
		return seconds(s), s.Last != nil
	}),
	metricOf(prometheus.GaugeValue, "_last_verified_timestamp_seconds", "When the newest backup was begun that was restored and found good; each is before it gets its name.", func(s *Status) (float64, bool) {
		return float64(s.Verified.UnixMilli()) / 1000, !s.Verified.IsZero()
	}),
	metricOf(prometheus.CounterValue, "_failures_total", "Backups that failed.", func(s *Status) (float64, bool) { return float64(s.Failures), true }),
	metricOf(prometheus.CounterValue, "_made_total", "Backups that this process made.", func(s *Status) (float64, bool) { return float64(s.Made), true }),
	metricOf(prometheus.GaugeValue, "_bytes", "Size of the newest backup.", func(s *Status) (float64, bool) {
		if s.Last == nil {
			return 0, false
		}
		return float64(s.Last.Bytes), true
	}),
	metricOf(prometheus.GaugeValue, "_seconds", "How long the last backup took that this process made, with its restore.", func(s *Status) (float64, bool) { return s.Took, s.Made > 0 }),
	metricOf(prometheus.GaugeValue, "s_damaged", "Kept backups of this server that a later check found damaged.", func(s *Status) (float64, bool) { return float64(len(s.Damaged)), true }),
	metricOf(prometheus.GaugeValue, "s_of_old_logs", "Backups in the folder of logs that are no more, as after a restore; no server deletes them.", func(s *Status) (float64, bool) { return float64(s.OldLogs), true }),
	metricOf(prometheus.CounterValue, "_rechecks_total", "Checks of kept backups since the start of the server; one a day, each time of the one whose last check is the oldest.", func(s *Status) (float64, bool) { return float64(s.Rechecks), true }),
	metricOf(prometheus.GaugeValue, "_oldest_check_timestamp_seconds", "When that kept backup was restored last whose last check is the oldest.", func(s *Status) (float64, bool) {
		return float64(s.OldestCheck.UnixMilli()) / 1000, !s.OldestCheck.IsZero()
	}),
	metricOf(prometheus.GaugeValue, "s_kept", "Backups of this server in the folder.", func(s *Status) (float64, bool) { return float64(s.Kept), true }),
}

func seconds(s *Status) float64 {
	if s.Last == nil {
		return 0
	}
	return float64(s.Last.At.Unix())
}

var intervalMetric = prometheus.NewDesc("rutter_backup_interval_seconds", "Time between two backups; missing if there is no schedule.", nil, nil)

// Describe implements prometheus.Collector.
func (m Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range metrics {
		to <- one.desc
	}
	to <- intervalMetric
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(to chan<- prometheus.Metric) {
	if m.Schedule == nil {
		return
	}
	status := m.Status()
	for _, one := range metrics {
		if value, known := one.value(&status); known {
			to <- prometheus.MustNewConstMetric(one.desc, one.kind, value)
		}
	}
	to <- prometheus.MustNewConstMetric(intervalMetric, prometheus.GaugeValue, m.cfg.Every.Seconds())
}
