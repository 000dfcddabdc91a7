package overview

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// answerTime is how long all clients get the same answer.
const answerTime = time.Second

// askTime bounds the question to the leader for the sessions of all servers.
const askTime = 3 * time.Second

// Store is the log and its state, as this package reads them; see backend.Store.
type Store interface {
	View(fn func(state *projections.State, head log.Cursor))
	Head() log.Cursor
	Floor() log.Seq
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	CheckCursor(c log.Cursor) error
	Status() backend.Status
	Serving() error
}

// Config configures an Overview. All fields are required, unless they say otherwise.
type Config struct {
	Store Store
	// Everywhere returns the newest session of each compute node with any server, Here
	// those with this server.
	Everywhere func(ctx context.Context, head log.Seq) ([]nodes.Session, error)
	Here       func(head log.Seq, server string) []nodes.Session
	// NotReady returns why this server should get no requests, or nil.
	NotReady func() error
	// Warnings returns what an operator must act on.
	Warnings func() []string
	// Age returns the time since this server last heard from the leader; nil: it is always
	// up to date.
	Age func() time.Duration
	// Metrics returns the server's own metrics. It is called when a sample is taken.
	Metrics func() prometheus.Gatherer
}

// Form is the answer to GET /overview.
type Form struct {
	Server   string      `json:"server"` // that answers
	Leader   string      `json:"leader,omitempty"`
	Time     log.Time    `json:"time"` // of this answer, by this server's clock
	Head     log.Seq     `json:"head"`
	Written  log.Time    `json:"written,omitzero"` // time of the last entry
	Problems []Problem   `json:"problems"`         // what does not work first
	Nodes    NodesForm   `json:"nodes"`
	Changes  ChangesForm `json:"changes"`
	History  HistoryForm `json:"history"`
}

// Overview answers GET /overview. See the package comment.
type Overview struct {
	cfg Config

	mu      sync.Mutex // protects what follows; a holder may ask the leader
	counter counter
	ring    ring
	meter   meter
	drifts  drifts
	writes  float64 // entries since the last sample
	sampled bool
	last    *Form
	made    time.Time
}

// New returns an Overview. It starts nothing.
func New(cfg Config) *Overview {
	if cfg.Age == nil {
		cfg.Age = func() time.Duration { return 0 }
	}
	return &Overview{cfg: cfg, counter: counter{store: cfg.Store}, meter: meter{gatherer: cfg.Metrics}, drifts: make(drifts)}
}

// Routes are the paths of this package.
func (o *Overview) Routes() []rest.Route {
	return []rest.Route{{Method: "GET", Pattern: "/overview", Serve: o.get}}
}

// Run takes a sample at once and then every SampleEvery, until ctx ends. Between them it
// counts what came, while the store still has that in memory: the entries of a whole
// SampleEvery at once would hold up the writes of a server with few processors.
func (o *Overview) Run(ctx context.Context) {
	ticks := time.NewTicker(countEvery)
	defer ticks.Stop()
	for n := 0; ; n++ {
		if n%int(SampleEvery/countEvery) == 0 {
			o.sample(ctx)
		} else {
			o.count()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// countEvery is the time between two counts of what came. It divides SampleEvery.
const countEvery = time.Second

// count counts what came. The next answer tells of an error.
func (o *Overview) count() {
	o.mu.Lock()
	defer o.mu.Unlock()
	came, _ := o.counter.read(time.Now(), countPause)
	o.writes += float64(came)
}

// countPause is the rest after each part of what is counted beside requests.
const countPause = time.Millisecond

// sample adds a moment to the history.
func (o *Overview) sample(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.makeLocked(ctx)
	s := o.meter.take()
	if o.sampled {
		writes := o.writes
		s.writes = &writes
	}
	if f.Nodes.Connected > 0 {
		behind := float64(f.Nodes.Behind)
		s.behind = &behind
	}
	o.writes, o.sampled = 0, true
	o.ring.add(s)
}

// get answers GET /overview.
func (o *Overview) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	f := o.form(r.Context())
	rest.SetSeq(w, f.Head)
	rest.WriteJSON(w, r, http.StatusOK, f)
	return nil
}

// form returns the answer that all clients share. It must not be changed.
func (o *Overview) form(ctx context.Context) *Form {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil || time.Since(o.made) >= answerTime {
		// Others wait for the answer, too: it does not end with the one that asked first.
		o.makeLocked(context.WithoutCancel(ctx))
	}
	return o.last
}

// makeLocked makes a new answer.
func (o *Overview) makeLocked(ctx context.Context) *Form {
	now := time.Now()
	st := o.cfg.Store.Status()
	f := &Form{Server: st.ID, Leader: st.Leader, Time: log.TimeOf(now), Head: o.cfg.Store.Head().Seq}
	came, err := o.counter.read(now, 0)
	o.writes += float64(came)
	f.Problems = ofServer(&st, o.cfg.Age(), o.cfg.NotReady(), o.cfg.Store.Serving(), o.cfg.Warnings())
	if err != nil {
		f.Problems = append(f.Problems, Problem{Kind: "log", Severity: bad, Text: "The log of the last hour could not be read: " + err.Error(), Do: "Look at this server's messages", View: "cluster", Docs: "safety.md"})
	}
	o.addNodes(ctx, f)
	if refused := o.ring.refusedSince(refusedSamples); refused > 0 {
		f.Problems = append(f.Problems, Problem{
			Kind: "refused", Severity: warn, Text: count(int(refused), "write") + " refused in the last 10 minutes" + ofCodes(o.ring.codesSince(refusedSamples)),
			Do: "The programs that wrote them were told why; rutter_writes_refused_total counts them by code", View: "cluster", Docs: "api.md",
		})
	}
	sortProblems(f.Problems)
	if f.Problems == nil {
		f.Problems = []Problem{}
	}
	f.Changes, f.History = o.counter.form(now), o.ring.form()
	o.last, o.made = f, time.Now()
	return f
}

// addNodes adds what is known of compute nodes.
func (o *Overview) addNodes(ctx context.Context, f *Form) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	sessions, err := o.cfg.Everywhere(asking, f.Head)
	if err != nil {
		sessions, f.Nodes.HereOnly = o.cfg.Here(f.Head, f.Server), true
	} else {
		sessions = withOwn(sessions, o.cfg.Here(f.Head, f.Server))
	}
	connected := make(map[log.UUID]bool, len(sessions))
	for i := range sessions {
		connected[sessions[i].CN] = !sessions[i].Gone
	}
	unknown := o.countNodes(f, connected)
	o.drifts.see(sessions, f.Time.Std())
	f.Problems = append(f.Problems, ofNodes(sessions, &f.Nodes, o.drifts)...)
	if f.Nodes.Unknown > 0 {
		f.Problems = append(f.Problems, Problem{
			Kind: "unknown", Severity: bad, Text: count(f.Nodes.Unknown, "compute node") + " without a running agent",
			Do: "Look whether the node is up, and start its agent: systemctl start rutter-agent", View: "cns", Docs: "deploy.md", Nodes: unknown,
		})
	}
}

// withOwn returns the sessions that the leader knows with what only their own server knows:
// drift and trouble of those with this server.
func withOwn(all, own []nodes.Session) []nodes.Session {
	by := make(map[log.UUID]*nodes.Session, len(own))
	for i := range own {
		by[own[i].CN] = &own[i]
	}
	all = slices.Clone(all)
	for i := range all {
		if s := by[all[i].CN]; s != nil && s.Server == all[i].Server && !all[i].Gone {
			all[i].Healed, all[i].Drift, all[i].Trouble = s.Healed, s.Drift, s.Trouble
		}
	}
	return all
}

// countNodes counts the compute nodes of the log by their status, some at a time, so that
// no write waits for it.
func (o *Overview) countNodes(f *Form, connected map[log.UUID]bool) (unknown []ProblemNode) {
	var last log.Object
	for ended := false; !ended; {
		o.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			if f.Written == 0 {
				f.Written = state.Time()
			}
			seen := 0
			for rec := range state.Walk(projections.Walk{Kind: log.KindServer}, last) {
				if seen == backend.SliceRows {
					return
				}
				last = rec.Object
				seen++
				cn := rec.Object.(*log.Server)
				f.Nodes.Known++
				switch cn.Status {
				case "running":
					f.Nodes.Running++
				case "unknown":
					if connected[cn.UUID] {
						continue // the leader writes that it runs when it has been connected for some seconds
					}
					if f.Nodes.Unknown++; len(unknown) < worstNodes {
						unknown = append(unknown, ProblemNode{cn.UUID.String(), cn.Hostname, "the log says unknown"})
					}
				}
			}
			ended = true
		})
	}
	return unknown
}
