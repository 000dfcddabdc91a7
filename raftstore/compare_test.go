package raftstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/digest"
)

// spoil makes a server's state differ from the others, as a bug would: a NIC tag appears
// that no client made.
func (n *node) spoil(t testing.TB) {
	t.Helper()
	a := &n.applier
	a.mu.Lock()
	defer a.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	tag := &log.NICTag{Name: "spoilt", MTU: 9000}
	if err := n.state.Load(projections.Record{Object: tag, Revision: 1, Seq: 1}); err != nil {
		t.Fatal(err)
	}
}

// until waits until cond holds.
func until(t testing.TB, n *node, what string, cond func() bool) {
	t.Helper()
	for ctx := patience(t); !cond(); _ = n.pause(ctx, nil) {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func comparing(c *Config) { c.CompareEvery = 50 * time.Millisecond }

// TestMinorityStops: the server that differs serves nothing and says so, the
// others go on, and a rebuild brings it back, under load.
func TestMinorityStops(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			nodes := three(t, comparing)
			leader := leaderOf(t, nodes)
			must(t, leader, tagChange(newID(), "before"))
			checkSame(t, nodes)
			odd := leader
			if who == "follower" {
				odd = others(nodes, leader)[0]
			}
			odd.spoil(t)
			must(t, others(nodes, odd)[0], tagChange(newID(), "after"))
			until(t, odd, "the odd server refuses", func() bool { return errors.Is(odd.Ready(), ErrDiverged) })
			if _, err := odd.Propose(patience(t), tagChange(newID(), "no")); !errors.Is(err, ErrDiverged) {
				t.Errorf("propose: %v, want ErrDiverged", err)
			}
			if _, err := odd.Entries(0, 1); !errors.Is(err, ErrDiverged) {
				t.Errorf("entries: %v, want ErrDiverged", err)
			}
			if err := odd.CheckCursor(log.Cursor{}); !errors.Is(err, ErrDiverged) {
				t.Errorf("cursor: %v, want ErrDiverged", err)
			}
			if _, err := odd.Consistent(patience(t)); !errors.Is(err, ErrDiverged) {
				t.Errorf("consistent: %v, want ErrDiverged", err)
			}
			if st := odd.Status(); st.Ready || !strings.Contains(st.Diverged, "1 of 3 voters") || st.Differences == 0 {
				t.Errorf("status %+v", st)
			}
			rest := others(nodes, odd)
			until(t, rest[0], "another one leads", func() bool { return rest[0].lead.leading() || rest[1].lead.leading() })
			stop := make(chan struct{})
			acked := writers(t, 4, stop, func(i int) *node { return rest[i%2] })
			if err := rest[0].members.RebuildMember(patience(t), odd.cfg.ID); err != nil {
				t.Fatal(err)
			}
			until(t, odd, "the odd server is whole", func() bool { return odd.Ready() == nil })
			waitFor(t, rest[0], rest[0].Head().Seq+50)
			close(stop)
			done := acked()
			checkSame(t, nodes)
			checkAcked(t, odd.Store, done)
			checkRestart(t, nodes, odd)
		})
	}
}

func others(nodes []*node, not *node) []*node {
	var rest []*node
	for _, n := range nodes {
		if n != not {
			rest = append(rest, n)
		}
	}
	return rest
}

// checkRestart stops a server and starts it from what it wrote.
func checkRestart(t *testing.T, nodes []*node, n *node) {
	t.Helper()
	n.halt(t)
	back := n.again(t)
	for i := range nodes {
		if nodes[i] == n {
			nodes[i] = back
		}
	}
	must(t, leaderOf(t, nodes), tagChange(newID(), "restarted"))
	checkSame(t, nodes)
	until(t, back, "ready after the restart", func() bool { return back.Ready() == nil })
}

// TestNoMajorityStops: if one of two differs, it is unknown which is right.
func TestNoMajorityStops(t *testing.T) {
	t.Parallel()
	nodes := three(t, comparing)
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	checkSame(t, nodes)
	rest := others(nodes, leader)
	rest[0].halt(t)
	rest[1].spoil(t)
	must(t, leader, tagChange(newID(), "after"))
	for _, n := range []*node{leader, rest[1]} {
		until(t, n, n.cfg.ID+" refuses", func() bool { return errors.Is(n.Serving(), ErrDiverged) })
	}
	// The third one comes back and says who is right.
	rest[0] = rest[0].again(t)
	until(t, leader, "the majority serves again", func() bool { return leader.Ready() == nil && rest[0].Ready() == nil })
	if rest[1].Serving() == nil {
		t.Error("the one that is wrong serves too")
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	same := Compared{ID: "a", Index: 5, voter: true}
	differs := Compared{ID: "b", Index: 5, Differs: true, voter: true}
	silent := Compared{ID: "c", Error: "down", voter: true}
	behind := Compared{ID: "e", Index: 4, voter: true}
	watcher := Compared{ID: "d", Index: 5, Differs: true}
	tests := []struct {
		found  []Compared
		voting bool
		serves bool
	}{
		{nil, true, true},
		{[]Compared{same, same}, true, true},
		{[]Compared{silent, silent}, true, true},
		{[]Compared{same, differs}, true, true},
		{[]Compared{differs, differs}, true, false},
		{[]Compared{differs, silent}, true, false},
		{[]Compared{differs, behind}, true, false},
		{[]Compared{differs}, true, false},
		{[]Compared{same, same, differs, differs}, true, true},
		{[]Compared{same, differs, differs, silent}, true, false},
		{[]Compared{watcher}, true, true},
		{[]Compared{differs, differs, differs}, false, false},
		{[]Compared{same, same, differs}, false, true},
	}
	for i, test := range tests {
		if _, err := judge(test.found, test.voting, 5); (err == nil) != test.serves {
			t.Errorf("%d: %v, want to serve: %t", i, err, test.serves)
		}
	}
}

// TestDigestOfHead: the digest depends on each part of the head.
func TestDigestOfHead(t *testing.T) {
	t.Parallel()
	base := changesdb.Head{Seq: 3, Time: 4, Feature: 1, Floor: 2}
	seen := map[digest.Sum]bool{base.Digest(): true}
	for _, change := range []func(*changesdb.Head){
		func(h *changesdb.Head) { h.Seq++ }, func(h *changesdb.Head) { h.Time++ }, func(h *changesdb.Head) { h.Feature++ }, func(h *changesdb.Head) { h.Floor++ },
		func(h *changesdb.Head) { h.Hash[0]++ }, func(h *changesdb.Head) { h.Cluster[0]++ }, func(h *changesdb.Head) { h.FloorHash[0]++ }, func(h *changesdb.Head) { h.Trimmed[0]++ },
		func(h *changesdb.Head) { h.StateSum[1]++ }, func(h *changesdb.Head) { h.WindowSum[0]++ }, func(h *changesdb.Head) { h.Retention.Events++ },
	} {
		h := base
		change(&h)
		if seen[h.Digest()] {
			t.Errorf("%+v has the digest of another", h)
		}
		seen[h.Digest()] = true
	}
}

// TestPoints: the newest pointsKept are there, and each is found.
func TestPoints(t *testing.T) {
	t.Parallel()
	var p points
	if got := p.upTo(9); got != (point{}) {
		t.Errorf("%v of none", got)
	}
	for i := uint64(1); i <= 2*pointsKept; i++ {
		p.push(&changesdb.Head{Command: 2 * i})
	}
	for _, test := range []struct{ ask, want uint64 }{
		{^uint64(0), 4 * pointsKept}, {4*pointsKept - 1, 4*pointsKept - 2}, {2*pointsKept + 2, 2*pointsKept + 2}, {2*pointsKept + 1, 0},
	} {
		if got := p.upTo(test.ask).index; got != test.want {
			t.Errorf("up to %d: %d, want %d", test.ask, got, test.want)
		}
	}
	s := &Store{}
	for i := uint64(1); i <= pointsKept+3; i++ {
		s.comparison.points.push(&changesdb.Head{Command: i, Seq: log.Seq(2 * i)})
	}
	all, some := s.Points(0), s.Points(pointsKept+1)
	if len(all) != pointsKept || all[0].Index != 4 || len(some) != 2 || some[1].Index != pointsKept+3 || some[1].Seq != 2*pointsKept+6 || some[0].Digest == some[1].Digest {
		t.Errorf("%d points from %+v on, and at last %+v", len(all), all[0], some)
	}
}
