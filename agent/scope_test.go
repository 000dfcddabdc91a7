package agent

import (
	"slices"
	"testing"

	"rutter/log"
	"rutter/log/feed"
)

// gaining returns a replica to which a vnet is being sent, cut before its end.
func gaining(t *testing.T) (*testServer, *replica) {
	t.Helper()
	s, r, ss := caughtUp(t)
	s.must(t, nicOp(t, macOf(7), 3, 3, 3, "10.0.0.17"), nicOp(t, macOf(8), 3, 3, 3, "10.0.0.18"))
	ss.pos = s.head()
	s.must(t, nicOp(t, macOf(9), 1, 1, 3, "10.0.0.19"))
	messages := append(ss.next(t, true), ss.bookmark())
	end := slices.IndexFunc(messages, func(m feed.Message) bool {
		end, ok := m.(*feed.ScopeEnd)
		return ok && end.Scope == log.VNetScope(103)
	})
	if end < 0 {
		t.Fatalf("no vnet 103 in %v", messages)
	}
	deliverAll(t, r, messages[:end])
	if held, ok := r.scopes[log.VNetScope(103)]; !ok || held.Complete {
		t.Fatalf("vnet 103 is %+v, %v; want half of it", held, ok)
	}
	return s, r
}

// TestHalfAScopeIsPurged (SAFETY F3): of a scope whose end never came nothing is left
// after a reconnect, in what is held and in what is reported to the server.
func TestHalfAScopeIsPurged(t *testing.T) {
	for _, still := range []bool{true, false} {
		s, r := gaining(t)
		if !still { // the node has no interest there any more
			s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(9).String()})
		}
		cursor, scopes := r.resumePoint()
		if slices.ContainsFunc(scopes, func(h feed.HeldScope) bool { return h.Scope == log.VNetScope(103) }) {
			t.Errorf("the server is told that vnet 103 is held: %v", scopes)
		}
		for _, n := range []int{7, 8} {
			if _, held := r.state.Get(log.KindNIC, macOf(n).String()); held {
				t.Errorf("NIC %d of half a scope is held after the reconnect", n)
			}
		}
		_, messages := s.hello(t, r.cn, cursor, scopes)
		deliverAll(t, r, messages)
		compareReplica(t, s, r)
		if r.applied != s.head() {
			t.Errorf("still wanted %v: applied %d of %d, missing %q", still, r.applied, s.head(), r.missing)
		}
	}
}

// TestHalfAScopeIsPurgedAtTheStart: the same for such a scope in a cache.
func TestHalfAScopeIsPurgedAtTheStart(t *testing.T) {
	s, r := gaining(t)
	held := &contents{Head: head{CN: r.cn, Cursor: r.cursor, Complete: true}, Scopes: r.scopes}
	for kind := range maxKind {
		for rec := range r.state.List(log.Kind(kind)) {
			held.Objects = append(held.Objects, rec)
		}
	}
	again := newReplica(r.cn, silent())
	if err := again.load(held); err != nil {
		t.Fatal(err)
	}
	half := 0
	for _, n := range []int{7, 8} {
		if _, held := r.state.Get(log.KindNIC, macOf(n).String()); held {
			half++
		}
		if _, held := again.state.Get(log.KindNIC, macOf(n).String()); held {
			t.Errorf("NIC %d of half a scope was taken from the cache", n)
		}
	}
	if half != 2 {
		t.Fatalf("%d NICs of the half scope were held, want 2", half)
	}
	cursor, scopes := again.resumePoint()
	if slices.ContainsFunc(scopes, func(h feed.HeldScope) bool { return h.Scope == log.VNetScope(103) }) {
		t.Errorf("the server is told that vnet 103 is held: %v", scopes)
	}
	_, messages := s.hello(t, again.cn, cursor, scopes)
	deliverAll(t, again, messages)
	compareReplica(t, s, again)
}
