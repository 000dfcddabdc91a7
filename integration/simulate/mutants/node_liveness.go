package mutants

import "rutter/integration/simulate/history"

// nodeLiveness are the mutants of barriers and of who counts as running.
var nodeLiveness = []Mutant{
	{
		Name: "barrier-answer-of-before", File: "api/liveness/wait.go",
		Old:    "\t\tif v.asked <= asked[v] {",
		New:    "\t\tif v.asked < asked[v] {",
		Breaks: "a barrier takes an answer of before it began for one about newer sessions",
		Rules:  []string{"B3"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/liveness.TestBarrierAsksForNewerSessions"},
	},
	{
		Name: "barrier-asks-no-newer", File: "api/liveness/wait.go",
		Old: `	settled := r.settled(asked)
`,
		New: `	settled := ""
`,
		Breaks: "a barrier does not wait for newer sessions",
		Rules:  []string{"B3"}, Past: Survivor,
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/liveness.TestBarrierAsksForNewerSessions"},
	},
	{
		Name: "barrier-answer-on-its-way", File: "api/liveness/wait.go",
		Old: `		v.needed = v.begun
		asked[v] = v.begun`,
		New: `		v.needed = v.begun
		asked[v] = v.asked`,
		Breaks: "a barrier counts an answer that was on its way when it began",
		Rules:  []string{"B3"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/liveness.TestBarrierAsksForNewerSessions"},
	},
	{
		Name: "barrier-of-paused-leader", File: "api/liveness/wait.go",
		Old:    "\t\tif term, leads := r.cfg.Peers.Leading(); !leads || term != r.term {",
		New:    "\t\tif false {",
		Breaks: "a leader that was confirmed and then paused decides a barrier",
		Rules:  []string{"B3", "R1"}, Peer: "etcd#20418",
		Themes: []history.Theme{history.Stale, history.Elections},
		Own:    []string{"api/liveness.TestBarrierOfAPausedLeader"},
	},
	{
		Name: "barrier-unconfirmed", File: "api/liveness/wait.go",
		Old: `	if _, err := r.cfg.Store.Consistent(ctx); err != nil {
		return v, fmt.Errorf("%w: the leader could not confirm itself: %w", ErrNoLeader, err)
	}
`,
		New:    "",
		Breaks: "a leader that the others do not confirm decides a barrier",
		Rules:  []string{"B2", "B3"}, Peer: "etcd#20418",
		Themes: []history.Theme{history.Stale, history.Elections},
		Own:    []string{"api/liveness.TestBarrierOfADeposedLeader"},
	},
	{
		Name: "barrier-before-its-seq", File: "api/liveness/wait.go",
		Old:    "\tif err := r.cfg.Store.WaitSeq(ctx, q.Seq); err != nil {",
		New:    "\tif err := r.cfg.Store.WaitSeq(ctx, 0); err != nil {",
		Breaks: "a barrier decides before the leader has applied its seq",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestBarrier"},
	},
	{
		Name: "barrier-unknown-is-done", File: "api/liveness/wait.go",
		Old: `	case session.Log.IsZero():
		return "it has not said yet how far it is"
`,
		New: `	case session.Log.IsZero():
		return ""
`,
		Breaks: "a node that has not said how far it is counts as done",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "barrier-other-log-is-done", File: "api/liveness/wait.go",
		Old: `	case session.Log != cluster:
		return "it follows another log"
`,
		New:    "",
		Breaks: "a node that follows another log counts as done",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "barrier-hold-is-done", File: "api/liveness/wait.go",
		Old:    "\tcase session.Held:",
		New:    "\tcase false:",
		Breaks: "a node that holds a view back counts as done",
		Rules:  []string{"R2"},
		Own:    []string{"api/liveness.TestBarrierOfANodeThatHolds"},
	},
	{
		Name: "barrier-ended-session", File: "api/liveness/wait.go",
		Old: `	case session.Gone:
		return "its session has ended"
`,
		New:    "",
		Breaks: "a session that has ended counts",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "barrier-lost-session", File: "api/liveness/wait.go",
		Old:    "\tcase !told || row.Compare(session) != 0:",
		New:    "\tcase !told && row.Compare(session) > 1:",
		Breaks: "a session counts that its server has lost",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestBarrierAfterALostSession"},
	},
	{
		Name: "barrier-silent-server", File: "api/liveness/wait.go",
		Old: `	case v.failure != "":
		return "its server`,
		New: `	case false:
		return "its server`,
		Breaks: "the sessions of a server that does not answer count",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "barrier-beyond-sent", File: "api/liveness/wait.go",
		Old:    "\tcase session.far() > session.Sent:",
		New:    "\tcase false:",
		Breaks: "a node that says more than it was sent counts",
		Rules:  []string{"B4"},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "barrier-one-object-left-out", File: "api/liveness/wait.go",
		Old: `len(waited) > 0 {
				l.Reason = l.name(waited)`,
		New: `len(waited) > 1 {
				l.Reason = l.name(waited)`,
		Breaks: "a barrier does not wait for the one object that a node lacks",
		Rules:  []string{"L2"},
		Own:    []string{"api/liveness.TestBarrierOfObjects"},
	},
	{
		Name: "liveness-older-report", File: "api/liveness/term.go",
		Old: `	} else if known.session.Compare(&row.Session) > 0 {
		return // of an older session
	}`,
		New:    "\t}",
		Breaks: "a late report of an older session overrides the newest",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/liveness.TestFailOverOfCNAPI", "api/liveness.TestBarrierAfterALostSession"},
	},
	{
		Name: "liveness-table-takes-older", File: "api/liveness/table.go",
		Old:    "old.Compare(&s) > 0 || old.Compare(&s) == 0 && old.Gone {",
		New:    "old.Compare(&s) == 0 && old.Gone {",
		Breaks: "a server takes an older session for the newest",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/liveness.TestTableKeepsTheNewest"},
	},
	{
		Name: "liveness-ended-session-back", File: "api/liveness/table.go",
		Old:    "old.Compare(&s) > 0 || old.Compare(&s) == 0 && old.Gone {",
		New:    "old.Compare(&s) > 0 {",
		Breaks: "a session counts again after its end",
		Rules:  []string{"B4"},
		Own:    []string{"api/liveness.TestPausedAgentWakesUp"},
	},
	{
		Name: "liveness-unknown-list", File: "api/liveness/term.go",
		Old:    "\t\t\t\trow.List, row.Reached = 0, 0",
		New:    "\t\t\t\t_ = known",
		Breaks: "what a node has reached counts without its list",
		Rules:  []string{"L2"},
		Own:    []string{"api/liveness.TestListThatIsNotKnown"},
	},
	{
		Name: "liveness-restarted-server", File: "api/liveness/term.go",
		Old: `	if a.full {
		clear(v.sessions)
	}
`,
		New:    "",
		Breaks: "the sessions of before a restart of their server count",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestLaggardsAreNamed"},
	},
	{
		Name: "liveness-lease-halved", File: "api/liveness/judge.go",
		Old:    "leased && now-last >= r.cfg.Lease {",
		New:    "leased && now-last >= r.cfg.Lease/2 {",
		Breaks: "a node is unknown before its lease is over",
		Rules:  []string{"B2"},
		Own:    []string{"api/liveness.TestRunningAndUnknown"},
	},
	{
		Name: "liveness-pause-ends-leases", File: "api/liveness/term.go",
		Old:    "\tr.steady += min(max(now.Sub(r.last), 0), 2*r.cfg.Every)",
		New:    "\tr.steady += max(now.Sub(r.last), 0)",
		Breaks: "a pause of the leader ends the leases of all nodes",
		Rules:  []string{"B2"}, Peer: "etcd#20418",
		Own: []string{"api/liveness.TestClockJumps"},
	},
	{
		Name: "liveness-clock-set-back", File: "api/liveness/term.go",
		Old:    "min(max(now.Sub(r.last), 0), 2*r.cfg.Every)",
		New:    "min(now.Sub(r.last), 2*r.cfg.Every)",
		Breaks: "a clock that is set back extends leases",
		Rules:  []string{"B2", "T1"},
		Own:    []string{"api/liveness.TestClockJumps"},
	},
	{
		Name: "liveness-no-settling", File: "api/liveness/judge.go",
		Old:    "\t\t\tif recorded[cn] != running && (allComplete || leased) && now-s.since >= r.cfg.Settle {",
		New:    "\t\t\tif recorded[cn] != running {",
		Breaks: "a node that comes and goes makes an event each time",
		Rules:  []string{"W1"},
		Own:    []string{"api/liveness.TestBarrier"},
	},
	{
		Name: "liveness-paused-leader-writes", File: "api/liveness/judge.go",
		Old: `	if term, leads := r.cfg.Peers.Leading(); !leads || term != r.term {
		return // only the leader writes
	}
`,
		New:    "",
		Breaks: "a leader of before writes which nodes are lost",
		Rules:  []string{"R1"}, Peer: "etcd#20418",
		Themes: []history.Theme{history.Stale, history.Elections},
		Own:    []string{"api/liveness.TestPausedLeaderWritesNoStatus"},
	},
	{
		Name: "liveness-expunged-runs", File: "api/liveness/judge.go",
		Old: `		if recorded[cn] == expunged {
			continue
		}
`,
		New:    "",
		Breaks: "a node that an operator has given up runs again",
		Rules:  []string{"I1"},
		Own:    []string{"api/liveness.TestWhereAndExpunged"},
	},
}
