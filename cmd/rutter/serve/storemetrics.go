package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"rutter/raftstore"
)

// storeMetric is one number of the store's status.
type storeMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*raftstore.Status) float64
}

// storeMetrics exports the store's status as metrics, all as of one moment.
type storeMetrics struct {
	status func() raftstore.Status
	all    []storeMetric
	offset *prometheus.Desc // of each server's clock
}

func newStoreMetrics(status func() raftstore.Status) *storeMetrics {
	m := &storeMetrics{status: status, offset: prometheus.NewDesc("rutter_store_clock_offset_seconds",
		"How far a server's clock is ahead of the one that the servers agree on, as this server knows it.", []string{"server"}, nil)}
	add := func(kind prometheus.ValueType, name, help string, value func(*raftstore.Status) float64) {
		m.all = append(m.all, storeMetric{prometheus.NewDesc("rutter_store_"+name, help, nil, nil), kind, value})
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	type st = raftstore.Status
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	add(gauge, "leader", "1 if this server leads.", func(s *st) float64 { return truth(s.State == "Leader") })
	add(gauge, "term", "Raft's term.", func(s *st) float64 { return float64(s.Term) })
	add(gauge, "age_seconds", "Time since this server heard a leader; 0 if it leads.", func(s *st) float64 { return s.Age.Seconds() })
	add(gauge, "replica", "1 if this server follows without a vote.", func(s *st) float64 { return truth(s.Replica) })
	add(gauge, "replica_lag_seconds", "How far this replica is behind the leader; 0 on a server with a vote.", func(s *st) float64 { return s.Lag.Seconds() })
	add(gauge, "replica_max_lag_seconds", "Beyond this, a replica is not ready (--max-lag); 0 on a server with a vote.", func(s *st) float64 { return s.MaxLag.Seconds() })
	add(gauge, "replica_lagging", "1 while this replica is not asked because it lags.", func(s *st) float64 { return truth(s.Lagging != "") })
	add(counter, "replica_lags_total", "Times that this replica began to lag too far.", func(s *st) float64 { return float64(s.Lags) })
	add(counter, "comparisons_total", "Rounds in which this server compared its state with the others'.", func(s *st) float64 { return float64(s.Comparisons) })
	add(counter, "differences_total", "Times that this server stopped serving because its state differs.", func(s *st) float64 { return float64(s.Differences) })
	add(gauge, "diverged", "1 while this server serves nothing because its state differs from the others'.", func(s *st) float64 { return truth(s.Diverged != "") })
	add(gauge, "rebuilding", "1 while this server's state is replaced by another one's.", func(s *st) float64 { return truth(s.Rebuild) })
	add(gauge, "clock_alarms", "Things that are wrong with the servers' clocks, or with the log's time: rutter cluster time names them.", func(s *st) float64 { return float64(len(s.Clock.Alarms)) })
	add(gauge, "clock_ahead_seconds", "How far the time of the last entry is ahead of the servers' agreed clock; below 0 it is as old as that.", func(s *st) float64 { return s.Clock.Ahead.Seconds() })
	add(gauge, "feature_version", "The feature version that all servers agreed on.", func(s *st) float64 { return float64(s.Feature) })
	add(gauge, "persister_lag_events", "Events that are applied and not yet in changes.db.", func(s *st) float64 { return float64(s.LagEvents) })
	add(gauge, "persister_lag_bytes", "Bytes of these.", func(s *st) float64 { return float64(s.LagBytes) })
	add(counter, "persister_transactions_total", "Synced transactions of changes.db.", func(s *st) float64 { return float64(s.Persisted) })
	add(gauge, "raft_log_bytes", "Size of raft's log.", func(s *st) float64 { return float64(s.RaftBytes) })
	add(gauge, "changes_db_bytes", "Size of changes.db.", func(s *st) float64 { return float64(s.DBBytes) })
	add(gauge, "disk_free_bytes", "Free space of the data folder's file system, for this process.", func(s *st) float64 { return float64(s.DiskFree) })
	add(gauge, "disk_bytes", "Size of that file system.", func(s *st) float64 { return float64(s.DiskBytes) })
	add(gauge, "disk_usable_bytes", "What the data folder has room for: free space, and free pages of changes.db.", func(s *st) float64 { return float64(s.Room.Usable) })
	add(gauge, "disk_low_water_bytes", "Below this, this server has no room for what grows.", func(s *st) float64 { return float64(s.Room.LowWater) })
	add(gauge, "disk_low", "1 while this server is below its low water.", func(s *st) float64 { return truth(s.Room.Low) })
	add(gauge, "disk_full", "1 while this server is in its reserve, and takes no entries.", func(s *st) float64 { return truth(s.Room.Full) })
	add(gauge, "no_room", "1 while the cluster refuses what grows, since too few servers have room.", func(s *st) float64 { return truth(s.NoRoom != "") })
	add(counter, "refused_for_room_total", "Changes that this server refused as the leader for want of room.", func(s *st) float64 { return float64(s.NoRooms) })
	add(gauge, "disk_operation_age_seconds", "Of the operation on disk that is under way for longest.", func(s *st) float64 { return s.DiskOp.Seconds() })
	add(counter, "disk_stalls_total", "Times that the disk began to hang.", func(s *st) float64 { return float64(s.DiskStalls) })
	add(gauge, "proposals_queued", "Changes that wait to be proposed.", func(s *st) float64 { return float64(s.Queued) })
	add(counter, "proposals_total", "Changes that this server took as the leader.", func(s *st) float64 { return float64(s.Proposals) })
	add(counter, "batches_total", "Raft entries that these went into.", func(s *st) float64 { return float64(s.Batches) })
	add(counter, "forwarded_total", "Changes that were sent on to the leader.", func(s *st) float64 { return float64(s.Forwarded) })
	add(counter, "overloaded_total", "Changes that were refused because too much waited.", func(s *st) float64 { return float64(s.Overloaded) })
	add(counter, "duplicates_total", "Changes that were answered from the window of ids.", func(s *st) float64 { return float64(s.Duplicates) })
	add(counter, "refused_total", "Changes that were decided against.", func(s *st) float64 { return float64(s.Refused) })
	add(counter, "undecided_total", "Changes that were refused because this program failed to decide them: report them.", func(s *st) float64 { return float64(s.Undecided) })
	add(counter, "unreadable_total", "Changes in the log that were refused because their bytes do not decode.", func(s *st) float64 { return float64(s.Unreadable) })
	add(counter, "refused_early_total", "Changes that this server refused before they were proposed.", func(s *st) float64 { return float64(s.Early) })
	add(counter, "peer_refused_total", "Connections that the peer port closed because as many were open as its limit allows.", func(s *st) float64 { return float64(s.NoPlaces) })
	add(counter, "peer_probes_total", "Probes of peers that had answered nothing for 3 s.", func(s *st) float64 { return float64(s.Probes) })
	add(counter, "peer_silent_total", "Connections to peers that this server gave up because a probe was not answered within 3 s.", func(s *st) float64 { return float64(s.Silent) })
	add(counter, "snapshots_sent_total", "Snapshots streamed to other servers.", func(s *st) float64 { return float64(s.Snapshots) })
	add(counter, "snapshots_restored_total", "Snapshots that this server's state was replaced by.", func(s *st) float64 { return float64(s.Restores) })
	return m
}

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range m.all {
		to <- one.desc
	}
	to <- m.offset
}

// Collect implements prometheus.Collector.
func (m *storeMetrics) Collect(to chan<- prometheus.Metric) {
	status := m.status()
	for _, one := range m.all {
		to <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(&status))
	}
	if status.ID != "" {
		to <- prometheus.MustNewConstMetric(m.offset, prometheus.GaugeValue, status.Clock.Offset.Seconds(), status.ID)
	}
	for _, other := range status.Clock.Others {
		if other.Known {
			to <- prometheus.MustNewConstMetric(m.offset, prometheus.GaugeValue, other.Offset.Seconds(), other.ID)
		}
	}
}
