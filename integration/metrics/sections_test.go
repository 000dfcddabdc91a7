package metrics

// opening begins the page.
const opening = `# Metrics

` + "`GET /metrics`" + ` of a server, and of an agent, answers in the form of Prometheus, with those
of Go's runtime and of the process beside these. Those of an agent are listed last.

This page is made from the collectors: a metric's meaning is its help in the answer, and a
test compares both (` + "`RUTTER_WRITE=1 go test ./integration/metrics -run DocsHave`" + ` writes
it). The unit 1 is a number of things. Counters start at 0 with the process. A label in
braces has one series for each of its values; every label has few, and what names compute
nodes names 10 at most.
`

// sections are the parts of the page, in its order. A metric belongs to the first that has
// a prefix of its name.
var sections = []section{
	{
		title: "Nodes, as servers see them",
		text: `From what the nodes report in their sessions with this server: add the servers up, since each
node has one session. The 10 worst nodes are named, with their UUID and hostname; a node
that is well again is not named any more. A node's lag is counted by this server's clock. A
node without a session is in none of these, except ` + "`rutter_cns`" + `, which every server has from
the log: take the highest.

`,
		prefixes: []string{"rutter_cns", "rutter_cn_", "rutter_nics_waiting", "rutter_programmed_seconds", "rutter_underlay_"},
		guide: []string{
			"- Which nodes are behind, refuse something or wait: `rutter cn sessions`. What a node lacks, and why: `rutter agent status` there.",
			"- Nodes that are gone: `rutter_cns{status=\"unknown\"}`, then `rutter cn list`.",
			"- 99 of 100 entries reach the kernels within: `histogram_quantile(0.99, sum by (le) (rate(rutter_programmed_seconds_bucket[5m])))`.",
			"- Drift: what was changed is in the agent's log and in `rutter agent status`; which program did it is not known. [safety.md](safety.md), L3.",
			"- Nodes that hold removals back: `rutter cn accept`; [safety.md](safety.md), R2.",
		},
	},
	{
		title:    "The server",
		prefixes: []string{"rutter_head_seq", "rutter_floor_seq", "rutter_applied_index", "rutter_ready", "rutter_service_address_", "rutter_warnings", "rutter_streams", "rutter_alarms", "rutter_build_info"},
		guide: []string{
			"- An alarm or a warning: `rutter cluster status`, and `GET /readyz?verbose`, have its words. `rutter_build_info` is on agents too.",
			"- An alarm `clock`: `rutter cluster time`; [deploy.md](deploy.md), Clocks. `disk_low`, `disk_full` and `no_room`: [deploy.md](deploy.md), Disk trouble.",
			"- An alarm `diverged`: [safety.md](safety.md). `certificate`: `rutter_tls_not_after_seconds`. `lag`: `rutter_cn_lag_seconds`.",
			"- The service address: [deploy.md](deploy.md), One address for old clients.",
		},
	},
	{
		title:    "Writes, requests and budgets",
		prefixes: []string{"rutter_writes_refused_total", "rutter_budget_", "rutter_denied_total", "rutter_limited_total", "rutter_connections_named_total", "rutter_http_"},
		guide: []string{
			"- Budgets, what each counts and why: [safety.md](safety.md), W1. `rutter server --budget` sets one.",
			"- Who was refused, and what: the audit file of the server; [security.md](security.md).",
		},
	},
	{title: "The feed of compute nodes", prefixes: []string{"rutter_feed_"}, guide: []string{"- Sessions that ended because a node said what cannot be: [safety.md](safety.md), B4."}},
	{title: "The barrier", prefixes: []string{"rutter_barrier"}, guide: []string{"- Which node a wait misses: its answer, or `GET /wait`; [safety.md](safety.md), The barrier."}},
	{
		title:    "The store",
		prefixes: []string{"rutter_store_"},
		guide: []string{
			"- Members, the leader, disks: `rutter cluster status`. Clocks: `rutter cluster time`. What is kept: [deploy.md](deploy.md), How much is kept.",
			"- A server that diverged, or an entry that stops every server: [deploy.md](deploy.md), An entry that stops every server.",
		},
	},
	{title: "Backups", prefixes: []string{"rutter_backup"}, guide: []string{"- What was made and checked, and when the next is due: `rutter snapshot schedule`; [backup.md](backup.md)."}},
	{title: "Log lines and support", prefixes: []string{"rutter_log_", "rutter_support_"}, guide: []string{"- What a message means: `rutter explain RT012`, or [messages.md](messages.md). All that support needs in one file: `rutter support bundle`."}},
	{title: "TLS", prefixes: []string{"rutter_tls_"}, guide: []string{"- Certificates and their ends: `rutter cert list`; [security.md](security.md)."}},
	{title: "VMs and VMMs", prefixes: []string{"rutter_vmm_", "rutter_vm_"}, guide: []string{"- How a VM's state comes to the log: [vms.md](vms.md)."}},
	{
		title:    "SVP",
		prefixes: []string{"rutter_svp_"},
		guide: []string{
			"Connections that were closed because as many were open as a limit allows",
			"(`rutter_svp_closed_total{reason}` for SVP, `rutter_limited_total{limit}` for the API,",
			"`rutter_store_peer_refused_total` for the peer port) have a line in the log too: the",
			"first of an address at once, then one a minute with their number, the limit, and what to",
			"do. The listeners for programs without TLS have the line, and no metric of it.",
		},
	},
	{title: "Triton's services", prefixes: []string{"rutter_changefeed_", "rutter_cnapi_", "rutter_napi_", "rutter_triton_"}, guide: []string{"- What each surface serves: [triton.md](triton.md)."}},
	{
		title: "The agent of a compute node",
		text: "`GET /metrics` at `rutter agent --listen` (127.0.0.1:5309) and at its socket. The numbers\n" +
			"are those of `GET /status`, which has them as JSON. The number of series is bounded: kinds\n" +
			"of objects, modes and reasons are a few, and the metrics by `mac` have one series for each\n" +
			"NIC of the node and each reason for which something of it was dropped. `vm` is the alias\n" +
			"of the VM, or its UUID. `rutter_build_info` and `process_start_time_seconds`, which says when the\n" +
			"agent began, are here too.\n\n",
		prefixes: []string{"rutter_agent_"},
		guide: []string{
			"- Each object that fails, waits or is held back, with its reason: `rutter agent status`.",
			"- Drops of a VM's port: [deploy.md](deploy.md), Port security and the wire. What a node answers its VMs: [vms.md](vms.md).",
			"- `rutter_agent_time_seconds - timestamp(rutter_agent_time_seconds)` is how far the node's clock is ahead of Prometheus's.",
		},
	},
}
