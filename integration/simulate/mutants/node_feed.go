package mutants

import "rutter/integration/simulate/history"

// nodeFeed are the mutants of what nodes are sent.
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
}
