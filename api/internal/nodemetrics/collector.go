package nodemetrics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
	"rutter/projections"
)

// Bounds of what is shown.
const (
	// MaxNamed bounds the CNs that one metric names: the worst.
	MaxNamed = 10
	// Behind is the lag from which a CN counts as behind.
	Behind = 5 * time.Second
	// namedLag is the lag from which a CN is named: a CN that is busy is a little behind
	// all the time, and each name that was ever shown costs memory in Prometheus.
	namedLag = time.Second
	// maxHostname bounds the bytes of a name, which a CN reports of itself.
	maxHostname = 64
)

// expunged is the status of a server that will not come back.
const expunged = "expunged"

// Statuses are the values of the label status of rutter_cns.
var Statuses = []string{"running", "unknown", expunged}

// Collector is a prometheus.Collector of the CNs in session with this server, and of those
// of the log.
type Collector struct {
	Tracker *Tracker
	// Nodes returns the present sessions. It is called once for each scrape.
	Nodes func() map[log.UUID]*Node
	// View calls fn with the state of the log.
	View func(fn func(state *projections.State, head log.Cursor))
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// named are the labels of a CN that is named.
var named = []string{"cn", "hostname"}

var (
	ofStatus   = gauge("rutter_cns", "Compute nodes of the log by status: running, unknown (neither a session nor heartbeats, so its agent or its network is down) or expunged.", "status")
	connected  = gauge("rutter_cns_connected", "Compute nodes in session with this server.")
	behind     = gauge("rutter_cns_behind", fmt.Sprintf("Compute nodes in session with this server whose lag is over %.0f s (rutter_cn_lag_seconds).", Behind.Seconds()))
	lagMost    = gauge("rutter_cns_lag_max_seconds", "The highest lag of a compute node in session with this server (rutter_cn_lag_seconds).")
	lag        = gauge("rutter_cn_lag_seconds", fmt.Sprintf("How long the oldest entry of the log that concerns a compute node is not yet in its kernel, counted from the begin of its session at the earliest: the %d highest of this server, from %.0f s on. Objects that the node lists as waiting do not count.", MaxNamed, namedLag.Seconds()), named...)
	failing    = gauge("rutter_cns_failing", "Compute nodes in session with this server whose kernel refuses something that the log wants.")
	failingAll = gauge("rutter_cns_failing_objects", "Objects that their kernels refuse, or that foreign links block.")
	failingOf  = gauge("rutter_cn_failing_objects", fmt.Sprintf("Objects that the kernel of a compute node refuses, or that foreign links block: the %d highest of this server.", MaxNamed), named...)
	drifting   = gauge("rutter_cns_drifting", fmt.Sprintf("Compute nodes in session with this server whose kernels other programs changed in the last %.0f minutes.", DriftFor.Minutes()))
	driftOf    = gauge("rutter_cn_drift_total", fmt.Sprintf("Differences that other programs made in the kernel of a compute node since its agent began, found and put right: the %d of this server that drifted most in the last %.0f minutes.", MaxNamed, DriftFor.Minutes()), named...)
	nicsAll    = gauge("rutter_nics_waiting", "NICs whose links the kernels of compute nodes in session with this server lack, without those of VMs that are not to run.")
	nicsOf     = gauge("rutter_cn_waiting_nics", fmt.Sprintf("NICs whose links the kernel of a compute node lacks, without those of VMs that are not to run: the %d highest of this server.", MaxNamed), named...)
	waiting    = gauge("rutter_cns_waiting", "Compute nodes in session with this server whose kernel lacks something of the log, other than of VMs that are not to run.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		ofStatus, connected, behind, lagMost, lag, failing, failingAll, failingOf, drifting, driftOf, nicsAll, nicsOf, waiting,
		c.Tracker.programmed.Desc(), c.Tracker.drift.Desc(),
	} {
		to <- desc
	}
}

// worst has the CNs with the highest of one number, at most MaxNamed, the highest first.
type worst []offender

type offender struct {
	cn     log.UUID
	by     float64 // the order
	value  float64
	metric *prometheus.Desc
	kind   prometheus.ValueType
}

// add takes a CN if it is among the worst. Of equal ones the lower id is kept, so that the
// series do not change with each scrape.
func (w *worst) add(o offender) {
	if n := len(*w); o.by <= 0 || n == MaxNamed && o.by < (*w)[n-1].by {
		return
	}
	at, _ := slices.BinarySearchFunc(*w, o, func(a, b offender) int {
		return cmp.Or(cmp.Compare(b.by, a.by), a.cn.Compare(b.cn))
	})
	if at == MaxNamed {
		return
	}
	*w = slices.Insert(*w, at, o)
	*w = (*w)[:min(len(*w), MaxNamed)]
}

// sums are the aggregates of one scrape, and the worst CNs.
type sums struct {
	behind, failing, failingObjects, drifting, nics, waiting int
	lagMost                                                  time.Duration
	lags, failings, drifts, waits                            worst
}

func (s *sums) add(cn log.UUID, p Progress) {
	s.lagMost = max(s.lagMost, p.Lag)
	if p.Lag > Behind {
		s.behind++
	}
	if p.Lag >= namedLag {
		s.lags.add(offender{cn, p.Lag.Seconds(), p.Lag.Seconds(), lag, prometheus.GaugeValue})
	}
	if p.Failing > 0 {
		s.failing++
	}
	s.failingObjects += int(p.Failing)
	s.failings.add(offender{cn, float64(p.Failing), float64(p.Failing), failingOf, prometheus.GaugeValue})
	if p.Drift > 0 {
		s.drifting++
	}
	s.drifts.add(offender{cn, float64(p.Drift), float64(p.Healed), driftOf, prometheus.CounterValue})
	s.nics += p.WaitingNICs
	s.waits.add(offender{cn, float64(p.WaitingNICs), float64(p.WaitingNICs), nicsOf, prometheus.GaugeValue})
	if p.Waiting > 0 {
		s.waiting++
	}
}

// CountBehind returns how many CNs have a lag over Behind.
func CountBehind(nodes map[log.UUID]*Node) (n int) {
	for _, node := range nodes {
		if node.Progress().Lag > Behind {
			n++
		}
	}
	return n
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	nodes := c.Nodes()
	var s sums
	now := c.Tracker.now()
	for cn, node := range nodes {
		s.add(cn, node.progress(now))
	}
	for _, one := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{connected, float64(len(nodes))},
		{behind, float64(s.behind)},
		{lagMost, s.lagMost.Seconds()},
		{failing, float64(s.failing)},
		{failingAll, float64(s.failingObjects)},
		{drifting, float64(s.drifting)},
		{nicsAll, float64(s.nics)},
		{waiting, float64(s.waiting)},
	} {
		to <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, one.value)
	}
	offenders := slices.Concat(s.lags, s.failings, s.drifts, s.waits)
	counts, hostnames := c.read(offenders)
	for i, status := range Statuses {
		to <- prometheus.MustNewConstMetric(ofStatus, prometheus.GaugeValue, float64(counts[i]), status)
	}
	for _, o := range offenders {
		to <- prometheus.MustNewConstMetric(o.metric, o.kind, o.value, o.cn.String(), hostnames[o.cn])
	}
	to <- c.Tracker.programmed
	to <- c.Tracker.drift
}

// read counts the CNs of the log by status, as Statuses has them, and returns the names of
// some.
func (c *Collector) read(offenders []offender) (counts []int, hostnames map[log.UUID]string) {
	counts, hostnames = make([]int, len(Statuses)), make(map[log.UUID]string, len(offenders))
	c.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			if at := slices.Index(Statuses, rec.Object.(*log.Server).Status); at >= 0 {
				counts[at]++
			}
		}
		for _, o := range offenders {
			if rec, ok := state.Get(log.KindServer, o.cn.String()); ok {
				hostnames[o.cn] = label(rec.Object.(*log.Server).Hostname)
			}
		}
	})
	return counts, hostnames
}

// label returns a name that a CN chose in a form that is safe as a label: at most
// maxHostname bytes of UTF-8 that can be printed.
func label(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), maxHostname)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
}
