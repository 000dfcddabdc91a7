package feedserver

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/api/internal/nodemetrics"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// TestNewestSessionCounts (SAFETY B1): a server hears of an older connection of a node late: its
// hello, or its end. The newer one stays.
func TestNewestSessionCounts(t *testing.T) {
	g := newSessions(liveness.NewTable(1, time.Now))
	woken := map[uint64]reason{}
	session := func(incarnation, number uint64) *session {
		hello := &feed.Hello{CN: apitest.CN1, Incarnation: incarnation, Session: number}
		return newSession(hello, "", func(why reason) { woken[number] |= why }, nodemetrics.New(nil).NewNode())
	}
	first, second := session(1, 8), session(2, 1)
	if !g.add(first) || !g.add(second) || woken[8] != wakeReplaced || g.get(apitest.CN1) != second {
		t.Fatalf("the newer session did not replace the older one: woken %v", woken)
	}
	if g.add(session(1, 9)) || g.add(session(2, 1)) || g.get(apitest.CN1) != second || woken[1] != 0 {
		t.Errorf("an older session, or the same, replaced the newest one: woken %v", woken)
	}
	if g.remove(first); g.get(apitest.CN1) != second {
		t.Error("the end of an older session removed the newest one")
	}
	if g.remove(second); g.get(apitest.CN1) != nil {
		t.Error("the end of the newest session left it there")
	}
}

// TestWhoMayFollow: a node follows its own feed, whatever its hello says.
func TestWhoMayFollow(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		who matrix.Identity
		cn  log.UUID
		may bool
	}{
		{matrix.Identity{Role: matrix.CN, UUID: apitest.CN1}, apitest.CN1, true},
		{matrix.Identity{Role: matrix.CN, UUID: apitest.CN1}, apitest.CN2, false},
		{matrix.Identity{Role: matrix.Reader, Name: "r"}, apitest.CN1, false},
		{matrix.Identity{Role: matrix.Expired, UUID: apitest.CN1}, apitest.CN1, false},
		{matrix.Identity{Role: matrix.None}, apitest.CN1, false},
	} {
		if err := b.feed.mayFollow(c.who, "", &feed.Hello{CN: c.cn}); (err == nil) != c.may {
			t.Errorf("%s follows the feed of %s: %v, want %v", c.who.Actor(), c.cn, err, c.may)
		}
	}
}

// TestFrameOfOthersIsWithheld: the last check of a frame knows nothing of why it is sent.
func TestFrameOfOthersIsWithheld(t *testing.T) {
	b := newBed(t)
	b.feed.logger = slog.New(slog.DiscardHandler)
	who := matrix.Identity{Role: matrix.CN, UUID: apitest.CN1}
	u := &subscriber{s: &b.feed.parts, who: who, rights: rightsOf(who), hello: &feed.Hello{CN: apitest.CN1}}
	u.held.asOf = map[log.Scope]log.Seq{log.VNetScope(apitest.VNetA): 1}
	for _, m := range []feed.Message{
		&feed.Object{Scope: log.VNetScope(apitest.VNetB)}, &feed.ScopeBegin{Scope: log.CNScope(apitest.CN2)},
		&feed.ScopeEnd{Scope: log.VNetScope(apitest.VNetB)},
		&feed.Bookmark{Digests: []feed.ScopeDigest{{Scope: log.VNetScope(apitest.VNetB)}}},
	} {
		if u.maySend(u.own(m)) {
			t.Errorf("%T of what the node does not hold would be sent", m)
		}
	}
	if u.maySend(feed.TypeEntry, false) || !u.maySend(feed.TypeEntry, true) || !u.maySend(u.own(&feed.Object{Scope: log.VNetScope(apitest.VNetA)})) {
		t.Error("entries and objects are to be sent of what is held, and of nothing else")
	}
}

// TestDigestsAreOfThePosition (SAFETY F2): the state of a server is ahead of what a stream has
// sent. Its digests are not those of a bookmark there.
func TestDigestsAreOfThePosition(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	head := b.Store.Head()
	u := &subscriber{s: &b.feed.parts, at: b.Store.CursorAt(head.Seq - 1)}
	u.held.asOf = map[log.Scope]log.Seq{log.AllScope(): 1}
	if digests := u.scopeDigests(); digests != nil {
		t.Errorf("digests of seq %d are sent for %d: %v", head.Seq, head.Seq-1, digests)
	}
	if u.at = head; len(u.scopeDigests()) != 1 {
		t.Error("at the head there are no digests")
	}
}

// TestRingsOfOthers: a node rings for VMMs that the log has on it, and for those that the log does
// not have yet. What it rings for others is refused, and said.
func TestRingsOfOthers(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	own, other, unknown, vm := log.UUID{3, 8: 1}, log.UUID{3, 8: 2}, log.UUID{3, 8: 3}, log.UUID{4, 8: 1}
	for vmm, cn := range map[log.UUID]log.UUID{own: apitest.CN1, other: apitest.CN2} {
		change := log.Change{ID: vmm, Actor: "test", Ops: []log.Op{{
			Action: log.Create, Kind: log.KindVMM, Set: []string{"gen", "id", "instance_id", "sled_id", "state"},
			Object: &log.VMM{UUID: vmm, InstanceID: vm, SledID: cn, State: "running", Gen: 1},
		}}}
		if result, err := b.Store.Propose(t.Context(), &change); err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
	}
	var refused []*matrix.Refusal
	b.feed.refuse = func(_ string, refusal *matrix.Refusal) error {
		refused = append(refused, refusal)
		return nil
	}
	rings := func(role matrix.Role, vmms ...log.UUID) []log.UUID {
		refused = nil
		hello := &feed.Hello{CN: apitest.CN1}
		u := &subscriber{s: &b.feed.parts, who: matrix.Identity{Role: role, UUID: apitest.CN1}, hello: hello, session: newSession(hello, "", func(reason) {}, nodemetrics.New(nil).NewNode())}
		return u.ringsFor(&feed.Ring{VMMs: vmms}).VMMs
	}
	if got := rings(matrix.CN, other, own, unknown); !slices.Equal(got, []log.UUID{own, unknown}) || len(refused) != 1 || refused[0].What != "ring for 1 VMMs" {
		t.Errorf("rings for %v, want %v; refused %+v", got, []log.UUID{own, unknown}, refused)
	}
	if got := rings(matrix.CN, own, unknown); len(got) != 2 || len(refused) != 0 {
		t.Errorf("of its own: rings for %v, refused %+v", got, refused)
	}
	if got := rings(matrix.Local, own, other); len(got) != 2 || len(refused) != 0 {
		t.Errorf("a cluster without certificates: rings for %v, refused %+v", got, refused)
	}
}
