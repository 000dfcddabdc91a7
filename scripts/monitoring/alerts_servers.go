package main

import "slices"

// three is a series of each of three servers: values of s1, s2 and s3.
func three(metric, s1, s2, s3 string) []series {
	return []series{
		{metric + `{instance="s1",job="rutter-server"}`, s1},
		{metric + `{instance="s2",job="rutter-server"}`, s2},
		{metric + `{instance="s3",job="rutter-server"}`, s3},
	}
}

// replica is a fourth server, without a vote.
func replica(ready, up string) []series {
	const labels = `{instance="r1",job="rutter-server"}`
	return []series{{"rutter_ready" + labels, ready}, {"rutter_store_replica" + labels, ready}, {"up" + labels, up}}
}

// voters counts what an expression has of servers with a vote. What a replica said of
// itself last counts for a day after it ended.
func voters(expr string) string {
	return `count((` + expr + `) unless on (instance) (last_over_time(rutter_store_replica[1d]) == 1))`
}

// serverAlerts are about the servers as a cluster: can it write, is it one log.
func serverAlerts() []alert {
	return []alert{
		{
			name: "RutterServerDown", expr: `up{job="rutter-server"} == 0`, after: "1m", severity: page,
			summary: "Server {{ $labels.instance }} does not answer Prometheus.",
			means:   "The process is not there, or its machine or network is not. With the two others the cluster goes on; one more loss stops writes.",
			look:    "rutter cluster status",
			do:      "On its machine: systemctl status rutter-server, journalctl -u rutter-server. A lost machine: docs/deploy.md, the loss of one.",
			cases:   ofServer("up", "1x3 0 1x10", "0x10", "5m"),
		},
		{
			name: "RutterNoLeader", expr: `sum(rutter_store_leader) == 0 or absent(rutter_store_leader)`, after: "1m", severity: page,
			summary: "No server leads: nothing can be written.",
			means:   "Less than a majority of the servers see each other, or none is scraped. Nodes go on with what they have, and VMs keep their network; changes wait.",
			look:    "rutter cluster status; rutter cluster members",
			do:      "Bring a majority of the servers back. If it is lost for good: docs/deploy.md, the loss of two.",
			cases: []example{
				{series: three("rutter_store_leader", "0x10", "0x10", "0x10"), at: "5m", fires: []map[string]string{{}}},
				{series: three("rutter_store_leader", "0x10", "1x10", "0x10"), at: "5m"},
				{series: three("rutter_store_leader", "1 1 0 0x10", "0 0 0 1x10", "0x10"), at: "3m"},
			},
		},
		{
			name: "RutterOneLossFromStandstill", expr: voters(`rutter_ready == 1`) + ` <= floor(` + voters(`up{job="rutter-server"}`) + ` / 2) + 1 and ` + voters(`rutter_ready == 1`) + ` < ` + voters(`up{job="rutter-server"}`), after: "5m", severity: ticket,
			summary: "{{ $value }} servers can serve: the loss of one more stops writes.",
			shows:   "2",
			means:   "A cluster of three bears the loss of one server, and one is away already.",
			look:    "rutter cluster status",
			do:      "Bring the server back, or put another in its place: docs/deploy.md, the loss of one.",
			cases: []example{
				{series: append(three("rutter_ready", "1x20", "1x20", "0x20"), three("up", "1x20", "1x20", "1x20")...), at: "10m", fires: []map[string]string{{}}},
				{series: append(three("rutter_ready", "1x20", "1x20", "1x20"), three("up", "1x20", "1x20", "1x20")...), at: "10m"},
				{series: slices.Concat(three("rutter_ready", "1x20", "1x20", "0x20"), three("up", "1x20", "1x20", "1x20"), replica("1x20", "1x20")), at: "10m", fires: []map[string]string{{}}},
				{series: slices.Concat(three("rutter_ready", "1x20", "1x20", "1x20"), three("up", "1x20", "1x20", "1x20"), replica("1x5 _x15", "0x20")), at: "18m"},
			},
		},
		{
			name: "RutterServerNotReady", expr: `rutter_ready == 0`, after: "3m", severity: page,
			summary: "Server {{ $labels.instance }} runs and cannot serve.",
			means:   "It answers no reads and takes no nodes: it is behind, hears no leader, differs from the others, or its disk does not do.",
			look:    "curl -s https://SERVER:7420/readyz?verbose; rutter cluster status",
			do:      "What /readyz?verbose names. After a restart a large log takes some seconds.",
			cases:   ofServer("rutter_ready", "0 0 1x10", "0x10", "6m"),
		},
	}
}

// logAlerts are about one log on all servers, and what they make of what is written.
func logAlerts() []alert {
	return []alert{
		{
			name: "RutterDiverged", expr: `rutter_store_diverged == 1`, after: "0m", severity: page,
			summary: "Server {{ $labels.instance }} computed another state than the others, and serves nothing.",
			means:   "Memory or disk of this server failed, or the program has a defect. The others go on; what this server holds is kept aside.",
			look:    "rutter cluster status; rutter support bundle",
			do:      "Keep the bundle, then rutter cluster rebuild ID. Report it. Test the machine's memory.",
			cases:   ofServer("rutter_store_diverged", "0x10", "0 0 1x10", "5m"),
		},
		{
			name: "RutterDefect", expr: `increase(rutter_store_undecided_total[10m]) > 0 or increase(rutter_feed_withheld_total[10m]) > 0`, after: "0m", severity: ticket,
			summary: "Server {{ $labels.instance }} met a defect of its own and contained it.",
			means:   "A change was refused because this program failed to decide it, or a frame was held back because it did not concern the node it was for. Nothing is lost.",
			look:    "journalctl -u rutter-server; rutter support bundle",
			do:      "Report it with the bundle.",
			cases: []example{
				{series: []series{{"rutter_store_undecided_total" + selector(server), "0x5 1x10"}}, at: "8m", fires: []map[string]string{server}},
				{series: []series{{"rutter_store_undecided_total" + selector(server), "3x20"}}, at: "8m"},
				{series: []series{{"rutter_feed_withheld_total" + selector(server), "0x5 2x10"}}, at: "8m", fires: []map[string]string{server}},
			},
		},
		{
			name: "RutterOverloaded", expr: `rate(rutter_store_overloaded_total[5m]) > 0`, after: "5m", severity: ticket,
			summary: "Server {{ $labels.instance }} refuses changes because too many wait.",
			means:   "More is written than the disks of a majority take. Clients retry; what is acknowledged is safe.",
			look:    "rutter cluster status; rutter log stats",
			do:      "Find who writes (rutter log stats, by actor). Look at the latency of the servers' disks.",
			cases:   ofServer("rutter_store_overloaded_total", "7x20", "0+10x20", "12m"),
		},
		{
			name: "RutterPersisterBehind", expr: `rutter_store_persister_lag_bytes > 67108864`, after: "5m", severity: ticket,
			summary: "Server {{ $labels.instance }} has {{ $value | humanize1024 }}B of applied events that are not in changes.db yet.",
			shows:   "95.37Mi",
			means:   "They are safe in raft's log. The disk of this server is slower than what is written.",
			look:    "rutter cluster status",
			do:      "Look at the disk of this server; if it is failing, replace the server.",
			cases:   ofServer("rutter_store_persister_lag_bytes", "1000000x20", "100000000x20", "12m"),
		},
		{
			name: "RutterWritesRefused", expr: `sum by (instance, code) (rate(rutter_writes_refused_total[5m])) > 1`, after: "10m", severity: ticket,
			summary: "{{ $value | humanize }} writes a second are refused with {{ $labels.code }}.",
			shows:   "2",
			means:   "A program writes again and again what the rules do not allow, or the cluster has no room for it.",
			look:    "rutter log tail; journalctl -u rutter-server",
			do:      "The answer that the writer gets names field, reason and remedy.",
			cases: []example{
				{series: []series{{"rutter_writes_refused_total" + selector(more(server, "code", "InUse")), "0+120x30"}}, at: "20m", fires: []map[string]string{{"instance": "s1", "code": "InUse"}}},
				{series: []series{{"rutter_writes_refused_total" + selector(more(server, "code", "InUse")), "0+3x30"}}, at: "20m"},
			},
		},
	}
}

// surfaceAlerts are about what clients meet: versions, service addresses, SVP.
func surfaceAlerts() []alert {
	return []alert{
		{
			name: "RutterVersionsDiffer", expr: `count(count by (version) (rutter_build_info{job="rutter-server"})) > 1`, after: "1d", severity: ticket,
			summary: "The servers have run {{ $value }} versions of the program for a day.",
			shows:   "2",
			means:   "An upgrade was begun and not ended. New features wait for it.",
			look:    "rutter cluster status",
			do:      "Upgrade the others, or go back.",
			cases: []example{
				{series: []series{
					{`rutter_build_info{instance="s1",job="rutter-server",version="1.1"}`, "1x2000"},
					{`rutter_build_info{instance="s2",job="rutter-server",version="1.0"}`, "1x2000"},
				}, at: "25h", fires: []map[string]string{{}}},
				{series: []series{
					{`rutter_build_info{instance="s1",job="rutter-server",version="1.1"}`, "1x2000"},
					{`rutter_build_info{instance="s2",job="rutter-server",version="1.1"}`, "1x2000"},
				}, at: "25h"},
			},
		},
		{
			name: "RutterServiceAddress", expr: `max by (instance, address) (rutter_service_address_problem or rutter_service_address_foreign) == 1`, after: "2m", severity: page,
			summary: "The service address {{ $labels.address }} is in trouble at {{ $labels.instance }}.",
			means:   "Something keeps the server from having it, or another machine has it: programs that know only this address may reach nobody.",
			look:    "curl -s https://SERVER:7420/readyz?verbose",
			do:      "What /readyz?verbose says, as a machine that answers for the address.",
			cases: []example{
				{series: []series{{"rutter_service_address_problem" + selector(more(server, "address", "10.0.0.5")), "1x10"}}, at: "5m", fires: []map[string]string{{"instance": "s1", "address": "10.0.0.5"}}},
				{series: []series{{"rutter_service_address_problem" + selector(more(server, "address", "10.0.0.5")), "0x10"}}, at: "5m"},
			},
		},
		{
			name: "RutterSVPStale", expr: `rutter_svp_stale == 1`, after: "1m", severity: ticket,
			summary: "SVP at {{ $labels.instance }} answers from an old log.",
			means:   "The server has not heard of the log for longer than its bound; lookups may be old.",
			look:    "rutter cluster status",
			do:      "As for a server that is not ready.",
			cases:   ofServer("rutter_svp_stale", "0x10", "1x10", "5m"),
		},
	}
}
