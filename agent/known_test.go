package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// The tests of this file are each of one condition under which something that is known of the
// log is kept, replaced or removed. Mutants that left the condition out passed all other tests.

// TestNewerThanTheScopeStays (SAFETY F2): a scope as of a seq says nothing of an object whose
// event came later. A server that is behind another sends such a scope after a reconnect, and
// the entry does not come again for an agent that has taken it.
func TestNewerThanTheScopeStays(t *testing.T) {
	s, r, ss := caughtUp(t)
	scope := ss.scope(t, log.VNetScope(101))
	s.must(t, nicOp(t, macOf(5), 2, 2, 1, "10.0.0.15"))
	deliverAll(t, r, ss.next(t, true))
	r.resumePoint()
	deliverAll(t, r, scope)
	if _, held := r.state.Get(log.KindNIC, macOf(5).String()); !held {
		t.Error("a NIC that was made after the as-of of the scope is gone, because the scope lacks it")
	}
	deliverAll(t, r, []feed.Message{ss.bookmark()})
	compareReplica(t, s, r)
}

// TestEventOlderThanTheObject (SAFETY F2): a scope brings an object as it is at the head, and
// then its events since the cursor come for another scope: a deletion, and that it was made again.
// The object never goes.
func TestEventOlderThanTheObject(t *testing.T) {
	s, r, ss := caughtUp(t)
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(1).String()})
	s.must(t, nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"))
	deliverAll(t, r, ss.scope(t, log.VNetScope(101)))
	for ss.pos < s.head() {
		for _, m := range ss.next(t, true) {
			deliverAll(t, r, []feed.Message{m})
			if rec, held := r.state.Get(log.KindNIC, macOf(1).String()); !held || rec.Seq != s.head() {
				t.Fatalf("after %T of seq %d: held %v as of %d, want %d", m, ss.pos, held, rec.Seq, s.head())
			}
		}
	}
	deliverAll(t, r, []feed.Message{ss.bookmark()})
	compareReplica(t, s, r)
}

// TestUnderlayOfALeaverGoes (SAFETY F1): the underlay NICs of a node belong to a vnet while
// it has a NIC there. When its NIC moves to another node, no event tells of them.
func TestUnderlayOfALeaverGoes(t *testing.T) {
	s := newTestServer(1)
	baseHistory(t, s, 2)
	far := log.UUID{0: 0x4e, 15: 9}
	s.must(t, create(t, log.KindNetwork, `{"uuid":%q,"name":"underlay2","nic_tag":"sdc_underlay","vlan_id":2,"subnet":"172.17.0.0/24",
		"provision_start_ip":"172.17.0.2","provision_end_ip":"172.17.0.250","mtu":9000}`, far))
	for cn := 3; cn <= 4; cn++ {
		s.must(t, create(t, log.KindServer, `{"uuid":%q,"hostname":"cn%d"}`, cnID(cn), cn))
		s.must(t, create(t, log.KindNIC, `{"mac":%q,"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,
			"network_uuid":%q,"ip":"172.17.0.%d","underlay":true,"nic_tags_provided":["sdc_underlay"]}`, underlayMAC(cn), cnID(cn), owner, cnID(cn), far, cn))
	}
	s.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"))
	s.must(t, vmOp(t, 3, 3), nicOp(t, macOf(3), 3, 3, 1, "10.0.0.13"))
	r := newReplica(cnID(1), silent())
	ss, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	compareReplica(t, s, r)
	has := func(cn int) bool {
		_, held := r.state.Get(log.KindNIC, underlayMAC(cn).String())
		return held
	}
	if !has(3) || has(4) {
		t.Fatalf("at first: the underlay NIC of node 3 is held %v, of node 4 %v; want only that of 3", has(3), has(4))
	}
	s.must(t, update(t, log.KindNIC, macOf(3).String(), `{"cn_uuid":%q}`, cnID(4)))
	deliverAll(t, r, append(ss.next(t, true), ss.bookmark()))
	if has(3) || !has(4) {
		t.Errorf("after the move: the underlay NIC of node 3 is held %v, of node 4 %v; want only that of 4", has(3), has(4))
	}
	compareReplica(t, s, r)
}

// TestChangeThatIsCutAgainAndAgain: what came of a change before its connection ended is
// forgotten, because all of it comes again. It does not add up to a change that is too long.
func TestChangeThatIsCutAgainAndAgain(t *testing.T) {
	s, r, _ := caughtUp(t)
	var ops []log.Op
	for n := range 64 {
		ops = append(ops, nicOp(t, macOf(20+n), 2, 2, 1, fmt.Sprintf("10.0.0.%d", 50+n)))
	}
	s.must(t, ops...)
	for range maxPending/len(ops) + 2 {
		cursor, scopes := r.resumePoint()
		_, messages := s.hello(t, r.cn, cursor, scopes)
		deliverAll(t, r, messages[:len(ops)-1])
		if r.at() != cursor.Seq {
			t.Fatalf("half a change moved the cursor from %d to %d", cursor.Seq, r.at())
		}
	}
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, append(messages, ss.bookmark()))
	compareReplica(t, s, r)
}

// TestDigestOfBeforeTheScope (SAFETY F2): a bookmark is compared with no scope that is held
// as of a later seq. That they differ is right.
func TestDigestOfBeforeTheScope(t *testing.T) {
	s, r, ss := caughtUp(t)
	before := ss.bookmark()
	s.must(t, nicOp(t, macOf(5), 2, 2, 1, "10.0.0.15"))
	deliverAll(t, r, append(ss.scope(t, log.VNetScope(101)), before))
	if asks := r.takeRequests(); len(asks) > 0 || r.mismatches > 0 {
		t.Errorf("%d scopes are asked for again: %v", len(asks), asks)
	}
}

// TestNothingIsRemovedWithinAScope (architecture rule 8): while a scope comes again, some of
// its objects are as of the head and some are not.
func TestNothingIsRemovedWithinAScope(t *testing.T) {
	_, r, ss := caughtUp(t)
	messages := ss.scope(t, log.VNetScope(101))
	deliverAll(t, r, messages[:2])
	if w := r.wanted(&desired.Limits{}); w.complete || w.at.complete {
		t.Error("a view within a scope counts as complete")
	}
	noteNICs(r, []log.MAC{macOf(1)})
	if _, _, ok := r.delta(); ok {
		t.Error("a delta is made within a scope")
	}
	deliverAll(t, r, messages[2:])
	if w := r.wanted(&desired.Limits{}); !w.complete {
		t.Error("after the scope the view is not complete")
	}
}

// TestUnjudgedRemovesNothing (SAFETY R2): the first view of an agent that has lost its cache is
// complete as far as the log goes. It removes nothing before it was compared with the kernel.
func TestUnjudgedRemovesNothing(t *testing.T) {
	s, _, _ := caughtUp(t)
	r := newReplica(cnID(1), silent())
	r.view.share, r.view.phase = defaultHoldShare, unjudged
	_, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	if w := r.wanted(&desired.Limits{}); w.complete || w.at.complete || !w.unjudged {
		t.Errorf("a view that was not judged: complete %v, for barriers %v, unjudged %v; want only the last", w.complete, w.at.complete, w.unjudged)
	}
	j, ok := r.toJudge()
	if !ok {
		t.Fatal("there is no view to judge")
	}
	r.judge(j, link.Surplus{}, time.Unix(1, 0))
	if w := r.wanted(&desired.Limits{}); !w.complete || !w.at.complete || w.unjudged {
		t.Errorf("a view that was judged: complete %v, for barriers %v, unjudged %v; want all but the last", w.complete, w.at.complete, w.unjudged)
	}
}

// during is a kernel that calls a function within each pass, after it has seen what is wanted.
type during struct {
	Kernel
	call func()
}

// Pass implements Kernel.
func (d during) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	d.call()
	return d.Kernel.Pass(ctx, want, complete)
}

// TestEntryDuringAPass (SAFETY B1): an entry that comes within a pass is not programmed by
// it, although the kernel has all that the pass wanted.
func TestEntryDuringAPass(t *testing.T) {
	h := newHurried(t)
	before, real := h.r.applied, h.k.kernel
	h.k.kernel = during{real, func() {
		h.server.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(2).String()})
		deliverAll(t, h.r, append(h.stream.next(t, true), h.stream.bookmark()))
	}}
	h.k.pass(t.Context())
	h.honest(t, "after the pass", h.server.head())
	if h.r.applied != h.server.head() || h.r.programmed != before {
		t.Errorf("applied %d of %d, programmed %d, want %d", h.r.applied, h.server.head(), h.r.programmed, before)
	}
	h.k.kernel = real
	h.k.apply(t.Context())
	h.k.pass(t.Context())
	h.honest(t, "in the end", h.server.head())
	if h.r.programmed != h.server.head() {
		t.Errorf("in the end: programmed %d, want %d", h.r.programmed, h.server.head())
	}
}
