package agent

import (
	"slices"
	"testing"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// corruptible is a replica that is at the head, with a NIC on a vnet.
func corruptible(t *testing.T) (*testServer, *session, *cache, *replica, *persister) {
	t.Helper()
	s := newTestServer(1)
	baseHistory(t, s, 3)
	s.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"), nicOp(t, macOf(2), 1, 1, 2, "10.0.0.12"))
	s.must(t, vmOp(t, 2, 2), nicOp(t, macOf(3), 2, 2, 1, "10.0.0.13"))
	c, r, p := opened(t, t.TempDir())
	t.Cleanup(func() { _ = c.Close() })
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	if r.applied != s.head() || r.checked != s.head() {
		t.Fatalf("applied %d, checked %d, want %d", r.applied, r.checked, s.head())
	}
	return s, ss, c, r, p
}

// corruptions are what bad memory or a bug can do to a replica's state.
var corruptions = map[string]func(r *replica, nic *log.NIC, rec projections.Record){
	"an object is lost": func(r *replica, nic *log.NIC, _ projections.Record) { r.state.Drop(log.KindNIC, nic.ID()) },
	"a field is another": func(r *replica, nic *log.NIC, rec projections.Record) {
		bad := *nic
		bad.OwnerUUID = cnID(99)
		_ = r.state.Load(projections.Record{Object: &bad, Revision: rec.Revision, Seq: rec.Seq})
	},
	"a seq of the future": func(r *replica, nic *log.NIC, rec projections.Record) {
		bad := *nic
		bad.OwnerUUID = cnID(99)
		_ = r.state.Load(projections.Record{Object: &bad, Revision: rec.Revision + 1, Seq: rec.Seq + 1000})
	},
	"an object that never was": func(r *replica, nic *log.NIC, rec projections.Record) {
		bad := *nic
		bad.MAC[5] ^= 0x80
		_ = r.state.Load(projections.Record{Object: &bad, Revision: 1, Seq: rec.Seq})
	},
}

func someNIC(t *testing.T, r *replica) (projections.Record, *log.NIC) {
	t.Helper()
	for rec := range r.state.NICsOnCN(r.cn) {
		nic := rec.Object.(*log.NIC)
		if slices.ContainsFunc(r.state.ScopesOf(log.KindNIC, nic.ID()), func(s log.Scope) bool { return s.Type == log.ScopeVNet }) {
			return rec, nic
		}
	}
	t.Fatal("no NIC on a vnet")
	return projections.Record{}, nil
}

// A wrong object in memory is found at the next bookmark with digests. Its scopes, and
// only those, are sent again.
func TestDigestFindsCorruptionInMemory(t *testing.T) {
	for name, corrupt := range corruptions {
		t.Run(name, func(t *testing.T) {
			s, ss, _, r, _ := corruptible(t)
			rec, nic := someNIC(t, r)
			corrupt(r, nic, rec)
			r.programmed = s.head()
			deliverAll(t, r, []feed.Message{ss.bookmark()})
			repaired(t, s, ss, r)
		})
	}
}

// repaired checks that the replica reports nothing as applied, asks again, and is
// repaired.
func repaired(t *testing.T, s *testServer, ss *session, r *replica) {
	t.Helper()
	if r.applied != 0 || r.programmed != 0 || r.checked != 0 || r.isComplete() {
		t.Errorf("a wrong view counts: applied %d, programmed %d, checked %d", r.applied, r.programmed, r.checked)
	}
	asks := r.takeRequests()
	if len(asks) == 0 || len(asks) == len(r.scopes) || r.mismatches != uint32(len(asks)) {
		t.Fatalf("%d scopes asked for of %d held, %d mismatches", len(asks), len(r.scopes), r.mismatches)
	}
	for _, again := range asks {
		deliverAll(t, r, ss.scope(t, again.Scope))
	}
	deliverAll(t, r, []feed.Message{ss.bookmark()})
	if r.applied != s.head() || r.checked != s.head() || !r.isComplete() || len(r.takeRequests()) > 0 {
		t.Errorf("not mended: applied %d, checked %d of %d, suspects %v", r.applied, r.checked, s.head(), r.suspects)
	}
}

// A row on disk with the right checksums and wrong content is found with the first
// bookmark after the start.
func TestDigestFindsCorruptionOnDisk(t *testing.T) {
	s, _, c, r, p := corruptible(t)
	if err := p.commit(); err != nil {
		t.Fatal(err)
	}
	rec, nic := someNIC(t, r)
	bad := *nic
	bad.OwnerUUID = cnID(99)
	wrong := newBatch()
	wrong.Head = r.outbox.ready.Head
	wrong.Objects[keyOf(rec)] = kept{Record: projections.Record{Object: &bad, Revision: rec.Revision, Seq: rec.Seq}}
	if err := c.Commit(&wrong); err != nil {
		t.Fatal(err)
	}
	folder := c.path[:len(c.path)-len(cacheName)]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c, r, _ = opened(t, folder)
	t.Cleanup(func() { _ = c.Close() })
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	repaired(t, s, ss, r)
}

// What sending again does not repair is requested more and more rarely.
func TestDigestAsksSeldom(t *testing.T) {
	_, ss, _, r, _ := corruptible(t)
	asked := 0
	for range 1000 {
		m := ss.bookmark().(*feed.Bookmark)
		m.Digests[0].Digest.Lo++
		deliverAll(t, r, []feed.Message{m})
		asked += len(r.takeRequests())
	}
	if asked != 10 {
		t.Errorf("asked %d times in 1000 bookmarks, want 10", asked)
	}
}
