package main

// figure is one row of the table. Its key names it within a bench.
type figure struct {
	bench, key string
	text       string  // what it is, with its unit
	peer       string  // what it is held against; "": its goal is absolute
	goal       float64 // 0: there is none
	most       bool    // the goal is at most; else at least
}

// figures are the rows, in the order of the table. The goals are those of the issues that
// asked for the benches.
var figures = []figure{
	{bench: "store", key: "append_512_vs_etcd", text: "appends, 512 writers", peer: "etcd", goal: 4},
	{bench: "store", key: "append_512_vs_nats", text: "appends, 512 writers", peer: "NATS, synced", goal: 1.8},
	{bench: "store", key: "append_64_vs_etcd", text: "appends, 64 writers", peer: "etcd", goal: 3.5},
	{bench: "store", key: "p50_1_vs_etcd", text: "wait of one writer, p50", peer: "etcd", goal: 0.7, most: true},
	{bench: "store", key: "p99_512_vs_etcd", text: "wait of 512 writers, p99", peer: "etcd", goal: 0.35, most: true},
	{bench: "store", key: "us_per_change", text: "CPU for a change, servers and client, us", goal: 45, most: true},
	{bench: "store", key: "longest_pause_ms", text: "longest time without an acknowledgement, ms", goal: 50, most: true},
	{bench: "store", key: "large_log_ratio", text: "appends, 10 million events", peer: "a new log", goal: 0.9},
	{bench: "store", key: "replay_vs_etcd_range", text: "replay of a million events", peer: "etcd's range", goal: 1},
	{bench: "store", key: "failover_p99_ms", text: "leader killed to next write, p99, ms", goal: 1500, most: true},
	{bench: "store", key: "transfer_p99_ms", text: "planned transfer, p99, ms", goal: 200, most: true},
	{bench: "store", key: "restart_10m_s", text: "restart with 10 million events, s", goal: 5, most: true},
	{bench: "store", key: "bytes_per_object", text: "memory of an object, bytes", goal: 600, most: true},
	{bench: "feed", key: "fan200_p99_vs_etcd", text: "delay at 200 subscribers, p99", peer: "etcd's watch", goal: 1, most: true},
	{bench: "feed", key: "cpu_vs_etcd", text: "CPU for a delivery", peer: "etcd's watch", goal: 0.5, most: true},
	{bench: "feed", key: "fan200_p99_ms", text: "delay at 200 subscribers, p99, ms", goal: 10, most: true},
	{bench: "feed", key: "fan1000_p99_ms", text: "delay at 1,000 subscribers, p99, ms", goal: 100, most: true},
	{bench: "feed", key: "bytes_per_idle_subscriber", text: "memory of an idle subscriber, bytes", goal: 12_000, most: true},
	{bench: "feed", key: "storm_10k_s", text: "10,000 nodes come back, s"},
	{bench: "feed", key: "catchup_per_s", text: "catch-up, events a second"},
	{bench: "feed", key: "barrier100_p99_ms", text: "write that waits for 100 nodes, p99, ms", goal: 50, most: true},
	{bench: "svp", key: "p50_1x1_vs_echo", text: "SVP lookup, p50", peer: "a bare echo", goal: 1.2, most: true},
	{bench: "svp", key: "vs_redis_1x64", text: "SVP lookups, 64 outstanding", peer: "Redis"},
	{bench: "svp", key: "under_writes_ratio", text: "SVP lookups beside 10,000 changes/s", peer: "no changes", goal: 0.8},
	{bench: "kernel", key: "entries_vs_raw", text: "entries programmed", peer: "bare netlink"},
	{bench: "kernel", key: "stacks_vs_raw", text: "links programmed", peer: "bare netlink", goal: 0.8},
	{bench: "kernel", key: "noop_pass_ms", text: "pass over 500 fabrics, nothing to do, ms", goal: 250, most: true},
	{bench: "kernel", key: "event_to_kernel_p99_ms", text: "event to kernel, p99, ms", goal: 5, most: true},
	{bench: "kernel", key: "miss_p99_ms", text: "first packet answered, p99, ms", goal: 5, most: true},
	{bench: "wire", key: "wire_tput_ratio", text: "throughput with port security", peer: "bare VXLAN", goal: 0.95},
	{bench: "wire", key: "wire_rtt_ratio", text: "round trip with port security", peer: "bare VXLAN", goal: 0.95},
	{bench: "wire", key: "rules_vs_raw", text: "rules of 10,000 ports", peer: "bare netlink", goal: 0.8},
	{bench: "wire", key: "rule_change_p99_ms", text: "change of a port's rules, p99, ms", goal: 10, most: true},
	{bench: "inspect", key: "scan_per_s", text: "filter scan, entries a second", goal: 1_000_000},
	{bench: "inspect", key: "state_at_p99_ms", text: "state of the past of one object, p99, ms", goal: 1000, most: true},
	{bench: "inspect", key: "tail_first_line_ms", text: "first line of log tail, ms", goal: 100, most: true},
	{bench: "inspect", key: "console_p99_ms", text: "console's work for an update, p99, ms", goal: 16, most: true},
	{bench: "triton", key: "item_p99_ms_200", text: "change feed item at 200 listeners, p99, ms", goal: 50, most: true},
	{bench: "triton", key: "roam_gap_s", text: "listener whose server is killed, s", goal: 3, most: true},
	{bench: "triton", key: "list_p99_ms", text: "NICs of a node among a million, p99, ms", goal: 5, most: true},
	{bench: "triton", key: "write_stall_ms", text: "writes held up by lists, ms", goal: 5, most: true},
	{bench: "vmstate", key: "manifest_to_event_p99_ms", text: "VM's manifest to event, p99, ms", goal: 10, most: true},
	{bench: "vmstate", key: "rings_per_s", text: "rings a second", goal: 1000},
	{bench: "vmstate", key: "bytes_per_vm", text: "memory of a VM, bytes", goal: 8 << 10, most: true},
	{bench: "security", key: "append_tls_ratio", text: "appends with TLS", peer: "without", goal: 0.85},
	{bench: "security", key: "fan_tls_ratio", text: "fan-out with TLS", peer: "without", goal: 0.7},
	{bench: "security", key: "stranger_p99_ratio", text: "writes beside 1,000 strangers a second, p99", peer: "without", goal: 2, most: true},
	{bench: "simulate", key: "histories_per_s", text: "simulated histories a second", goal: 0.7},
}

// met reports whether a value is as good as its goal.
func (f *figure) met(value float64) bool {
	if f.most {
		return value <= f.goal
	}
	return value >= f.goal
}
