package nodemetrics

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// programmed returns how many times were measured, and their sum.
func programmed(t *testing.T, tracker *Tracker) (count uint64, sum time.Duration) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(tracker.programmed)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	return h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second)).Round(time.Millisecond)
}

func at(seq log.Seq) *feed.Watermark { return &feed.Watermark{Applied: seq, Programmed: seq} }

// The time counts from when this server had applied the entry, and ends when the node says
// that it has it.
func TestProgrammed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		tracker.Restart(10)
		node := tracker.NewNode()
		node.Begin(10)
		node.Said(at(10))
		time.Sleep(time.Second)
		tracker.Applied(13)
		time.Sleep(30 * time.Millisecond) // until the watcher has read the entries
		node.Concerns(12, 13)
		if !node.Sample(12) {
			t.Fatal("the node is not asked")
		}
		time.Sleep(20 * time.Millisecond)
		node.Said(at(11))
		if n, _ := programmed(t, tracker); n != 0 || node.Progress().Lag != 50*time.Millisecond {
			t.Errorf("%d measured of a node that is not there yet, whose lag is %s", n, node.Progress().Lag)
		}
		time.Sleep(20 * time.Millisecond)
		for range 3 { // it says it again
			node.Said(at(13))
		}
		if n, sum := programmed(t, tracker); n != 1 || sum != 70*time.Millisecond || node.Progress().Lag != 0 {
			t.Errorf("%d times, %s in all, and lag %s; want one of 70 ms", n, sum, node.Progress().Lag)
		}
	})
}

// The lag is that of the oldest entry, and is right to an eighth after any number of them.
// What is remembered is bounded.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		tracker.Restart(0)
		node := tracker.NewNode()
		began := time.Now()
		for seq := log.Seq(1); seq <= 20_000; seq++ { // 100 s at 200 a second, of which the node does nothing
			tracker.Applied(seq)
			node.Concerns(seq, seq)
			time.Sleep(5 * time.Millisecond)
		}
		if lag := node.Progress().Lag; lag != time.Since(began) || len(node.marks) > maxMarks {
			t.Errorf("lag %s after %s, with %d marks", lag, time.Since(began), len(node.marks))
		}
		for _, seq := range []log.Seq{4_000, 10_000, 19_000} {
			node.Said(at(seq))
			want := time.Since(began) - time.Duration(seq)*5*time.Millisecond
			if lag := node.Progress().Lag; lag < want || lag > want+100*time.Second/(maxMarks/2) {
				t.Errorf("lag %s at seq %d, of %s", lag, seq, want)
			}
		}
		if node.Said(at(20_000)); node.Progress().Lag != 0 || node.marks != nil {
			t.Errorf("lag %s of a node that has all", node.Progress().Lag)
		}
		node.Concerns(20_000, 20_000) // the same entry in a second scope
		if lag := node.Progress().Lag; lag != 0 {
			t.Errorf("lag %s by an entry that it has", lag)
		}
	})
}

// A session that begins behind counts from its begin, and is not in the histogram.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		tracker.Restart(100)
		time.Sleep(time.Hour)
		node := tracker.NewNode()
		node.Begin(100)
		time.Sleep(3 * time.Second)
		if lag := node.Progress().Lag; lag != 3*time.Second {
			t.Errorf("lag %s", lag)
		}
		node.Said(&feed.Watermark{Applied: 100, Reached: 100})
		if n, _ := programmed(t, tracker); n != 0 || node.Progress().Lag != 0 {
			t.Errorf("%d measured, lag %s", n, node.Progress().Lag)
		}
	})
}

// At most SamplesPerSecond entries are measured, and a node that is stuck has maxSamples of
// them at most, however many entries and nodes there are.
func TestSamplesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		stuck := tracker.NewNode()
		asked, taken := 0, 0
		for seq := log.Seq(1); seq <= 10_000; seq++ { // 10 s of 1,000 changes a second
			tracker.Applied(seq)
			if stuck.Sample(seq) {
				taken++
			}
			node := tracker.NewNode()
			if node.Sample(seq) {
				asked++
			}
			node.Said(at(seq))
			time.Sleep(time.Millisecond)
		}
		if most := samplesAtOnce + 10*SamplesPerSecond; taken != maxSamples || asked+taken > most || asked < most/2 {
			t.Errorf("%d and %d samples", taken, asked)
		}
		if n, _ := programmed(t, tracker); n != uint64(asked) {
			t.Errorf("%d measured of %d", n, asked)
		}
	})
}

// A node whose kernel lacks something is not measured, unless only for VMs that are not to
// run: which entry it lacks is not known. It is not behind for that either.
func TestWaiting(t *testing.T) {
	tracker := New(nil)
	node := tracker.NewNode()
	list := []feed.Wait{
		{Kind: feed.WaitNIC, NIC: log.MAC{2}},
		{Kind: feed.WaitNIC, NIC: log.MAC{2}},
		{Kind: feed.WaitNIC, NIC: log.MAC{3}, Idle: true},
		{Kind: feed.WaitEntry, NIC: log.MAC{4}},
		{Kind: feed.WaitVNet, VNet: 1},
	}
	said := func(seq log.Seq, number uint32, waits ...feed.Wait) {
		node.Concerns(seq, seq)
		if !node.Sample(seq) {
			t.Fatal("not asked")
		}
		node.Said(&feed.Watermark{Applied: seq, Reached: seq, List: number, Listed: true, Waits: waits, Failing: 3})
	}
	said(1, 7, list...)
	if n, _ := programmed(t, tracker); n != 0 {
		t.Error("a node whose kernel lacks something was measured")
	}
	if p := node.Progress(); p.WaitingNICs != 1 || p.Waiting != 4 || p.Idle != 1 || p.Failing != 3 || p.Lag != 0 {
		t.Errorf("%+v", p)
	}
	said(2, 8, list[2])
	if n, _ := programmed(t, tracker); n != 1 {
		t.Error("a VM that is not to run keeps its node from being measured")
	}
	if p := node.Progress(); p.WaitingNICs != 0 || p.Waiting != 0 || p.Idle != 1 {
		t.Errorf("%+v", p)
	}
}

// Drift counts from the second report of a session on, for DriftFor, and a node that says
// any number does not break the sum.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		node := tracker.NewNode()
		for _, healed := range []uint64{5, 5, 7, 1, 1 << 63, 1<<63 + 1} {
			node.Said(&feed.Watermark{Healed: healed})
		}
		if sum := gather(t, tracker.drift)["rutter_cns_drift_total"]; sum != 2+maxDriftStep+1 {
			t.Errorf("a sum of %v", sum)
		}
		if p := node.Progress(); p.Drift != 2+maxDriftStep+1 || p.Healed != 1<<63+1 {
			t.Errorf("%+v", p)
		}
		time.Sleep(DriftFor)
		if p := node.Progress(); p.Drift != 0 {
			t.Errorf("%d after %s", p.Drift, DriftFor)
		}
	})
}

// gather returns the value of each series of a collector.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// Whatever nodes report, at most MaxNamed of them are named for each metric, the worst,
// with names that are safe; those that recover vanish.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		tracker.Restart(0)
		nodes := make(map[log.UUID]*Node)
		state := projections.NewState()
		hostname := strings.Repeat("x\xff\n\"", 100)
		for i := range 1000 {
			cn := log.UUID{1, 14: byte(i >> 8), 15: byte(i)}
			nodes[cn] = tracker.NewNode()
			tracker.Applied(log.Seq(i + 1))
			nodes[cn].Concerns(log.Seq(i+1), log.Seq(i+1))
			nodes[cn].Said(&feed.Watermark{Healed: 1, Failing: uint32(i)})
			nodes[cn].Said(&feed.Watermark{Healed: uint64(1 + i%2), Failing: uint32(i), List: 1, Waits: make([]feed.Wait, 1)})
			time.Sleep(10 * time.Millisecond)
		}
		c := &Collector{
			Tracker: tracker, Nodes: func() map[log.UUID]*Node { return nodes },
			View: func(fn func(*projections.State, log.Cursor)) { fn(state, log.Cursor{}) },
		}
		values := gather(t, c)
		if len(values) > 30+4*MaxNamed {
			t.Errorf("%d series", len(values))
		}
		for name, want := range map[string]float64{
			"rutter_cns_connected": 1000, "rutter_cns_behind": 500, "rutter_cns_lag_max_seconds": 10, "rutter_cns_failing": 999, "rutter_cns_drifting": 500,
			"rutter_cns_drift_total": 500, "rutter_cns_waiting": 1000, "rutter_nics_waiting": 0, "rutter_cns running": 0,
			"rutter_cn_lag_seconds 01000000-0000-0000-0000-000000000000 ":     10,
			"rutter_cn_failing_objects 01000000-0000-0000-0000-0000000003e7 ": 999,
			"rutter_cn_failing_objects 01000000-0000-0000-0000-0000000003de ": 990,
		} {
			if got, is := values[name]; !is || got != want {
				t.Errorf("%s: %v, %v; want %v", name, got, is, want)
			}
		}
		for _, node := range nodes {
			node.Said(&feed.Watermark{Applied: 1000, Programmed: 1000, Healed: 2})
		}
		time.Sleep(DriftFor)
		for name, value := range gather(t, c) {
			if strings.HasPrefix(name, "rutter_cn_") {
				t.Errorf("%s %v of a node that is well", name, value)
			}
		}
		if safe := label(hostname); len(safe) > 2*maxHostname || !utf8.ValidString(safe) || strings.Contains(safe, "\n") {
			t.Errorf("%q", safe)
		}
	})
}

// The cost of a scrape of 10,000 sessions, half of which are behind, and each of which
// refuses something, waits and drifts.
func BenchmarkCollect(b *testing.B) {
	tracker := New(nil)
	state := projections.NewState()
	nodes := make(map[log.UUID]*Node)
	for i := range 10_000 {
		node := tracker.NewNode()
		nodes[log.UUID{1, 14: byte(i >> 8), 15: byte(i)}] = node
		if i%2 == 0 {
			node.Begin(1)
		}
		for healed := range uint64(2) {
			node.Said(&feed.Watermark{Healed: healed, Failing: uint32(i), List: 1, Waits: []feed.Wait{{Kind: feed.WaitNIC, NIC: log.MAC{1, byte(i)}}}})
		}
	}
	time.Sleep(namedLag)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Collector{
		Tracker: tracker, Nodes: func() map[log.UUID]*Node { return nodes },
		View: func(fn func(*projections.State, log.Cursor)) { fn(state, log.Cursor{}) },
	})
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// What a change that concerns 10,000 nodes costs in memory while none of them answers.
func BenchmarkConcerns(b *testing.B) {
	tracker := New(nil)
	nodes := make([]*Node, 10_000)
	for i := range nodes {
		nodes[i] = tracker.NewNode()
	}
	b.ReportAllocs()
	seq := log.Seq(0)
	for b.Loop() {
		seq++
		tracker.Applied(seq)
		for _, node := range nodes {
			node.Concerns(seq, seq)
		}
	}
}
