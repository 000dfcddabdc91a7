package overview

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/apitest"
	"rutter/api/internal/nodes"
	"rutter/log"
)

// store is a memory with a status.
type store struct {
	*apitest.Memory
	reads int
}

func (s *store) Status() backend.Status { return backend.Status{ID: "s1", Leader: "s1"} }

func (s *store) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	s.reads++
	return s.Memory.Entries(after, limit)
}

// world is an Overview over a memory.
type world struct {
	*Overview
	store    *store
	registry *prometheus.Registry
	sessions []nodes.Session
	here     []nodes.Session // nil: the first of sessions
	asked    int
	failed   error
}

func newWorld() *world {
	w := &world{store: &store{Memory: apitest.NewMemory()}, registry: prometheus.NewRegistry()}
	w.Overview = New(Config{
		Store: w.store,
		Everywhere: func(context.Context, log.Seq) ([]nodes.Session, error) {
			w.asked++
			return w.sessions, w.failed
		},
		Here: func(log.Seq, string) []nodes.Session {
			if w.here != nil {
				return w.here
			}
			return w.sessions[:min(1, len(w.sessions))]
		},
		NotReady: func() error { return nil }, Warnings: func() []string { return nil },
		Metrics: func() prometheus.Gatherer { return w.registry },
	})
	return w
}

// Each entry of the last hour is counted once, in the minute that it was written in, and
// forgotten an hour after it.
func TestChangesOfTheLastHour(t *testing.T) {
	w := newWorld()
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	w.store.SetClock(func() time.Time { return now })
	w.store.Tag(t, "long_ago")
	now = now.Add(2 * time.Hour)
	for i := range 5 {
		w.store.Tag(t, fmt.Sprintf("tag%d", i))
	}
	c := &w.counter
	if came, err := c.read(now, 0); err != nil || came != 0 {
		t.Fatalf("the first reading found %d new entries, %v", came, err)
	}
	if f := c.form(now); f.Entries != 5 || len(f.Kinds) != 1 || f.Kinds[0].Create != 5 || len(f.Actors) != 1 || f.Actors[0].Entries != 5 {
		t.Errorf("counted %+v, want the 5 of the last hour", f)
	}
	now = now.Add(30 * time.Minute)
	w.store.Tag(t, "later")
	for range 2 {
		if _, err := c.read(now, 0); err != nil {
			t.Fatal(err)
		}
	}
	if f := c.form(now); f.Entries != 6 {
		t.Errorf("counted %d entries, want 6", f.Entries)
	}
	now = now.Add(45 * time.Minute)
	if f := c.form(now); f.Entries != 1 {
		t.Errorf("counted %d entries, want the 1 that is younger than an hour", f.Entries)
	}
	// Another log is counted anew.
	w.store.Replace(t, apitest.UUID(9), 0, 3)
	if _, err := c.read(now, 0); err != nil {
		t.Fatal(err)
	}
	if c.at.Cluster != apitest.UUID(9) {
		t.Errorf("it counts on in the log of before: %v", c.at)
	}
}

// Of many actors the busiest are named, and the others are one.
func TestBusiestActors(t *testing.T) {
	actors := map[string]int{otherActors: 3}
	for i := range 20 {
		actors[fmt.Sprintf("operator:%02d", i)] = i + 1
	}
	got := busiest(actors)
	if len(got) != maxShown+1 || got[0] != (ActorForm{"operator:19", 20}) || got[maxShown] != (ActorForm{otherActors, 3 + 8*9/2}) {
		t.Errorf("got %+v", got)
	}
}

// The history has at most an hour, the oldest sample first, and the time to the kernel of
// each sample alone.
func TestHistory(t *testing.T) {
	w := newWorld()
	programmed := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricProgrammed, Buckets: []float64{.01, .1, 1}})
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: metricRefused})
	codes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricCodes}, []string{"code"})
	codes.WithLabelValues("InUse").Add(7) // before the first sample
	w.registry.MustRegister(programmed, refused, codes)
	programmed.Observe(0.5) // before the first sample: nothing is known of when
	w.sample(t.Context())
	for range 100 {
		programmed.Observe(0.005)
	}
	refused.Add(4)
	codes.WithLabelValues("InUse").Add(3)
	codes.WithLabelValues("LimitReached").Add(1)
	w.store.Tag(t, "one")
	w.sample(t.Context())
	w.sample(t.Context())
	f := w.ring.form()
	if len(f.Writes) != 3 || f.Writes[0] != nil || *f.Writes[1] != 1 || *f.Writes[2] != 0 {
		t.Errorf("writes %v", texts(f.Writes))
	}
	if f.KernelMS[0] != nil || f.KernelMS[1] == nil || math.Abs(*f.KernelMS[1]-9.9) > 0.01 || f.KernelMS[2] != nil {
		t.Errorf("time to the kernel %v, want 9.9 ms in the second sample alone", texts(f.KernelMS))
	}
	if *f.Refused[1] != 4 || *f.Refused[2] != 0 || f.Behind[2] != nil {
		t.Errorf("refused %v, behind %v", texts(f.Refused), texts(f.Behind))
	}
	if form := w.makeLocked(t.Context()); len(form.Problems) != 1 || form.Problems[0].Kind != "refused" || form.Problems[0].Text != "4 writes refused in the last 10 minutes; of those sent to this server 3 InUse, 1 LimitReached" {
		t.Errorf("problems %+v, want the 4 refused writes", form.Problems)
	}
	if got := fmt.Sprint(w.ring.form().RefusedCodes); got != "[{InUse 3} {LimitReached 1}]" {
		t.Errorf("refused by code: %s", got)
	}
	for range 2 * samples {
		w.sample(t.Context())
	}
	if f := w.ring.form(); len(f.Writes) != samples || w.ring.refusedSince(refusedSamples) != 0 {
		t.Errorf("%d samples are kept, want %d", len(f.Writes), samples)
	}
}

func texts(values []*float64) (all []string) {
	for _, v := range values {
		if v == nil {
			all = append(all, "null")
		} else {
			all = append(all, fmt.Sprint(*v))
		}
	}
	return all
}

// What is wrong with compute nodes is counted, and the worst are named.
func TestProblemsOfNodes(t *testing.T) {
	w := newWorld()
	for i := range 20 {
		w.sessions = append(w.sessions, nodes.Session{CN: apitest.UUID(i), Hostname: fmt.Sprintf("cn%d", i), BehindMS: int64(1000 * i), Lag: 3})
	}
	w.sessions[3].Failing, w.sessions[4].Waiting, w.sessions[5].Mismatches, w.sessions[6].Trouble = 2, 1, 7, "its disk is full"
	w.sessions[19].Gone = true
	f := w.makeLocked(t.Context())
	if f.Nodes.Connected != 19 || f.Nodes.Behind != 13 || f.Nodes.Failing != 1 || f.Nodes.Drifting != 0 || f.Nodes.Waiting != 1 || f.Nodes.LagMS != 18_000 {
		t.Errorf("counted %+v", f.Nodes)
	}
	kinds := make(map[string]Problem)
	for i, p := range f.Problems {
		kinds[p.Kind] = p
		if p.Do == "" || p.Docs == "" || p.View == "" {
			t.Errorf("%s does not say what to do: %+v", p.Kind, p)
		}
		if i > 0 && p.Severity < f.Problems[i-1].Severity {
			t.Errorf("%s, which is %s, comes after what is less bad", p.Kind, p.Severity)
		}
	}
	lag := kinds["lag"]
	if len(kinds) != 5 || len(lag.Nodes) != worstNodes || lag.Nodes[0].Hostname != "cn18" || lag.Nodes[4].Hostname != "cn14" || lag.Severity != bad {
		t.Errorf("problems %+v", f.Problems)
	}
	if kinds["trouble"].Nodes[0].Why != "its disk is full" {
		t.Errorf("trouble %+v", kinds["trouble"])
	}
	if kinds["differs"].Nodes[0].Hostname != "cn5" {
		t.Errorf("a node that differs: %+v", kinds["differs"])
	}
	w.failed = errors.New("no leader")
	if f := w.makeLocked(t.Context()); !f.Nodes.HereOnly || f.Nodes.Connected != 1 {
		t.Errorf("without the leader %+v, want this server's own sessions", f.Nodes)
	}
}

// Drift that nodes report is a problem for ten minutes. What an agent reported before it was
// seen first, and the count of a new agent, are none.
func TestDriftOfNodes(t *testing.T) {
	w := newWorld()
	w.sessions = []nodes.Session{{CN: apitest.UUID(1), Hostname: "cn1", Incarnation: 1, Healed: 100}, {CN: apitest.UUID(2), Incarnation: 1, Healed: 5}}
	now := time.Now()
	w.drifts.see(w.sessions, now)
	drifting := func() (n int, problems []Problem) {
		var f NodesForm
		problems = ofNodes(w.sessions, &f, w.drifts)
		return f.Drifting, problems
	}
	if n, all := drifting(); n != 0 || len(all) != 0 {
		t.Errorf("%d drift at first: %+v", n, all)
	}
	w.sessions[0].Healed = 103
	w.sessions[1].Incarnation, w.sessions[1].Healed = 2, 50
	now = now.Add(time.Minute)
	w.drifts.see(w.sessions, now)
	if n, all := drifting(); n != 1 || len(all) != 1 || all[0].Kind != "drift" || all[0].Nodes[0].Hostname != "cn1" || all[0].Nodes[0].Why != "3 differences put right" {
		t.Errorf("%d drift: %+v", n, all)
	}
	now = now.Add(11 * time.Minute)
	w.drifts.see(w.sessions, now)
	if n, _ := drifting(); n != 0 {
		t.Error("it drifts after eleven minutes without drift")
	}
	w.sessions = w.sessions[:1]
	if w.drifts.see(w.sessions, now); len(w.drifts) != 1 {
		t.Errorf("%d nodes are remembered, and one has a session", len(w.drifts))
	}
	w.Overview.makeLocked(t.Context())
	w.sessions[0].Healed++
	if f := w.Overview.makeLocked(t.Context()); f.Nodes.Drifting != 1 || len(f.Problems) != 1 {
		t.Errorf("GET /overview: %+v", f.Problems)
	}
}

// The leader knows neither drift nor trouble of a session: this server adds what it knows of
// its own.
func TestOwnSessions(t *testing.T) {
	w := newWorld()
	w.sessions = []nodes.Session{{CN: apitest.UUID(1), Server: "s1"}, {CN: apitest.UUID(2), Server: "s2"}, {CN: apitest.UUID(3), Server: "s1", Gone: true}}
	w.here = []nodes.Session{{CN: apitest.UUID(1), Server: "s1", Healed: 1}, {CN: apitest.UUID(2), Server: "s1", Trouble: "of before it went to s2"}}
	w.makeLocked(t.Context())
	w.here[0].Healed, w.here[0].Trouble = 3, "its disk is full"
	f := w.makeLocked(t.Context())
	var found []string
	for _, p := range f.Problems {
		found = append(found, fmt.Sprint(p.Kind, " ", len(p.Nodes), " ", p.Nodes[0].CN == apitest.UUID(1).String()))
	}
	if got := strings.Join(found, ", "); got != "trouble 1 true, drift 1 true" || w.sessions[0].Healed != 0 {
		t.Errorf("problems: %s", got)
	}
}

// Each command that a problem tells people to run is there.
func TestAdviceNamesCommands(t *testing.T) {
	known := map[string]bool{}
	for _, row := range matrix.Commands() {
		words := strings.Fields(strings.TrimPrefix(row.What, "command "))
		for i := range words {
			known[strings.Join(words[:i+1], " ")] = true
		}
	}
	commands := regexp.MustCompile("rutter ((?:[a-z]+ ?)+)( --?[a-z]+)?")
	found := 0
	for _, path := range []string{"problems.go", "overview.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			for _, m := range commands.FindAllStringSubmatch(line, -1) {
				found++
				if command := strings.TrimSpace(m[1]); !known[command] || m[2] != "" {
					t.Errorf("%s: %q is no command of the table, or has an option that nothing checks", path, m[0])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d commands found", found)
	}
}

// Warnings of the server say where to read on.
func TestProblemsOfTheServer(t *testing.T) {
	for text, kind := range map[string]string{
		"s1 has little room on disk: 5 bytes, and the low water is 9":                                 "disk",
		"the clock of s2 is 3s ahead of the servers' agreed clock: set it right":                      "clock",
		"the log's time, 2026-11-23T09:00:00Z, is 1h ahead of the servers' clocks: it goes on":        "clock",
		"the certificate of this server ends in 3 days":                                               "certificate",
		"no TLS at 127.0.0.1:80 (--napi): programs of 1 networks are believed by their address":       "plaintext",
		"server s2 trusts other authorities (clients): it a, this server b; look at its log, or wait": "certificate",
		"something new": "warning",
	} {
		if got := problemOf(text); got.Kind != kind || got.Text != text {
			t.Errorf("%q is %+v, want %s", text, got, kind)
		}
	}
	st := &backend.Status{ID: "s1", Alarms: []string{"s1 has no room on disk: 0 bytes free; it takes no entries until there is more"}}
	all := ofServer(st, 0, errors.New("it starts"), nil, nil)
	if len(all) != 3 || all[0].Kind != "not_ready" || all[1].Kind != "no_leader" || all[2].Kind != "disk" {
		t.Errorf("problems %+v", all)
	}
	st.Leader = "s2"
	if all := ofServer(st, time.Minute, nil, nil, nil); len(all) != 2 || all[0].Kind != "server_behind" {
		t.Errorf("problems %+v", all)
	}
}

// All clients share one answer for a second.
func TestAnswerIsShared(t *testing.T) {
	w := newWorld()
	for i := range 3000 {
		w.store.Tag(t, fmt.Sprintf("tag%d", i))
	}
	var all sync.WaitGroup
	begun := time.Now()
	for range 50 {
		all.Go(func() { w.form(context.Background()) })
	}
	all.Wait()
	if most := 1 + int(time.Since(begun)/answerTime); w.asked > most {
		t.Errorf("50 clients asked the leader %d times, want at most %d", w.asked, most)
	}
}

// Run samples until its context ends.
func TestRun(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	for {
		w.mu.Lock()
		n := w.ring.n
		w.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

// What counting the log costs while it is written fast.
func BenchmarkCount(b *testing.B) {
	m := &store{Memory: apitest.NewMemory()}
	for i := range 10_000 {
		m.Tag(b, fmt.Sprintf("tag%d", i))
	}
	for b.Loop() {
		c := counter{store: m}
		if _, err := c.read(time.Now(), 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/entry")
}
