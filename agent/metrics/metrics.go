package metrics

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rutter/agent"
	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/log"
	"rutter/projections/desired"
)

// scrapeTime bounds the reading of the kernel's counters for one answer.
const scrapeTime = 5 * time.Second

// Answers counts the answers of one kind that the node gave to its VMs.
type Answers struct {
	Kind  string // of the answer, as in "arp", "dhcp_ack"; one of a few
	Count uint64
}

// Unanswered counts requests of VMs that got no answer for one reason.
type Unanswered struct {
	Reason string // as in "unknown", "malformed"; one of a few
	Count  uint64
}

// Config has what is measured. Agent and Ports must be given.
type Config struct {
	Agent func() agent.Status
	Ports func(context.Context) ports.Status
	// Answers counts the node's answers to ARP, ND and DHCP, by kind; nil: it gives none.
	Answers func() []Answers
	// Unanswered counts the requests that got none, by reason; nil: none is read.
	Unanswered func() []Unanswered
	// Helper is what is known of the process that runs the VMs of manifests; nil: the agent
	// has no helper.
	Helper func() Helper
	// Version is that of the program.
	Version string
	// Folder is the agent's folder, of whose disk the room is measured. "": none is.
	Folder string
	// More are the metrics of the process beside those of the agent.
	More []prometheus.Collector
	// Now is the time of day; default time.Now.
	Now func() time.Time
}

// Collector is a prometheus.Collector of one agent.
type Collector struct {
	cfg    Config
	disk   disk
	values []value
}

// value is one metric without labels.
type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*agent.Status) float64
}

// Handler answers GET /metrics. Beside those of a Collector there are the metrics of
// Go's runtime and of the process.
func Handler(cfg Config) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range append([]prometheus.Collector{
		New(cfg), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, cfg.More...) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	// What cannot be measured does not take away the rest.
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), nil
}

// New returns the collector of an agent.
func New(cfg Config) *Collector {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Collector{cfg: cfg, disk: disk{folder: cfg.Folder}}
	c.values = append(append(feedValues(cfg.Now), kernelValues(cfg.Now)...), restValues()...)
	return c
}

func gauge(name, help string, of func(*agent.Status) float64) value {
	return value{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

func counter(name, help string, of func(*agent.Status) float64) value {
	return value{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// since is the time since at, in seconds; -1 if at is zero.
func since(now func() time.Time, at time.Time) float64 {
	if at.IsZero() {
		return -1
	}
	return max(now().Sub(at), 0).Seconds()
}

// feedValues say how far the agent is in the log.
func feedValues(now func() time.Time) []value {
	return []value{
		gauge("rutter_agent_following", "1 while a server feeds this node.", func(s *agent.Status) float64 { return is(s.State == agent.Following) }),
		gauge("rutter_agent_unfed_seconds", "How long no server has fed this node; 0 while one does.", func(s *agent.Status) float64 { return s.Age.Seconds() }),
		gauge("rutter_agent_bookmark_age_seconds", "Time since the last bookmark of the log arrived, of which there is none while the log does not change; -1 before the first.", func(s *agent.Status) float64 { return since(now, s.Bookmark) }),
		gauge("rutter_agent_session", "Number of the connection within this process.", func(s *agent.Status) float64 { return float64(s.Session) }),
		gauge("rutter_agent_attempts", "Attempts to connect to a server since the last bookmark.", func(s *agent.Status) float64 { return float64(s.Attempts) }),
		gauge("rutter_agent_zone_away", "1 while this node follows a server that is not of its zone (--zone); 0 without a zone.", func(s *agent.Status) float64 { return is(s.Away) }),
		counter("rutter_agent_zone_moves_total", "Times that this node went back to a server of its zone.", func(s *agent.Status) float64 { return float64(s.Moves) }),
		gauge("rutter_agent_cursor_seq", "How far the log was read.", func(s *agent.Status) float64 { return float64(s.Cursor.Seq) }),
		gauge("rutter_agent_head_seq", "Head of the server, as last received.", func(s *agent.Status) float64 { return float64(s.Head) }),
		gauge("rutter_agent_lag_entries", "Entries between cursor and head; most concern other nodes.", func(s *agent.Status) float64 { return float64(s.Lag) }),
		gauge("rutter_agent_applied_seq", "Everything up to here is known; 0 until a server confirmed it.", func(s *agent.Status) float64 { return float64(s.Applied) }),
		gauge("rutter_agent_programmed_seq", "The kernel matched the log here; 0: not in this process.", func(s *agent.Status) float64 { return float64(s.Programmed) }),
		gauge("rutter_agent_reached_seq", "The kernel matched the log here, but for the objects that wait; 0: not in this process.", func(s *agent.Status) float64 { return float64(s.Reached) }),
		counter("rutter_agent_resets_total", "Times that the view of the log was begun anew.", func(s *agent.Status) float64 { return float64(s.Resets) }),
		counter("rutter_agent_digest_mismatches_total", "Scopes that differed from the log, and were requested again.", func(s *agent.Status) float64 { return float64(s.Mismatches) }),
		gauge("rutter_agent_scopes", "Scopes of the log that are held.", func(s *agent.Status) float64 { return float64(len(s.Scopes)) }),
	}
}

// kernelValues say what is wanted of the kernel, and what it has.
func kernelValues(now func() time.Time) []value {
	return []value{
		gauge("rutter_agent_vnets", "Vnets that this node has links on.", func(s *agent.Status) float64 { return float64(s.Kernel.VNets) }),
		gauge("rutter_agent_links", "Links that are wanted, of all kinds.", func(s *agent.Status) float64 { return float64(s.Kernel.Links) }),
		gauge("rutter_agent_neighbours", "Neighbour entries that are wanted ahead.", func(s *agent.Status) float64 { return float64(s.Kernel.Neighs) }),
		gauge("rutter_agent_forwarding_entries", "Forwarding entries that are wanted ahead.", func(s *agent.Status) float64 { return float64(s.Kernel.FDB) }),
		gauge("rutter_agent_on_demand_vnets", "Vnets whose entries the kernel asks for.", func(s *agent.Status) float64 { return float64(s.Kernel.Demand.VNets) }),
		gauge("rutter_agent_on_demand_entries", "Entries of these vnets that the kernel has.", func(s *agent.Status) float64 { return float64(s.Kernel.Demand.Resident) }),
		counter("rutter_agent_misses_total", "Entries that the kernel asked for.", func(s *agent.Status) float64 { return float64(s.Kernel.Demand.Questions) }),
		counter("rutter_agent_misses_answered_total", "Of these, those that were answered; the log has no entry for the others.", func(s *agent.Status) float64 { return float64(s.Kernel.Demand.Answered) }),
		counter("rutter_agent_evicted_total", "Entries that were removed to make room for others.", func(s *agent.Status) float64 { return float64(s.Kernel.Demand.Evicted) }),
		counter("rutter_agent_passes_total", "Passes that compared the kernel with the log.", func(s *agent.Status) float64 { return float64(s.Kernel.Passes) }),
		counter("rutter_agent_pass_seconds_total", "Time that all passes took.", func(s *agent.Status) float64 { return s.Kernel.TookAll.Seconds() }),
		gauge("rutter_agent_pass_seconds", "Time that the last pass took.", func(s *agent.Status) float64 { return s.Kernel.Took.Seconds() }),
		gauge("rutter_agent_whole_pass_age_seconds", "Time since the last pass of a complete view began; -1: there was none in this process.", func(s *agent.Status) float64 { return since(now, s.Kernel.WholeAt) }),
		gauge("rutter_agent_delay_p99_seconds", "99th percentile of the time from an event, applied, to the kernel's acknowledgement, over the last rounds.", func(s *agent.Status) float64 { return s.Kernel.Delay99.Seconds() }),
		gauge("rutter_agent_matched", "1 while the kernel is as a complete view of the log wants it.", func(s *agent.Status) float64 { return is(s.Kernel.Matched) }),
		counter("rutter_agent_steps_total", "Steps that changed the kernel.", func(s *agent.Status) float64 { return float64(s.Kernel.Steps) }),
		gauge("rutter_agent_failing", "Objects that the kernel refused, or whose VM namespace is missing or cannot be read, as of the last pass; not those of rutter_agent_idle.", func(s *agent.Status) float64 { return float64(s.Kernel.Failing) }),
		gauge("rutter_agent_blocked", "Objects that foreign links keep from being as wanted.", func(s *agent.Status) float64 { return float64(s.Kernel.Blocked) }),
		gauge("rutter_agent_unread", "Network namespaces of VMs that could not be read: rutter agent status names each.", func(s *agent.Status) float64 { return float64(s.Kernel.Unread) }),
		gauge("rutter_agent_waiting", "Objects that barriers of changes that concern them wait for: rutter agent status names each.", func(s *agent.Status) float64 { return float64(s.Kernel.Waiting) }),
		gauge("rutter_agent_nics_waiting", "NICs whose links the kernel lacks, without those of VMs that are not to run: rutter agent status names them.", func(s *agent.Status) float64 { return float64(s.Kernel.WaitingNICs) }),
		gauge("rutter_agent_idle", "Links that are not there because their VMs are not to run.", func(s *agent.Status) float64 { return float64(s.Kernel.Idle) }),
		gauge("rutter_agent_problems", "Objects of the log that cannot be programmed.", func(s *agent.Status) float64 { return float64(s.Kernel.Unprogrammable) }),
	}
}

// restValues are about the cache, and about what operators must see to.
func restValues() []value {
	return []value{
		counter("rutter_agent_cache_commits_total", "Transactions of the cache.", func(s *agent.Status) float64 { return float64(s.Cache.Commits) }),
		gauge("rutter_agent_cache_rows_waiting", "Rows that are not on disk yet.", func(s *agent.Status) float64 { return float64(s.Cache.Waiting) }),
		gauge("rutter_agent_cache_failing", "1 while the cache cannot be written.", func(s *agent.Status) float64 { return is(s.Cache.Failure != "") }),
		counter("rutter_agent_cache_failures_total", "Transactions of the cache that failed.", func(s *agent.Status) float64 { return float64(s.Cache.Failures) }),
		gauge("rutter_agent_held", "1 while what the log says is held back because it takes too much away.", func(s *agent.Status) float64 { return is(s.Hold != nil) }),
		gauge("rutter_agent_held_links", "Links that it would take away.", func(s *agent.Status) float64 {
			if s.Hold == nil {
				return 0
			}
			return float64(s.Hold.Going)
		}),
		gauge("rutter_agent_trouble", "Other things that must be seen to: rutter agent status names them.", func(s *agent.Status) float64 { return float64(len(s.Trouble)) }),
	}
}

// Metrics with labels, and those that are not of the status.
var (
	objects      = prometheus.NewDesc("rutter_agent_objects", "Objects of the log that are held, by kind.", []string{"kind"}, nil)
	buildInfo    = prometheus.NewDesc("rutter_build_info", "1; which program runs: its version, that of Go, and the newest feature version that it knows.", []string{"version", "go_version", "feature"}, nil)
	clock        = prometheus.NewDesc("rutter_agent_time_seconds", "The time of day by this node's clock, in Unix time: its difference from timestamp() says how wrong the clock is.", nil, nil)
	programmed   = prometheus.NewDesc("rutter_agent_programmed_seconds", "Time from an entry's arrival at this node until the kernel acknowledged it: of entries that arrive together, the oldest. What needs a pass over all links is in rutter_agent_pass_seconds.", nil, nil)
	failing      = prometheus.NewDesc("rutter_agent_failing_objects", "Objects that the kernel refused, or that foreign links block, by kind of object, as of the last pass; kinds without any are absent.", []string{"object"}, nil)
	drift        = prometheus.NewDesc("rutter_agent_drift_total", "Differences that other programs made in the kernel, found and put right, by kind of object.", []string{"object"}, nil)
	security     = prometheus.NewDesc("rutter_agent_port_security", "1 at the mode of port security on this node: enforced, off or unsupported.", []string{"mode"}, nil)
	securedPorts = prometheus.NewDesc("rutter_agent_ports", "Ports of VMs that have rules in the kernel.", nil, nil)
	unreadPorts  = prometheus.NewDesc("rutter_agent_ports_unread", "1 while the rules, or what they dropped, cannot be read.", nil, nil)
	portDrops    = prometheus.NewDesc("rutter_agent_port_drops_total", "Frames of a VM that the rules of its port dropped, by NIC, VM and reason; reasons that dropped nothing are absent.", []string{"mac", "vm", "reason"}, nil)
	portBytes    = prometheus.NewDesc("rutter_agent_port_dropped_bytes_total", "Their bytes.", []string{"mac", "vm", "reason"}, nil)
	underlay     = prometheus.NewDesc("rutter_agent_underlay_drops_total", "VXLAN packets that were dropped at the underlay, by reason.", []string{"reason"}, nil)
	answers      = prometheus.NewDesc("rutter_agent_answers_total", "Answers that the node gave to its VMs, by kind.", []string{"kind"}, nil)
	unanswered   = prometheus.NewDesc("rutter_agent_unanswered_total", "Requests of VMs that got no answer from their node, by reason.", []string{"reason"}, nil)
	helperUp     = prometheus.NewDesc("rutter_agent_vm_helper_up", "1 while the helper that runs the VMs of manifests (rutter vms) answers; absent on an agent without one.", nil, nil)
	helperOpen   = prometheus.NewDesc("rutter_agent_vm_helper_connections", "Connections that the helper has open, as it last said.", nil, nil)
	helperWorks  = prometheus.NewDesc("rutter_agent_vm_helper_requests_in_flight", "Requests about VMs that the helper works on, as it last said.", nil, nil)
	helperDone   = prometheus.NewDesc("rutter_agent_vm_helper_requests_total", "Requests about VMs that the helper has done since it began, by result: done or failed.", []string{"result"}, nil)
	helperRefuse = prometheus.NewDesc("rutter_agent_vm_helper_refused_total", "Connections and requests that the helper refused since it began, by reason; reasons without any are absent.", []string{"reason"}, nil)
	diskFree     = prometheus.NewDesc("rutter_agent_disk_free_bytes", "Room that the disk of the agent's folder has for it.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, v := range c.values {
		out <- v.desc
	}
	for _, desc := range []*prometheus.Desc{buildInfo, clock, programmed, failing, objects, drift, security, securedPorts, unreadPorts, portDrops, portBytes, underlay, answers, unanswered, helperUp, helperOpen, helperWorks, helperDone, helperRefuse, diskFree} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := c.cfg.Agent()
	for _, v := range c.values {
		out <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(&s))
	}
	c.collectProgram(out, &s)
	for kind, n := range s.Objects {
		out <- prometheus.MustNewConstMetric(objects, prometheus.GaugeValue, float64(n), kind)
	}
	for object, n := range s.Kernel.HealedBy {
		out <- prometheus.MustNewConstMetric(drift, prometheus.CounterValue, float64(n), object)
	}
	if c.cfg.Answers != nil {
		for _, a := range c.cfg.Answers() {
			out <- prometheus.MustNewConstMetric(answers, prometheus.CounterValue, float64(a.Count), a.Kind)
		}
	}
	if c.cfg.Unanswered != nil {
		for _, u := range c.cfg.Unanswered() {
			out <- prometheus.MustNewConstMetric(unanswered, prometheus.CounterValue, float64(u.Count), u.Reason)
		}
	}
	if c.cfg.Helper != nil {
		c.cfg.Helper().collect(out)
	}
	if free, ok := c.disk.freeBytes(); ok {
		out <- prometheus.MustNewConstMetric(diskFree, prometheus.GaugeValue, free)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	c.collectPorts(out, c.cfg.Ports(ctx))
}

// collectProgram has what the agent's program and its kernel took.
func (c *Collector) collectProgram(out chan<- prometheus.Metric, s *agent.Status) {
	out <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, c.cfg.Version, runtime.Version(), strconv.Itoa(log.FeatureVersion))
	out <- prometheus.MustNewConstMetric(clock, prometheus.GaugeValue, float64(c.cfg.Now().UnixMicro())/1e6)
	buckets := make(map[float64]uint64, len(agent.DelayBounds))
	for i, bound := range agent.DelayBounds {
		buckets[bound.Seconds()] = s.Kernel.Delays.UpTo[i]
	}
	out <- prometheus.MustNewConstHistogram(programmed, s.Kernel.Delays.Count, s.Kernel.Delays.Sum.Seconds(), buckets)
	for object, n := range s.Kernel.FailingBy {
		out <- prometheus.MustNewConstMetric(failing, prometheus.GaugeValue, float64(n), object)
	}
}

// portKey is what the drops of one series are of. Two ports may have one: a link that is
// made again is another port, and the old one may still be there.
type portKey struct {
	mac    log.MAC
	vm     string
	reason filter.Reason
}

func (c *Collector) collectPorts(out chan<- prometheus.Metric, s ports.Status) {
	for _, mode := range []string{desired.SecurityEnforced, desired.SecurityOff, desired.SecurityUnsupported} {
		out <- prometheus.MustNewConstMetric(security, prometheus.GaugeValue, is(s.Mode.Mode == mode), mode)
	}
	out <- prometheus.MustNewConstMetric(securedPorts, prometheus.GaugeValue, float64(len(s.Ports)))
	out <- prometheus.MustNewConstMetric(unreadPorts, prometheus.GaugeValue, is(s.Failure != ""))
	sums := map[portKey]filter.Count{}
	for i := range s.Ports {
		p := &s.Ports[i]
		for reason, n := range p.Drops {
			key := portKey{p.NIC, strings.ToValidUTF8(p.NameOf(), "?"), reason}
			sum := sums[key]
			sums[key] = filter.Count{Packets: sum.Packets + n.Packets, Bytes: sum.Bytes + n.Bytes}
		}
	}
	for key, n := range sums {
		labels := []string{key.mac.String(), key.vm, string(key.reason)}
		out <- prometheus.MustNewConstMetric(portDrops, prometheus.CounterValue, float64(n.Packets), labels...)
		out <- prometheus.MustNewConstMetric(portBytes, prometheus.CounterValue, float64(n.Bytes), labels...)
	}
	for reason, n := range s.Underlay {
		out <- prometheus.MustNewConstMetric(underlay, prometheus.CounterValue, float64(n.Packets), string(reason))
	}
}
