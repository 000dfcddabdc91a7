package mutants

import "rutter/integration/simulate/history"

// nodeAgent are the mutants of what an agent holds, removes and reports.
var nodeAgent = []Mutant{
	{
		Name: "agent-half-scope-kept", File: "agent/replica.go",
		Old: `		if !held.Complete {
			r.dropScope(scope) // the connection ended within it
		}`,
		New:    "\t\t_, _ = scope, held",
		Breaks: "an agent keeps the objects of a scope whose end never came, over a reconnect",
		Rules:  []string{"F3"}, Past: Survivor,
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestHalfAScopeIsPurged"},
	},
	{
		Name: "agent-half-scope-told", File: "agent/replica.go",
		Old: `		if !held.Complete {
			r.dropScope(scope) // the connection ended within it
		}`,
		New: `		if !held.Complete {
			held.Complete = true
			r.scopes[scope] = held
		}`,
		Breaks: "an agent tells the server that it holds a scope whose end never came",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestHalfAScopeIsPurged"},
	},
	{
		Name: "agent-half-scope-loaded", File: "agent/replica.go",
		Old: `		if s.Complete {
			r.scopes[scope] = s
		} else {`,
		New:    "\t\tif r.scopes[scope] = s; false {",
		Breaks: "an agent takes half a scope from its cache as a whole one",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestHalfAScopeIsPurgedAtTheStart"},
	},
	{
		Name: "agent-end-of-another-scope", File: "agent/replica.go",
		Old:    "\tif coming == nil || coming.scope != m.Scope {",
		New:    "\tif coming == nil {",
		Breaks: "the end of one scope ends another one, and what that lacks is deleted",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestStreamThatCannotBeRight"},
	},
	{
		Name: "agent-resync-keeps-surplus", File: "agent/replica.go",
		Old: `	for _, key := range gone {
		r.drop(key)
	}
	r.notify()
	return nil
}

// ScopeDropped forgets a scope.`,
		New: `	_ = gone
	r.notify()
	return nil
}

// ScopeDropped forgets a scope.`,
		Breaks: "a scope that comes again deletes nothing that it lacks",
		Rules:  []string{"F3"},
		Own:    []string{"agent.TestDigestFindsCorruptionInMemory"},
	},
	{
		Name: "agent-absence-deletes-newer", File: "agent/replica.go",
		Old:    "(all || rec.Seq <= m.AsOf && !r.scopes",
		New:    "(all || !r.scopes",
		Breaks: "a scope deletes an object that was made after the scope was read",
		Rules:  []string{"F2", "F3"}, Peer: "headscale#1383",
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestNewerThanTheScopeStays"},
	},
	{
		Name: "agent-scope-takes-shared-objects", File: "agent/replica.go",
		Old: `		if key := keyOf(rec); !r.holds(key) {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		r.drop(key)
	}
}

// Bookmark`,
		New: `		gone = append(gone, keyOf(rec))
	}
	for _, key := range gone {
		r.drop(key)
	}
}

// Bookmark`,
		Breaks: "a dropped scope takes objects with it that another held scope has",
		Rules:  []string{"F3"},
		Own:    []string{"agent.TestLinksOutliveRestartsAndResets"},
	},
	{
		Name: "agent-older-object-replaces", File: "agent/replica.go",
		Old: `	return known.Seq >= seq
}`,
		New: `	return false && known.Seq >= seq
}`,
		Breaks: "an object is replaced by an older one",
		Rules:  []string{"F2"}, Peer: "etcd#17247",
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestOwnNICNeedsNoPass"},
	},
	{
		Name: "agent-changed-key-missed", File: "agent/replica.go",
		Old: `	if r.reset != nil {
		if _, confirmed := r.reset.objects[key]; !confirmed {
			return false
		}
	}
	return known.Seq`,
		New:    "\treturn known.Seq",
		Breaks: "an object that another log changed counts as known at a resync",
		Rules:  []string{"F2"}, Peer: "flannel#1247",
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestReplicaFollowsAnyHistory", "agent.TestResetDropsWhatIsGone"},
	},
	{
		Name: "agent-suspect-not-replaced", File: "agent/replica.go",
		Old: "\tif known && !suspect && r.isOld",
		New: `	_ = suspect
	if known && r.isOld`,
		Breaks: "a scope that is sent again because it differs replaces nothing",
		Rules:  []string{"F2"},
		Own:    []string{"agent.TestDigestFindsCorruptionInMemory"},
	},
	{
		Name: "agent-reset-keeps-surplus", File: "agent/replica.go",
		Old:    "\t\t\tif key := keyOf(rec); !ended.has(key) {",
		New:    "\t\t\tif key := keyOf(rec); false && !ended.has(key) {",
		Breaks: "what a reset did not bring stays",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Floors, history.Timelines},
		Own:    []string{"agent.TestEmptyClusterIsHeld", "agent.TestUnjudgedIsNotKept"},
	},
	{
		Name: "agent-reset-deletes-at-begin", File: "agent/replica.go",
		Old: `	r.lastReset = reason
`,
		New: `	r.lastReset = reason
	for kind := range maxKind {
		var gone []objectKey
		for rec := range r.state.List(log.Kind(kind)) {
			gone = append(gone, keyOf(rec))
		}
		for _, key := range gone {
			r.drop(key)
		}
	}
`,
		Breaks: "a reset deletes everything before anything of it has come",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Themes: []history.Theme{history.Floors, history.Timelines},
		Own:    []string{"agent.TestResetKeepsWantedLinks"},
	},
	{
		Name: "agent-bookmark-within-scope", File: "agent/replica.go",
		Old: `	if r.incoming != nil {
		return fmt.Errorf("%w: a bookmark within scope %s", errStream, r.incoming.scope)
	}
`,
		New:    "",
		Breaks: "a bookmark within a scope counts",
		Rules:  []string{"F3"}, Peer: "etcd#15220",
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestStreamThatCannotBeRight"},
	},
	{
		Name: "agent-bookmark-before-change", File: "agent/replica.go",
		Old: `	if err := r.flush(); err != nil {
		return err
	}
	r.cursor.Seq, r.cursor.Chain`,
		New:    "\tr.cursor.Seq, r.cursor.Chain",
		Breaks: "a bookmark counts before the change that it covers is folded",
		Rules:  []string{"F5"}, Peer: "etcd#15220",
		Own: []string{"agent.TestReplicaFollowsAnyHistory"},
	},
	{
		Name: "agent-bookmark-without-interest", File: "agent/replica.go",
		Old:    "\tif r.knowsInterest() && r.verify(m) {",
		New:    "\tif r.verify(m) {",
		Breaks: "a bookmark counts although a scope of the node is still to come",
		Rules:  []string{"B1", "B3"}, Peer: "etcd#15220",
		Own: []string{"agent.TestABookmarkWithoutTheInterestDoesNotCount"},
	},
	{
		Name: "agent-wrong-digest-counts", File: "agent/replica.go",
		Old:    "\tif r.knowsInterest() && r.verify(m) {",
		New:    "\tif r.verify(m); r.knowsInterest() {",
		Breaks: "a bookmark counts although what is held differs from the log",
		Rules:  []string{"B1", "F2"},
		Own:    []string{"agent.TestDigestFindsCorruptionInMemory", "agent.TestDigestFindsCorruptionOnDisk"},
	},
	{
		Name: "agent-takes-another-log", File: "agent/replica.go",
		Old:    "\tif r.cursor.Cluster != r.cluster {",
		New:    "\tif false {",
		Breaks: "entries of another log are taken without a reset",
		Rules:  []string{"F4"}, Peer: "etcd#15271",
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"agent.TestStreamThatCannotBeRight"},
	},
	{
		Name: "agent-reset-keeps-programmed", File: "agent/replica.go",
		Old: `	r.applied, r.programmed, r.reached, r.checked = 0, 0, 0, 0
`,
		New: `	r.applied, r.checked = 0, 0
`,
		Breaks: "after a reset a seq of the former log counts as programmed",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"agent.TestEmptyClusterIsHeld"},
	},
	{
		Name: "agent-pass-of-before-reset", File: "agent/replica_wanted.go",
		Old:    "\tif at.epoch != r.epoch || at.seq <= r.programmed ||",
		New:    "\tif at.seq <= r.programmed ||",
		Breaks: "a pass over the view of before a reset makes a seq of the new log programmed",
		Rules:  []string{"B1"},
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"agent.TestWhatMovesProgrammed"},
	},
	{
		Name: "agent-entry-folded-twice", File: "agent/replica_fold.go",
		Old: `	if m.Seq <= r.folded {
		return nil // taken already
	}
`,
		New:    "",
		Breaks: "an entry that comes again is folded again",
		Rules:  []string{"F2"}, Peer: "etcd#17247",
		Own: []string{"agent.TestOldAndDoubleEntriesAreIgnored"},
	},
	{
		Name: "agent-older-event-replaces", File: "agent/replica_fold.go",
		Old: `	if known && r.isOld(key, before, seq) {
		return nil
	}
`,
		New:    "",
		Breaks: "an event replaces an object that is as of a later seq",
		Rules:  []string{"F2"}, Peer: "etcd#17247",
		Own: []string{"agent.TestEventOlderThanTheObject"},
	},
	{
		Name: "agent-object-without-scope", File: "agent/replica_fold.go",
		Old: `!unknown && !r.state.InAny(rec.Object, r.scopes.behind(seq)) {
		r.drop(key)`,
		New: `!unknown && !r.state.InAny(rec.Object, r.scopes.behind(seq)) {
		_ = key`,
		Breaks: "an object that has left each held scope stays",
		Rules:  []string{"F1"},
		Own:    []string{"agent.TestReplicaFollowsAnyHistory"},
	},
	{
		Name: "agent-underlay-of-leaver", File: "agent/replica_fold.go",
		Old: `	if known && movesCN(before.Object, rec.Object) {
		r.dropStrays(before.Object)
	}
`,
		New:    "",
		Breaks: "the underlay NICs of a node that has left the vnet stay",
		Rules:  []string{"F1"},
		Own:    []string{"agent.TestUnderlayOfALeaverGoes"},
	},
	{
		Name: "agent-half-change-kept", File: "agent/replica.go",
		Old: `	r.pending, r.incoming = nil, nil
	if r.reset != nil {
		return log.Cursor{}, nil
	}`,
		New: `	r.incoming = nil
	if r.reset != nil {
		return log.Cursor{}, nil
	}`,
		Breaks: "what came of a change before the connection ended is added to what comes again",
		Rules:  []string{"F2"},
		Own:    []string{"agent.TestChangeThatIsCutAgainAndAgain"},
	},
	{
		Name: "agent-cut-reset-goes-on", File: "agent/replica.go",
		Old: `	if r.reset != nil {
		return log.Cursor{}, nil
	}
	for scope`,
		New:    "\tfor scope",
		Breaks: "after a reset that was cut an agent goes on as if it had ended",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Floors, history.Timelines},
		Own:    []string{"agent.TestCutResetBeginsAnew"},
	},
	{
		Name: "agent-digest-below-as-of", File: "agent/replica_digest.go",
		Old:    "!held.Complete || held.AsOf > m.Seq {",
		New:    "!held.Complete {",
		Breaks: "a scope is compared with a digest of before it",
		Rules:  []string{"F2"},
		Own:    []string{"agent.TestDigestOfBeforeTheScope"},
	},
	{
		Name: "agent-wrong-view-programmed", File: "agent/replica_digest.go",
		Old: `	r.applied, r.programmed, r.reached = 0, 0, 0
	r.epoch++
`,
		New:    "",
		Breaks: "what the kernel matched while the view was wrong stays programmed",
		Rules:  []string{"B1"},
		Own:    []string{"agent.TestDigestFindsCorruptionInMemory"},
	},
	{
		Name: "agent-difference-not-asked", File: "agent/replica_digest.go",
		Old:    "\t\tr.requests = append(r.requests, feed.Again{At: at, Scope: d.Scope})",
		New:    "\t\t_ = at",
		Breaks: "a scope that differs from the log is not asked for again",
		Rules:  []string{"F2"},
		Own:    []string{"agent.TestDigestAsksSeldom"},
	},
	{
		Name: "agent-prunes-half-known", File: "agent/replica_wanted.go",
		Old:    "\tcomplete, done := r.isComplete(), r.view.phase == settled",
		New:    "\tcomplete, done := true, r.view.phase == settled",
		Breaks: "a pass removes what a view lacks that is not complete",
		Rules:  []string{"F3", "B3"},
		Own:    []string{"agent.TestMovedNICIsNotHalfKnown"},
	},
	{
		Name: "agent-prunes-within-scope", File: "agent/replica_wanted.go",
		Old:    "r.complete && r.reset == nil && r.incoming == nil && len",
		New:    "r.complete && r.reset == nil && len",
		Breaks: "a pass removes what the view lacks while a scope is coming",
		Rules:  []string{"F3"},
		Themes: []history.Theme{history.Scopes},
		Own:    []string{"agent.TestNothingIsRemovedWithinAScope"},
	},
	{
		Name: "agent-prunes-within-reset", File: "agent/replica_wanted.go",
		Old:    "\treturn r.complete && r.reset == nil && r.incoming == nil &&",
		New:    "\treturn r.complete && r.incoming == nil &&",
		Breaks: "a pass removes what the view lacks while a reset runs",
		Rules:  []string{"F3"}, Peer: "headscale#1383",
		Themes: []history.Theme{history.Floors, history.Timelines},
		Own:    []string{"agent.TestEmptyClusterIsHeld"},
	},
	{
		Name: "agent-prunes-without-interest", File: "agent/replica_wanted.go",
		Old:    `len(r.suspects) == 0 && r.missingInterest() == ""`,
		New:    "len(r.suspects) == 0",
		Breaks: "a pass removes a link whose new vnet is still to come",
		Rules:  []string{"F3", "B3"},
		Own:    []string{"agent.TestMovedNICIsNotHalfKnown"},
	},
	{
		Name: "agent-prunes-suspect", File: "agent/replica_wanted.go",
		Old:    " && len(r.suspects) == 0 && r.missing",
		New:    " && r.missing",
		Breaks: "a pass removes what a view lacks that differs from the log",
		Rules:  []string{"F3"},
		Own:    []string{"agent.TestDigestFindsCorruptionInMemory"},
	},
	{
		Name: "agent-prunes-unjudged", File: "agent/replica_wanted.go",
		Old:    "{ return r.isAllHeld() && r.view.phase != unjudged }",
		New:    "{ return r.isAllHeld() }",
		Breaks: "a view that was not compared with the kernel removes what it lacks",
		Rules:  []string{"R2"}, Peer: "headscale#1383",
		Own: []string{"agent.TestUnjudgedRemovesNothing"},
	},
	{
		Name: "agent-programmed-after-pass", File: "agent/reconcile.go",
		Old: `	r.matched(want.at, result)
	r.report()
	switch {`,
		New: `	r.replica.mu.Lock()
	want.at.seq = r.replica.applied
	r.replica.mu.Unlock()
	r.matched(want.at, result)
	r.report()
	switch {`,
		Breaks: "an entry that comes within a pass counts as programmed by it",
		Rules:  []string{"B1"},
		Own:    []string{"agent.TestEntryDuringAPass"},
	},
	{
		Name: "agent-programmed-without-kernel", File: "agent/reconcile.go",
		Old:    "!r.pruned || !result.Settled && !result.Matched {",
		New:    "!r.pruned {",
		Breaks: "what the kernel refused counts as reached",
		Rules:  []string{"B1", "L2"},
		Own:    []string{"agent.TestWhatMovesReached"},
	},
	{
		Name: "agent-programmed-unpruned", File: "agent/reconcile.go",
		Old:    "at.needsPass || !r.pruned || !result",
		New:    "at.needsPass || !result",
		Breaks: "a delta after an incomplete pass makes its seq programmed",
		Rules:  []string{"B3"},
		Own:    []string{"agent.TestDeltaAfterAnIncompletePass"},
	},
	{
		Name: "agent-programmed-needs-pass", File: "agent/reconcile.go",
		Old:    "\tif !at.complete || at.needsPass || !r.pruned",
		New:    "\tif !at.complete || !r.pruned",
		Breaks: "a seq counts as programmed of which a part is left to a pass",
		Rules:  []string{"B3"},
		Own:    []string{"agent.TestWhatMovesProgrammed"},
	},
	{
		Name: "agent-no-pass-when-complete", File: "agent/reconcile.go",
		Old:    "\tcase at.needsPass || result.Look || at.complete && !r.pruned:",
		New:    "\tcase at.needsPass || result.Look:",
		Breaks: "no pass is made when a view becomes complete",
		Rules:  []string{"B3"},
		Own:    []string{"agent.TestDeltaAfterAnIncompletePass"},
	},
	{
		Name: "agent-reached-old-list", File: "agent/replica_wanted.go",
		Old: `	if r.reached = at.seq; !same {
		r.waits = waits
		r.list = max(r.list+1, 1)
	}`,
		New:    "\tr.reached = at.seq",
		Breaks: "a node reports what it has reached with the list of before",
		Rules:  []string{"L2"},
		Own:    []string{"agent.TestReachedIsHonest"},
	},
	{
		Name: "agent-first-connection-goes-on", File: "agent/replica.go",
		Old:    "\t\tr.beginReset(r.reset.reason)",
		New:    "\t\tr.resets += 0",
		Breaks: "what a connection brought that ended within a reset counts as brought by the next",
		Rules:  []string{"F3"}, Past: "a first connection that broke, found by the simulator",
		Own: []string{"agent.TestCutFirstConnectionBeginsAnew"},
	},
	{
		Name: "agent-kernel-waits-for-disk", File: "agent/cache_disk.go",
		Old:    "\tcase <-time.After(diskPatience):",
		New:    "\tcase <-time.After(40 * diskPatience):",
		Breaks: "links wait for a disk that hangs",
		Rules:  []string{"B1"},
		Own:    []string{"agent.TestNodeOnADiskThatHangs"},
	},
}
