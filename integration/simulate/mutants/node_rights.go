package mutants

import "rutter/integration/simulate/history"

// nodeRights are the mutants of rights, limits and other surfaces.
var nodeRights = []Mutant{
	{
		Name: "rights-foreign-writes-guarded", File: "projections/rules/rights.go",
		Old:    "\t\tif !d.rules(op.Kind).Guarded || triton(d)",
		New:    "\t\tif true || triton(d)",
		Breaks: "a program without a certificate writes what is guarded",
		Rules:  []string{"K2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestGrants"},
	},
	{
		Name: "rights-node-writes-anothers", File: "projections/rules/rights.go",
		Old: `	d.notOneOf(op, op.ID)
	return false
}

// owns reports`,
		New: `	return true
}

// owns reports`,
		Breaks: "a node writes the objects of others",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-takes", File: "projections/rules/rights.go",
		Old:    "\tif !d.owns(by.CN, after, rules) || !rules.special.mayBeTaken(d, by.CN, before, after) {",
		New:    "\tif !d.owns(by.CN, after, rules) {",
		Breaks: "a node makes what is another's its own",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-writes-any-field", File: "projections/rules/rights.go",
		Old: `		if !slices.Contains(allowed, name) {
			foreign`,
		New: `		if false {
			foreign`,
		Breaks: "a node writes fields that are not its to write",
		Rules:  []string{"I1", "E2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestNodeDoesNotWidenWhatItsVMsAre"},
	},
	{
		Name: "rights-node-changes-owner", File: "projections/rules/rights.go",
		Old:    "\t\t\tallowed = slices.DeleteFunc(allowed, func(name string) bool { return name == rules.TenantField })",
		New:    "\t\t\tallowed = slices.Clone(allowed)",
		Breaks: "a node changes whose a VM is",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestANodeDoesNotChangeAnOwner"},
	},
	{
		Name: "rights-limit-off-by-one", File: "projections/rules/rights.go",
		Old:    "func(x projections.Index) bool { return d.Count(x, l.most) >= l.most }",
		New:    "func(x projections.Index) bool { return d.Count(x, l.most) > l.most }",
		Breaks: "a node may have one object more than its limit",
		Rules:  []string{"W1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestObjectsOfACN"},
	},
	{
		Name: "rights-refusal-tells", File: "projections/rules/rights.go",
		Old: `		r, taken := d.Find(after)
		if taken && !d.owns(cn, r.Object, rules) || !taken`,
		New: `		r, taken := d.Find(after)
		_ = r
		if !taken`,
		Breaks: "a node learns from a refusal what others have",
		Rules:  []string{"I3"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestACNLearnsNothingFromARefusal"},
	},
	{
		Name: "rights-node-takes-vm-of-task", File: "projections/rules/rights.go",
		Old:    "\treturn elsewhere || newest.ServerUUID != cn, newest",
		New:    "\treturn elsewhere, newest",
		Breaks: "a node makes a VM that a task makes elsewhere",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-makes-nic-of-anothers-vm", File: "projections/rules/rights.go",
		Old: `		if vm := vmOfNIC(d, n); vm == nil || vm.ServerUUID != cn {
			return false
		}`,
		New: `		if vm := vmOfNIC(d, n); vm == nil {
			return false
		}`,
		Breaks: "a node makes a NIC for a VM of another node",
		Rules:  []string{"I2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestACNLearnsNothingFromARefusal"},
	},
	{
		Name: "rights-node-takes-primary", File: "projections/rules/rights.go",
		Old:    "\t\tif other := o.(*log.NIC); other.Primary && other.MAC != n.MAC && projections.CNOf(other) != cn {",
		New:    "\t\tif other := o.(*log.NIC); other.Primary && other.MAC != n.MAC && false {",
		Breaks: "a node takes the primary mark from a NIC of another node",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-any-network-is-open", File: "projections/rules/rights.go",
		Old:    "\tif net == nil || !stays && !mayProvision(d, n, net) {",
		New:    "\tif net == nil {",
		Breaks: "a node makes NICs on networks that are closed to it",
		Rules:  []string{"I2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestACNMakesNoNICOnANetworkThatItIsNotOn"},
	},
	{
		Name: "rights-any-address-is-free", File: "projections/rules/rights.go",
		Old:    "\tif ip.IsValid() && !isFree(d, net, n, ip) {",
		New:    "\tif false {",
		Breaks: "a node takes addresses that are not handed out",
		Rules:  []string{"I2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-kept-address-is-free", File: "projections/rules/rights.go",
		Old:    "\tif o := ipObject(d, net.UUID, ip); o != nil && (o.BelongsToUUID",
		New:    "\tif o := ipObject(d, net.UUID, ip); false && (o.BelongsToUUID",
		Breaks: "a node takes an address that is kept for another",
		Rules:  []string{"I2"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-nics-stay-behind", File: "projections/rules/rights.go",
		Old:    `		if n := o.(*log.NIC); n.BelongsToType == "zone" && n.CNUUID == before.ServerUUID {`,
		New:    "\t\tif n := o.(*log.NIC); false && n.CNUUID == before.ServerUUID {",
		Breaks: "a VM moves and leaves its NICs behind",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestAVMMovesWithItsNICs"},
	},
	{
		Name: "rights-claim-outlives-move", File: "projections/rules/rights.go",
		Old: `			o.Placed = false
`,
		New: `			_ = o.Placed
`,
		Breaks: "a VMM gives its node a claim to a VM that an operator has moved away",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-node-speaks-for-other-side", File: "projections/rules/rights.go",
		Old: `		return before.IsZero() || sledOf(d, before) == cn
	}`,
		New: `		return true
	}`,
		Breaks: "a node speaks for the other side of a migration",
		Rules:  []string{"I1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestPlacementIsAnOperatorsAct"},
	},
	{
		Name: "rights-revocation-shortened", File: "projections/rules/revocation.go",
		Old:    "\tif before.Until == 0 && r.Until != 0 || r.Until != 0 && r.Until < before.Until {",
		New:    "\tif false {",
		Breaks: "a revocation is shortened",
		Rules:  []string{"K1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestRevocations"},
	},
	{
		Name: "rights-revocation-removed-early", File: "projections/rules/revocation.go",
		Old:    "\t\tuntil += log.RenewalGrace // so",
		New:    "\t\tuntil += 0 // so",
		Breaks: "a revocation is removed while its certificate may still be renewed",
		Rules:  []string{"K1", "K3"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestRevocations"},
	},
	{
		Name: "rights-second-revocation-keeps-good", File: "projections/rules/revocation.go",
		Old: `	r.ByOrder, r.Good = true, nil
	if r.IssuedBefore`,
		New: `	r.ByOrder, r.Good = true, before.Good
	if r.IssuedBefore`,
		Breaks: "a second revocation of an identity leaves good what was good after the first",
		Rules:  []string{"K1"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"projections/rules.TestRevocationIsNotUndone"},
	},
	{
		Name: "guard-one-takes-all-requests", File: "api/auth/guard/requests.go",
		Old:    "h.taken >= s.fairLocked(h) {",
		New:    "h.taken >= s.limits.Requests {",
		Breaks: "one identity takes all requests of a server",
		Rules:  []string{"W1"},
		Own:    []string{"api/auth/guard.TestSharesOfRequests"},
	},
	{
		Name: "guard-rate-not-counted", File: "api/auth/guard/requests.go",
		Old: `		if h.Left < 1 {
			return nil, LimitRate
		}
		h.Left--`,
		New: `		if h.Left < 1 {
			return nil, LimitRate
		}`,
		Breaks: "an identity has no rate",
		Rules:  []string{"W1"},
		Own:    []string{"api/auth/guard.TestSharesOfRequests"},
	},
	{
		Name: "guard-ended-requests-counted", File: "api/auth/guard/requests.go",
		Old: `	s.taken--
	h.used`,
		New:    "\th.used",
		Breaks: "requests that have ended still count",
		Rules:  []string{"W1"},
		Own:    []string{"api/auth/guard.TestSharesForgetWhoIsGone"},
	},
	{
		Name: "guard-budget-of-each-reader", File: "api/auth/guard/budgets.go",
		Old: `		for _, owner := range who.Owners {
			a.keys = append(a.keys, "tenant:"+owner.String())
		}
`,
		New:    "",
		Breaks: "each reader of a tenant has a budget of its own",
		Rules:  []string{"W1"},
		Own:    []string{"api/auth/guard.TestReadersOfATenantShareItsBudget"},
	},
	{
		Name: "guard-used-budget-admits", File: "api/auth/guard/budgets.go",
		Old: `		if err := m.Admit(a.keys...); err != nil {
			return err
		}`,
		New:    "\t\t_ = m.Admit(a.keys...)",
		Breaks: "an identity that has used up its budget is admitted",
		Rules:  []string{"W1"},
		Own:    []string{"api/auth/guard.TestReadersOfATenantShareItsBudget"},
	},
	{
		Name: "intake-checksum-unread", File: "log/intake/format.go",
		Old: `; got != want {
		return Frame{}, fmt`,
		New: `; got != want && n == 0 {
		return Frame{}, fmt`,
		Breaks: "a frame of the write stream with a flipped bit is taken",
		Rules:  []string{"A1", "A2"},
		Unseen: "no fault changes what is sent",
		Own:    []string{"log/intake.TestEveryFlippedBitIsFound"},
	},
	{
		Name: "intake-frame-over-bound", File: "log/intake/format.go",
		Old: `	if n > MaxPayload {
		return Frame`,
		New: `	if n > 4*MaxPayload {
		return Frame`,
		Breaks: "a frame of the write stream over its bound is read",
		Rules:  []string{"W1", "A1"},
		Unseen: "no fault changes what is sent",
		Own:    []string{"log/intake.TestBounds"},
	},
	{
		Name: "intake-cut-frame-is-end", File: "log/intake/format.go",
		Old: `			err = io.ErrUnexpectedEOF
`,
		New: `			err = io.EOF
`,
		Breaks: "a frame that was cut counts as the end of the stream",
		Rules:  []string{"A1"},
		Unseen: "no fault changes what is sent",
		Own:    []string{"log/intake.TestEveryTruncationIsFound"},
	},
	{
		Name: "client-log-by-seq", File: "api/client/log.go",
		Old:    `		query.Set("cursor", at.String())`,
		New:    `		query.Set("after", at.Seq.String())`,
		Breaks: "a reader of the log goes on in another log under the same seqs",
		Rules:  []string{"F6"}, Peer: "etcd#15271",
		Themes: []history.Theme{history.Timelines},
		Own:    []string{"api/client.TestLogOfAnotherTimeline"},
	},
	{
		Name: "client-log-ends-at-budget", File: "api/client/log.go",
		Old:    "\t\t\tcase err == nil && (q.Follow || at.more && at.lines > 0), errors",
		New:    "\t\t\tcase err == nil && q.Follow, errors",
		Breaks: "a read that ended at its budget looks like the whole log",
		Rules:  []string{"W1"},
		Own:    []string{"api/client.TestLogGoesOnAfterABudget"},
	},
	{
		Name: "client-unknown-is-refused", File: "api/client/ask.go",
		Old: `	if !undone(err) {
		d.uncertain = err
	}`,
		New:    "\t_ = undone(err)",
		Breaks: "a write whose fate is unknown is reported as not made",
		Rules:  []string{"P3", "A2"},
		Own:    []string{"api/client.TestLaterTryWithoutRoom"},
	},
	{
		Name: "changefeed-skips-one", File: "api/triton/changefeed/hub.go",
		Old: `			l.next = at.Seq + 1
			l.wake()`,
		New: `			l.next = at.Seq + 2
			l.wake()`,
		Breaks: "a listener that resumes misses the first item",
		Rules:  []string{"F6"}, Peer: "etcd#17529",
		Own: []string{"api/triton/changefeed.TestResume"},
	},
	{
		Name: "changefeed-item-twice", File: "api/triton/changefeed/hub.go",
		Old:    "\tfrom := int(place + 1 - first)",
		New:    "\tfrom := int(max(place, first) - first)",
		Breaks: "a listener gets an item twice",
		Rules:  []string{"F6"}, Peer: "etcd#17247",
		Own: []string{"api/triton/changefeed.TestEachItemOnce"},
	},
	{
		Name: "svp-other-log-keeps-places", File: "varp/shootdowns.go",
		Old: `	s.forgetPlaces()
}

// forgetPlaces`,
		New: `}

// forgetPlaces`,
		Breaks: "what a client acknowledged of one log counts in another",
		Rules:  []string{"F6", "F7"},
		Own:    []string{"varp.TestShootdownsOtherLog"},
	},
	{
		Name: "svp-rebuilt-server-unseen", File: "varp/shootdowns.go",
		Old: `	if s.chainKnown && s.index.seq == head.Seq && s.chain != head.Chain {
		s.restart(head, oldest)
	}
`,
		New:    "",
		Breaks: "a server that was rebuilt goes on with the index of before",
		Rules:  []string{"F6"},
		Own:    []string{"varp.TestShootdownsOfARebuiltServer"},
	},
	{
		Name: "matrix-tenant-sees-all", File: "api/auth/matrix/visibility.go",
		Old: `		return ownedBy(o, id.Owners)
	}
	return false
}

// SeesEvent`,
		New: `		return true
	}
	return false
}

// SeesEvent`,
		Breaks: "a tenant sees the objects of others",
		Rules:  []string{"I3"},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-tenant-misses-own-events", File: "api/auth/matrix/visibility.go",
		Old: `	if ownedBy(e.Object, id.Owners) {
		return true
	}
`,
		New:    "",
		Breaks: "a tenant does not see the events of what it has",
		Rules:  []string{"F1"},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-tenant-misses-what-left", File: "api/auth/matrix/visibility.go",
		Old:    "\treturn err == nil && ownedBy(before, id.Owners)",
		New:    "\treturn false && err == nil && ownedBy(before, id.Owners)",
		Breaks: "a tenant does not hear that it lost an object",
		Rules:  []string{"F1"},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-internal-metadata-shown", File: "api/auth/matrix/visibility.go",
		Old:    "\tif vm, is := o.(*log.VM); is && a == Own && id.Role == Reader {",
		New:    "\tif vm, is := o.(*log.VM); false && is && a == Own && id.Role == Reader {",
		Breaks: "a tenant sees the internal metadata of its VMs",
		Rules:  []string{"I3"},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-internal-metadata-in-events", File: "api/auth/matrix/visibility.go",
		Old: `	if a == Own && id.Role == Reader {
		return vmobject.PublicEvent(e)
	}`,
		New: `	if false {
		return vmobject.PublicEvent(e)
	}`,
		Breaks: "events show a tenant the internal metadata of its VMs",
		Rules:  []string{"I3"},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-node-sees-all", File: "api/auth/matrix/visibility.go",
		Old:    "\t\treturn state.InAny(o, func(scope log.Scope) bool { return state.Interested(id.UUID, []log.Scope{scope}) })",
		New:    "\t\treturn state != nil",
		Breaks: "a node sees the objects of other nodes",
		Rules:  []string{"I3"},
		Themes: []history.Theme{history.Lies},
		Own:    []string{"api/auth/matrix.TestVisibility"},
	},
	{
		Name: "matrix-no-row-allows", File: "api/auth/matrix/matrix.go",
		Old: `		if id.Role == Local {
			return Allow, nil
		}
		return Deny, &Refusal`,
		New: `		if id.Role != None {
			return Allow, nil
		}
		return Deny, &Refusal`,
		Breaks: "what the matrix has no row for is allowed",
		Rules:  []string{"I3"},
		Own:    []string{"api/auth/matrix.TestNoRowAllowsNothing"},
	},
	{
		Name: "matrix-foreign-reader-writes", File: "api/auth/matrix/matrix.go",
		Old: `		if id.Write {
			return Allow
		}
		return Deny`,
		New:    "\t\treturn Allow",
		Breaks: "a program whose listener lets it read only writes",
		Rules:  []string{"I3"},
		Own:    []string{"api/auth/matrix.TestNoRowAllowsNothing"},
	},
	{
		Name: "write-stream-without-window", File: "api/internal/writestream/stream.go",
		Old:    "u.flying == 0 || u.flying < Window &&",
		New:    "u.flying >= 0 || u.flying < Window &&",
		Breaks: "a client of the write stream fills the memory of a server",
		Rules:  []string{"W1"},
		Own:    []string{"api.TestWriteStreamWindow"},
	},
	{
		Name: "changefeed-joins-replaced-log", File: "api/triton/changefeed/hub.go",
		Old:    "\t\tif replaced || from.Cluster != at.Cluster || from.Seq > at.Seq {",
		New:    "\t\tif replaced && from.Seq > at.Seq || from.Cluster != at.Cluster {",
		Breaks: "a listener goes on in a log that was replaced while it registered",
		Rules:  []string{"F6"}, Peer: "etcd#15271",
		Own: []string{"api/triton/changefeed.TestCatchingUpOnARebuiltServer"},
	},
	{
		Name: "write-stream-forged-author", File: "api/internal/writestream/stream.go",
		Old:    "\tc.Actor, c.By, c.Content = u.actor, u.by, log.Content{} // a",
		New:    "\tc.Actor, c.Content = u.actor, log.Content{} // a",
		Breaks: "a client of the write stream says whose a change is",
		Rules:  []string{"A2", "I1"},
		Own:    []string{"api.TestWriteStreamStampsChanges"},
	},
	{
		Name: "write-stream-forged-content", File: "api/internal/writestream/stream.go",
		Old:    "\tc.Actor, c.By, c.Content = u.actor, u.by, log.Content{} // a",
		New:    "\tc.Actor, c.By = u.actor, u.by // a",
		Breaks: "a client of the write stream says what a change id is bound to",
		Rules:  []string{"A2"},
		Own:    []string{"api.TestWriteStreamStampsChanges"},
	},
}
