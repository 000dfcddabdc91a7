package mutants

import "rutter/integration/simulate/history"

// nodeFeed are the mutants of what nodes are sent, and of barriers and leases.
var nodeFeed = []Mutant{
	{
		Name: "feed-filter-changed-while-away", File: "api/feedserver/visibility.go",
		Old: `				if u.held.has(scope) {
					continue
				}
				a := visibleScope`,
		New: `				if u.held.has(scope) || scope.Type == log.ScopeVNet && u.hello.Session > 1 {
					continue
				}
				a := visibleScope`,
		Breaks: "a vnet that a node joined while it was away is not sent",
		Rules:  []string{"F5"}, Peer: "ovs ae25f8c8f",
		Own: []string{"api/feedserver.TestFeedStartOrder", "api/feedserver.TestFeedStartAtHead"},
	},
	{
		Name: "feed-no-look-after-catch-up", File: "api/feedserver/stream.go",
		Old: `	if u.lookDue && u.at.Seq >= u.pinned { // the cursor was at the head
		if err := u.conclude(nil); err != nil {
			return err
		}
	}`,
		New: `	if u.at.Seq >= u.pinned {
		u.lookDue = false
	}`,
		Breaks: "the interest is not compared when a node has caught up",
		Rules:  []string{"F5"}, Peer: "ovs ae25f8c8f",
		Themes: []history.Theme{history.Away, history.Scopes},
		Own:    []string{"api/feedserver.TestFeedStartAtHead"},
	},
	{
		Name: "feed-unwanted-kept-at-start", File: "api/feedserver/start.go",
		Old: `	if err := u.dropUnwanted(interest, u.pinned); err != nil {
		return err
	}`,
		New:    "",
		Breaks: "scopes outside the interest are fed until the node has caught up",
		Rules:  []string{"F5"},
		Themes: []history.Theme{history.Away, history.Scopes},
		Own:    []string{"api/feedserver.TestFeedStartOrder"},
	},
	{
		Name: "feed-return-not-doubted", File: "api/feedserver/start.go",
		Old: `	interest = slices.DeleteFunc(interest, u.doubtful)
`,
		New:    "",
		Breaks: "a node gets what happened on a vnet while it was not there",
		Rules:  []string{"F5", "I3"},
		Themes: []history.Theme{history.Away, history.Scopes},
		Own:    []string{"api/feedserver.TestFeedLeftAndBackWhileAway"},
	},
	{
		Name: "feed-return-missed", File: "api/feedserver/stream.go",
		Old:    "\t\t\tif mine && slices.ContainsFunc(",
		New:    "\t\t\tif false && mine && slices.ContainsFunc(",
		Breaks: "a node that left a vnet and came back gets the entries between",
		Rules:  []string{"F5"},
		Themes: []history.Theme{history.Away, history.Scopes},
		Own:    []string{"api/feedserver.TestFeedLeftAndBack"},
	},
	{
		Name: "feed-bookmark-before-scope", File: "api/feedserver/stream.go",
		Old: ` || u.at.Seq < u.silentUntil {
		return nil`,
		New: ` {
		return nil`,
		Breaks: "a bookmark is sent between a scope and the seq that it is as of",
		Rules:  []string{"F5"}, Peer: "etcd#15220",
		Own: []string{"api/feedserver.TestFeedFollowsAnyHistory"},
	},
	{
		Name: "feed-entries-below-as-of", File: "api/feedserver/index.go",
		Old: "; ok && e.Seq > asOf {",
		New: `; ok {
			_ = asOf`,
		Breaks: "entries that are part of a scope are sent again behind it",
		Rules:  []string{"F2"}, Peer: "etcd#17247",
		Own: []string{"api/feedserver.TestFeedScopeAsOfTheHead"},
	},
	{
		Name: "feed-underlay-not-sent", File: "api/feedserver/stream.go",
		Old: `		met = u.meet(e, met)
`,
		New:    "",
		Breaks: "the underlay NIC of a node that comes to a vnet is not sent",
		Rules:  []string{"F1"},
		Own:    []string{"api/feedserver.TestFeedUnderlayClosure"},
	},
	{
		Name: "feed-underlay-of-returner", File: "api/feedserver/stream.go",
		Old: `			if e.Head.Action != log.Create {
				delete(u.met, pair) // it may have left, and the subscriber may have dropped it there
			}
`,
		New:    "",
		Breaks: "the underlay NIC of a node that comes back to a vnet is not sent again",
		Rules:  []string{"F1"},
		Own:    []string{"api/feedserver.TestFeedUnderlayOfAReturner"},
	},
	{
		Name: "feed-underlay-of-mover", File: "api/feedserver/stream.go",
		Old: `		case "cn_uuid", "network_uuid", "belongs_to_uuid", "belongs_to_type", "underlay":
`,
		New: `		case "network_uuid", "belongs_to_uuid", "belongs_to_type", "underlay":
`,
		Breaks: "the underlay NIC of the node that a NIC moved to is not sent",
		Rules:  []string{"F1"},
		Own:    []string{"api/feedserver.TestFeedFollowsAnyHistory"},
	},
	{
		Name: "feed-change-split", File: "api/feedserver/stream.go",
		Old:    "\t\tif moved && !u.lookDue && entries[i-1].Head.More == 0 {",
		New:    "\t\tif moved && !u.lookDue && i > 0 {",
		Breaks: "a scope is sent in the middle of a change",
		Rules:  []string{"F5"},
		Own:    []string{"api/feedserver.TestFeedScopesFollowTheWholeChange"},
	},
	{
		Name: "feed-old-filter-after-move", File: "api/feedserver/stream.go",
		Old:    "\t\tif moved && !u.lookDue && entries[i-1].Head.More == 0 {",
		New:    "\t\tif i < 0 {",
		Breaks: "entries after a move are chosen by the interest of before",
		Rules:  []string{"F5"},
		Own:    []string{"api/feedserver.TestFeedLeftAndBack"},
	},
	{
		Name: "feed-old-snapshot-kept", File: "api/feedserver/index.go",
		Old: `			touched(scope)
`,
		New:    "",
		Breaks: "a snapshot of a scope is kept after an entry of the scope",
		Rules:  []string{"F2"},
		Own:    []string{"api/feedserver.TestScopesAreSharedUntilTheyChange"},
	},
	{
		Name: "feed-index-skips", File: "api/feedserver/index.go",
		Old:    "\t\tif x.holders[scope].touched > from.Seq {",
		New:    "\t\tif x.holders[scope].touched > from.Seq+1 {",
		Breaks: "an entry right behind a position is skipped",
		Rules:  []string{"F5"}, Peer: "etcd#17529",
		Own: []string{"api/feedserver.TestFeedLiveInterest"},
	},
	{
		Name: "feed-other-log-no-reset", File: "api/feedserver/start.go",
		Old: `	case errors.Is(err, log.ErrOtherLog):
		return feed.ResetOtherLog, true
`,
		New:    "",
		Breaks: "a cursor of another log is an error and no reset",
		Rules:  []string{"F6"}, Peer: "etcd#20221",
		Own: []string{"api/feedserver.TestFeedRefusesCursors"},
	},
	{
		Name: "feed-digests-of-head", File: "api/feedserver/stream.go",
		Old:    "\t\tif u.lookDue || head.Seq != u.at.Seq || head.Cluster != u.at.Cluster {",
		New:    "\t\tif u.lookDue {",
		Breaks: "a bookmark has digests of a later seq",
		Rules:  []string{"F2"},
		Own:    []string{"api/feedserver.TestDigestsAreOfThePosition"},
	},
	{
		Name: "feed-watermark-ahead", File: "api/feedserver/watermark.go",
		Old: `	case w.Applied > t.most:
`,
		New: `	case false:
`,
		Breaks: "a watermark beyond what was sent is taken",
		Rules:  []string{"B4"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/feedserver.TestWhatACNCanKnow"},
	},
	{
		Name: "feed-watermark-back", File: "api/feedserver/watermark.go",
		Old: `	case w.Applied < t.applied:
`,
		New: `	case false:
`,
		Breaks: "a watermark that goes back is taken",
		Rules:  []string{"B4"},
		Own:    []string{"api/feedserver.TestWhatACNCanKnow"},
	},
	{
		Name: "feed-reached-ahead", File: "api/feedserver/watermark.go",
		Old:    "\tif w.Far() > w.Applied {",
		New:    "\tif w.Programmed > w.Applied {",
		Breaks: "a kernel counts that has reached more than the node knows",
		Rules:  []string{"B4", "L2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/feedserver.TestWhatACNCanKnow"},
	},
	{
		Name: "feed-watermark-of-another-chain", File: "api/feedserver/watermark.go",
		Old: `	case known && !fits:
`,
		New: `	case known && !fits && t.most == 0:
`,
		Breaks: "a watermark with the chain hash of another log is taken",
		Rules:  []string{"B4"}, Peer: "etcd#15271",
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"api/feedserver.TestWhatACNCanKnow"},
	},
	{
		Name: "feed-watermark-of-before-reset", File: "api/feedserver/watermark.go",
		Old:    "\tcase w.Applied < t.first, w.Applied <= t.stale && !fits:",
		New:    "\tcase false:",
		Breaks: "a watermark of before a reset counts as one of after it",
		Rules:  []string{"B4"},
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"api/feedserver.TestWhatACNCanKnow"},
	},
	{
		Name: "feed-watermark-unchecked", File: "api/feedserver/session.go",
		Old:    "\tif !a.verifier.begun {",
		New:    "\tif false {",
		Breaks: "a watermark counts before the hello was checked",
		Rules:  []string{"B4"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/feedserver.TestLyingWatermark"},
	},
	{
		Name: "feed-list-of-another-number", File: "api/feedserver/watermark.go",
		Old:    "\tcase before != nil && before.List == w.List:",
		New:    "\tcase before != nil:",
		Breaks: "a list counts under the number of a later one",
		Rules:  []string{"L2"},
		Own:    []string{"api/feedserver.TestListIsThatOfItsNumber"},
	},
	{
		Name: "feed-older-session", File: "api/feedserver/session.go",
		Old: `		if !s.newer(old) {
			return false
		}
`,
		New:    "",
		Breaks: "an older connection of a node replaces a newer one",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/feedserver.TestNewestSessionCounts"},
	},
	{
		Name: "feed-end-of-older-session", File: "api/feedserver/session.go",
		Old:    "\tif g.newest[s.cn] == s {",
		New:    "\tif true {",
		Breaks: "the end of an older connection removes the newest session",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Sessions},
		Own:    []string{"api/feedserver.TestNewestSessionCounts"},
	},
	{
		Name: "feed-of-another-node", File: "api/feedserver/accept.go",
		Old:    "(answer == matrix.Allow || who.UUID == hello.CN)",
		New:    "(answer == matrix.Allow || answer == matrix.Own)",
		Breaks: "a node may follow the feed of another",
		Rules:  []string{"I3"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/feedserver.TestWhoMayFollow"},
	},
	{
		Name: "feed-frames-unchecked", File: "api/feedserver/filter.go",
		Old:    "\treturn a == matrix.Allow || a == matrix.Own && own",
		New:    "\treturn a == matrix.Allow || a == matrix.Own",
		Breaks: "a frame of what a node does not hold passes the last check",
		Rules:  []string{"I3"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/feedserver.TestFrameOfOthersIsWithheld"},
	},
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
