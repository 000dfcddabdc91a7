package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rutter/api/backend"
	"rutter/api/internal/nodemetrics"
	"rutter/api/internal/nodes"
	"rutter/log"
)

// Bounds of problems.
const (
	// BehindAfter is the lag after which a compute node counts as behind: an entry is in
	// the kernel within milliseconds, and a node that is cut off is found within 15 s.
	BehindAfter = 5 * time.Second
	// serverBehind is the time without a leader after which a server says so.
	serverBehind = 5 * time.Second
	// refusedSamples are the samples in which refused writes are a problem: 10 minutes.
	refusedSamples = int(10 * time.Minute / SampleEvery)
	// worstNodes are the nodes that a problem names.
	worstNodes = 5
)

// Problem is something that an operator should look at now.
type Problem struct {
	Kind string `json:"kind"` // clock, disk, certificate, lag, …: one word
	// Severity is bad if something does not work, warn if it soon will not or is unsafe.
	Severity string `json:"severity"`
	Text     string `json:"text"` // what is wrong
	Do       string `json:"do"`   // what to do about it
	// View is the console's page about it, Docs the page of the documentation.
	View string `json:"view"`
	Docs string `json:"docs"`
	// Nodes are the compute nodes that it is about, the worst ones if they are many.
	Nodes []ProblemNode `json:"nodes,omitempty"`
}

// ProblemNode is a compute node of a problem.
type ProblemNode struct {
	CN       string `json:"cn_uuid"`
	Hostname string `json:"hostname,omitempty"`
	Why      string `json:"why"`
}

// NodesForm counts the compute nodes.
type NodesForm struct {
	Known     int   `json:"known"`     // in the log
	Running   int   `json:"running"`   // by the log
	Unknown   int   `json:"unknown"`   // by the log, and without a session
	Connected int   `json:"connected"` // with a session
	Behind    int   `json:"behind"`
	Failing   int   `json:"failing"`
	Drifting  int   `json:"drifting"` // of this server's: whose kernels other programs changed within nodemetrics.DriftFor
	Waiting   int   `json:"waiting"`  // with NICs that wait for something on the node
	Held      int   `json:"held"`     // that hold back a change of the log's
	LagMS     int64 `json:"lag_ms"`   // of the worst
	// HereOnly: the leader could not be asked, and only the sessions with this server are
	// counted.
	HereOnly bool `json:"here_only,omitempty"`
}

// severities, in the order in which problems are listed.
const (
	bad  = "bad"
	warn = "warn"
)

// topic says where an operator reads on about a warning of the store or of the server.
type topic struct{ word, kind, severity, do, view, docs string }

// topics are looked through in this order for a word that a warning has.
var topics = []topic{
	{"room", "disk", bad, "Make room on that disk, or keep less of the log: rutter cluster retention set", "cluster", "deploy.md"},
	{"clock", "clock", bad, "Set that machine's clock right and keep it so with NTP; look: rutter cluster time", "cluster", "safety.md"},
	{"the log's time", "clock", bad, "Look: rutter cluster time", "cluster", "safety.md"},
	{"backup", "backup", bad, "Look at this server's messages, and at the folder of its backups", "cluster", "deploy.md"},
	{"ertificate", "certificate", warn, "Renew it before it ends: rutter cert", "cluster", "security.md"},
	{"authorit", "certificate", warn, "Look: rutter cert rotate", "cluster", "security.md"},
	{"TLS", "plaintext", warn, "Give the server certificates (--tls-dir), or keep that port from other machines", "cluster", "security.md"},
	{"MTU", "underlay", warn, "Raise the MTU of the underlay, or lower that of the network", "vnets", "deploy.md"},
	{"underlay", "underlay", warn, "Look at the underlay's NICs of these nodes", "vnets", "deploy.md"},
}

// problemOf is a warning's text as a problem.
func problemOf(text string) Problem {
	for _, t := range topics {
		if strings.Contains(text, t.word) {
			return Problem{Kind: t.kind, Severity: t.severity, Text: text, Do: t.do, View: t.view, Docs: t.docs}
		}
	}
	return Problem{Kind: "warning", Severity: warn, Text: text, Do: "Look at this server's messages, and at GET /readyz?verbose", View: "cluster", Docs: "deploy.md"}
}

// ofServer are the problems of this server and of the cluster.
func ofServer(st *backend.Status, age time.Duration, notReady, notServing error, warnings []string) (all []Problem) {
	add := func(kind, do, docs, format string, args ...any) {
		all = append(all, Problem{Kind: kind, Severity: bad, Text: fmt.Sprintf(format, args...), Do: do, View: "cluster", Docs: docs})
	}
	switch {
	case notServing != nil:
		add("diverged", "Rebuild its state from another server: rutter cluster rebuild "+st.ID, "safety.md", "This server differs from the others and serves nothing: %v", notServing)
	case notReady != nil:
		add("not_ready", "Wait if it has just started; else look at its messages, and at the other servers: rutter cluster status", "deploy.md", "This server is not ready: %v", notReady)
	}
	if st.Leader == "" {
		add("no_leader", "Bring a majority of the servers back: nothing is written until they agree on a leader", "deploy.md", "No leader is known")
	} else if age > serverBehind {
		add("server_behind", "Look whether this server reaches the leader: what it shows is old", "deploy.md", "This server last heard from the leader %v ago", age.Round(time.Second))
	}
	for _, text := range slices.Concat(st.Alarms, warnings) {
		all = append(all, problemOf(text))
	}
	return all
}

// maxCodes bounds the codes that a problem names.
const maxCodes = 4

// ofCodes are refused changes by code, as the end of a sentence.
func ofCodes(codes []CodeForm) string {
	if len(codes) == 0 {
		return ""
	}
	var words []string
	for _, c := range codes[:min(len(codes), maxCodes)] {
		words = append(words, fmt.Sprintf("%d %s", c.N, c.Code))
	}
	if len(codes) > maxCodes {
		words = append(words, "others")
	}
	return "; of those sent to this server " + strings.Join(words, ", ")
}

// drifts has how much drift each compute node of a session has reported, and when that
// rose last. The count begins anew with each agent.
type drifts map[log.UUID]drift

type drift struct {
	incarnation, healed uint64
	rose                uint64    // since it began to drift
	at                  time.Time // when it rose last; zero: it did not
}

// see takes the present sessions. What a node reported before it was seen first is of the
// time before.
func (d drifts) see(sessions []nodes.Session, now time.Time) {
	here := make(map[log.UUID]bool, len(sessions))
	for i := range sessions {
		s := &sessions[i]
		here[s.CN] = true
		was, known := d[s.CN]
		if now.Sub(was.at) >= nodemetrics.DriftFor {
			was.rose, was.at = 0, time.Time{}
		}
		if known && was.incarnation == s.Incarnation && s.Healed > was.healed {
			was.rose, was.at = was.rose+s.Healed-was.healed, now
		}
		was.incarnation, was.healed = s.Incarnation, s.Healed
		d[s.CN] = was
	}
	maps.DeleteFunc(d, func(cn log.UUID, _ drift) bool { return !here[cn] })
}

// ofNodes counts sessions, and lists what is wrong with them.
func ofNodes(sessions []nodes.Session, f *NodesForm, drifts drifts) []Problem {
	groups := []*nodeProblem{
		{Problem: Problem{Kind: "lag", Severity: bad, Do: "Look whether the node is reached and its agent runs: rutter cn sessions", View: "cns", Docs: "deploy.md"}, what: "behind by over 5 s", count: &f.Behind},
		{Problem: Problem{Kind: "failing", Severity: bad, Do: "Look at the agent's messages on the node: a step of the kernel fails", View: "cns", Docs: "deploy.md"}, what: "with failing steps", count: &f.Failing},
		{Problem: Problem{Kind: "drift", Severity: warn, Do: "Find the program that changes links on the node: the agent put them right", View: "cns", Docs: "safety.md"}, what: fmt.Sprintf("whose kernels other programs changed in the last %.0f minutes", nodemetrics.DriftFor.Minutes()), count: &f.Drifting},
		{Problem: Problem{Kind: "differs", Severity: warn, Do: "The servers send them what differs again: if it stays, look at the agent's messages on the node", View: "cns", Docs: "safety.md"}, what: "with other content than the servers", count: new(int)},
		{Problem: Problem{Kind: "waiting_nics", Severity: warn, Do: "Look whether the VM runs and its namespace is there: rutter cn status NODE", View: "cns", Docs: "vms.md"}, what: "with NICs that wait", count: &f.Waiting},
		{Problem: Problem{Kind: "held", Severity: bad, Do: "Read what the node would take away, then: rutter cn accept NODE", View: "cns", Docs: "safety.md"}, what: "that hold back a change", count: &f.Held},
		{Problem: Problem{Kind: "trouble", Severity: bad, Do: "Do what the node says", View: "cns", Docs: "deploy.md"}, what: "in trouble", count: new(int)},
	}
	for i := range sessions {
		s := &sessions[i]
		if s.Gone {
			continue
		}
		f.Connected++
		f.LagMS = max(f.LagMS, s.BehindMS)
		lag := time.Duration(s.BehindMS) * time.Millisecond
		for j, one := range []struct {
			is     bool
			weight int64
			why    string
		}{
			{lag > BehindAfter, s.BehindMS, fmt.Sprintf("%d entries, %v", s.Lag, lag.Round(time.Second))},
			{s.Failing > 0, int64(s.Failing), fmt.Sprintf("%d steps fail", s.Failing)},
			{drifts[s.CN].rose > 0, int64(drifts[s.CN].rose), fmt.Sprintf("%d differences put right", drifts[s.CN].rose)},
			{s.Mismatches > 0, int64(s.Mismatches), fmt.Sprintf("%d scopes differed", s.Mismatches)},
			{s.Waiting > 0, int64(s.Waiting), fmt.Sprintf("%d objects wait", s.Waiting)},
			{s.Hold != nil, 1, "it holds back what it would take away"},
			{s.Trouble != "", 1, s.Trouble},
		} {
			if one.is {
				groups[j].add(s, one.weight, one.why)
			}
		}
	}
	var all []Problem
	for _, g := range groups {
		if *g.count > 0 {
			all = append(all, g.problem())
		}
	}
	return all
}

// nodeProblem gathers the nodes of a problem.
type nodeProblem struct {
	Problem
	what  string
	count *int
	worst []weighed
}

type weighed struct {
	weight int64
	node   ProblemNode
}

func (g *nodeProblem) add(s *nodes.Session, weight int64, why string) {
	*g.count++
	g.worst = append(g.worst, weighed{weight, ProblemNode{s.CN.String(), s.Hostname, why}})
	if len(g.worst) > worstNodes {
		g.sort()
		g.worst = g.worst[:worstNodes]
	}
}

func (g *nodeProblem) sort() {
	slices.SortStableFunc(g.worst, func(a, b weighed) int { return cmp.Compare(b.weight, a.weight) })
}

func (g *nodeProblem) problem() Problem {
	g.sort()
	g.Text = fmt.Sprintf("%s %s", count(*g.count, "compute node"), g.what)
	for _, w := range g.worst {
		g.Nodes = append(g.Nodes, w.node)
	}
	return g.Problem
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sortProblems lists what does not work before what soon will not.
func sortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
}
