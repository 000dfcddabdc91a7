package main

// nodeAlerts are about compute nodes as servers see them. Each server knows the nodes that
// are in session with it.
func nodeAlerts() []alert {
	return []alert{
		{
			name: "RutterNodesUnknown", expr: `max(rutter_cns{status="unknown"}) > 0`, after: "2m", severity: page,
			summary: "{{ $value }} compute nodes are not heard of.",
			shows:   "1",
			means:   "Their agents are stopped, or they are cut off. VMs there keep the network that they have; changes do not reach them.",
			look:    "rutter cn list; rutter cn sessions",
			do:      "On the node: systemctl status rutter-agent. A node that is gone for good: rutter cn --help.",
			cases: []example{
				{series: []series{{`rutter_cns{instance="s1",job="rutter-server",status="unknown"}`, "1x10"}}, at: "5m", fires: []map[string]string{{}}},
				{series: []series{{`rutter_cns{instance="s1",job="rutter-server",status="unknown"}`, "0x10"}, {`rutter_cns{instance="s1",job="rutter-server",status="running"}`, "9x10"}}, at: "5m"},
			},
		},
		{
			name: "RutterNodesBehind", expr: `sum(rutter_cns_behind) > 0`, after: "5m", severity: ticket,
			summary: "{{ $value }} compute nodes do not have in their kernel what the log said seconds ago.",
			shows:   "3",
			means:   "They are connected and do not keep up: the kernel refuses something, the node is slow, or it holds back.",
			look:    "rutter cn sessions; the worst are in rutter_cn_lag_seconds",
			do:      "rutter agent status on the node says what waits.",
			cases: []example{
				{series: three("rutter_cns_behind", "0x20", "2x20", "1x20"), at: "10m", fires: []map[string]string{{}}},
				{series: three("rutter_cns_behind", "0x20", "0 5 0x20", "0x20"), at: "10m"},
			},
		},
		{
			name: "RutterNodesFailing", expr: `sum(rutter_cns_failing) > 0`, after: "5m", severity: ticket,
			summary: "On {{ $value }} compute nodes the kernel refuses part of what the log says.",
			shows:   "1",
			means:   "The rest of the node's network is as it shall be. The worst are in rutter_cn_failing_objects.",
			look:    "rutter cn sessions",
			do:      "rutter agent status on the node names each object and the error.",
			cases: []example{
				{series: three("rutter_cns_failing", "0x20", "1x20", "0x20"), at: "10m", fires: []map[string]string{{}}},
				{series: three("rutter_cns_failing", "0x20", "0x20", "0x20"), at: "10m"},
			},
		},
		{
			name: "RutterNICsWaiting", expr: `sum(rutter_nics_waiting) > 0`, after: "10m", severity: ticket,
			summary: "{{ $value }} NICs wait to be programmed.",
			shows:   "3",
			means:   "What they need is not there: a network namespace, a tap, a lower link. NICs of VMs that are not to run do not count.",
			look:    "rutter cn sessions; the worst nodes are in rutter_cn_waiting_nics",
			do:      "rutter agent status on the node says what each waits for.",
			cases: []example{
				{series: three("rutter_nics_waiting", "3x30", "0x30", "0x30"), at: "15m", fires: []map[string]string{{}}},
				{series: three("rutter_nics_waiting", "3 3 0x30", "0x30", "0x30"), at: "15m"},
			},
		},
	}
}

// delayAlerts are about nodes that hold changes back, or get them late.
func delayAlerts() []alert {
	slow := func(at string) []series {
		return []series{
			{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="1"}`, "0+0x60"},
			{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="10"}`, at},
			{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="+Inf"}`, "0+60x60"},
		}
	}
	fast := []series{
		{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="1"}`, "0+60x60"},
		{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="10"}`, "0+60x60"},
		{`rutter_programmed_seconds_bucket{instance="s1",job="rutter-server",le="+Inf"}`, "0+60x60"},
	}
	return []alert{
		{
			name: "RutterNodesHold", expr: `sum(rutter_cns_held) > 0`, after: "1m", severity: page,
			summary: "{{ $value }} compute nodes hold back what the log says, since it takes too much away.",
			shows:   "4",
			means:   "Somebody deleted a large part of what works, or says that it is gone. The nodes go on with what they have until an operator accepts it.",
			look:    "rutter cn sessions; rutter log history",
			do:      "If it was a mistake: rutter log revert. If it is meant: rutter cn accept.",
			cases: []example{
				{series: three("rutter_cns_held", "0x10", "4x10", "0x10"), at: "5m", fires: []map[string]string{{}}},
				{series: three("rutter_cns_held", "0x10", "0x10", "0x10"), at: "5m"},
			},
		},
		{
			name: "RutterKernelsSlow", expr: `histogram_quantile(0.99, sum by (le) (rate(rutter_programmed_seconds_bucket[10m]))) > 5`, after: "10m", severity: ticket,
			summary: "Changes take {{ $value | humanizeDuration }} until the kernels have them (p99).",
			shows:   "9.91s",
			means:   "From acknowledged to programmed, over all nodes.",
			look:    "rutter cn sessions",
			do:      "If RutterNodesBehind names nodes, see to them; else look at the servers' processors.",
			cases: []example{
				{series: slow("0+60x60"), at: "30m", fires: []map[string]string{{}}},
				{series: fast, at: "30m"},
			},
		},
		{
			name: "RutterUnderlayNarrow", expr: `max(rutter_underlay_narrow_nodes) > 0`, after: "10m", severity: ticket,
			summary: "The underlay of {{ $value }} compute nodes does not carry a network there.",
			shows:   "1",
			means:   "Large packets of VMs are lost on the way: the MTU of the underlay is too small for the network's.",
			look:    "curl -s https://SERVER:7420/readyz?verbose",
			do:      "Raise the MTU of the underlay, or lower that of the network.",
			cases: []example{
				{series: three("rutter_underlay_narrow_nodes", "1x30", "1x30", "0x30"), at: "15m", fires: []map[string]string{{}}},
				{series: three("rutter_underlay_narrow_nodes", "0x30", "0x30", "0x30"), at: "15m"},
			},
		},
	}
}

// agentAlerts are about compute nodes as their own /metrics say it.
func agentAlerts() []alert {
	return []alert{
		{
			name: "RutterAgentDown", expr: `up{job="rutter-agent"} == 0`, after: "1m", severity: page,
			summary: "The agent of {{ $labels.instance }} does not answer Prometheus.",
			means:   "The agent is stopped, or the node is away. Its VMs keep the network that they have.",
			look:    "rutter cn sessions; on the node: systemctl status rutter-agent",
			do:      "systemctl start rutter-agent.",
			cases:   ofNode("up", "1x2 0 1x10", "0x10", "4m"),
		},
		{
			name: "RutterAgentUnfed", expr: `rutter_agent_unfed_seconds > 60`, after: "1m", severity: ticket,
			summary: "No server has fed {{ $labels.instance }} for {{ $value | humanizeDuration }}.",
			shows:   "4m 40s",
			means:   "The node goes on with its cache. It hears of no change.",
			look:    "on the node: rutter agent status",
			do:      "Look at the way from the node to port 7420 of each server, and at its certificate.",
			cases:   ofNode("rutter_agent_unfed_seconds", "0 20 0x10", "100+60x10", "3m"),
		},
		{
			name: "RutterAgentFailing", expr: `rutter_agent_failing > 0`, after: "5m", severity: ticket,
			summary: "The kernel of {{ $labels.instance }} refuses {{ $value }} objects.",
			shows:   "2",
			means:   "As RutterNodesFailing, with the name of the node.",
			look:    "on the node: rutter agent status",
			do:      "It names each object and the kernel's error.",
			cases:   ofNode("rutter_agent_failing", "0x20", "2x20", "10m"),
		},
		{
			name: "RutterAgentDrift", expr: `rate(rutter_agent_drift_total[10m]) > 0.05`, after: "10m", severity: ticket,
			summary: "Another program changes {{ $labels.object }} at {{ $labels.instance }} again and again.",
			means:   "The agent puts it right each time; the two fight.",
			look:    "on the node: rutter agent status; journalctl -u rutter-agent",
			do:      "Find the other program: NetworkManager, systemd-networkd, a script.",
			cases:   ofNode("rutter_agent_drift_total", "5x40", "0+60x40", "25m", "object", "link"),
		},
		{
			name: "RutterAgentCache", expr: `rutter_agent_cache_failing == 1`, after: "5m", severity: ticket,
			summary: "{{ $labels.instance }} cannot write its cache.",
			means:   "The node works from memory. After a restart it would begin with what was written last.",
			look:    "on the node: rutter agent status; df -h /var/lib/rutter-agent",
			do:      "Make room, or mend the disk.",
			cases:   ofNode("rutter_agent_cache_failing", "0x20", "1x20", "10m"),
		},
		{
			name: "RutterPortDrops", expr: `sum by (instance, vm, reason) (rate(rutter_agent_port_drops_total[5m])) > 10`, after: "5m", severity: ticket,
			summary: "{{ $value | humanize }} frames a second of {{ $labels.vm }} at {{ $labels.instance }} are dropped: {{ $labels.reason }}.",
			shows:   "20",
			means:   "The VM sends as what it is not, or an address was not given to its NIC.",
			look:    "on the node: rutter agent ports; rutter trace",
			do:      "docs/trace.md has each reason.",
			cases: []example{
				{series: []series{{"rutter_agent_port_drops_total" + selector(more(node, "mac", "90:b8:d0:00:00:01", "vm", "web", "reason", "ip")), "0+1200x30"}}, at: "15m", fires: []map[string]string{{"instance": "cn1", "vm": "web", "reason": "ip"}}},
				{series: []series{{"rutter_agent_port_drops_total" + selector(more(node, "mac", "90:b8:d0:00:00:01", "vm", "web", "reason", "ip")), "0+5x30"}}, at: "15m"},
			},
		},
		{
			name: "RutterPortSecurityUnsupported", expr: `rutter_agent_port_security{mode="unsupported"} == 1`, after: "5m", severity: ticket,
			summary: "{{ $labels.instance }} cannot enforce what its VMs may send.",
			means:   "The kernel has no nf_tables for bridges, or refuses the rules.",
			look:    "on the node: rutter agent ports",
			do:      "docs/deploy.md, what a node's kernel needs.",
			cases:   ofNode("rutter_agent_port_security", "0x20", "1x20", "10m", "mode", "unsupported"),
		},
	}
}
