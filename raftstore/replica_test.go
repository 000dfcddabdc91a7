package raftstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rutter/raftstore/internal/joining"
)

// replicaOf starts a replica of n's cluster.
func replicaOf(t *testing.T, n *node, tweak func(*Config)) *node {
	t.Helper()
	cfg := testConfig(t, "r1", filepath.Join(t.TempDir(), "r1"))
	cfg.Listen, cfg.Join, cfg.NonVoter = freeAddress(t), []string{n.Address()}, true
	if tweak != nil {
		tweak(&cfg)
	}
	r := launch(t, cfg)
	await(t, r, "the replica to be ready", func() bool { return r.Ready() == nil })
	return r
}

// A restart of a replica makes it no voter, whatever its flags say; a server that began to
// join for a vote asks for it again.
func TestReplicaStaysOne(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	r := replicaOf(t, n, nil)
	dir := r.cfg.Dir
	for _, restart := range []struct {
		name            string
		nonVoter, noted bool
		voter           bool
	}{
		{"as it was", true, false, false},
		{"without the flag", false, false, false},
		{"with the flag, and a note from before", true, true, false},
		{"without it again", false, false, false},
		{"with a note that it joins for a vote", false, true, true},
		{"as a replica, which it is no longer", true, false, true},
	} {
		r.halt(t)
		if restart.noted {
			if err := joining.Note(dir); err != nil {
				t.Fatal(err)
			}
		}
		r.cfg.NonVoter = restart.nonVoter
		r = r.again(t)
		await(t, r, restart.name+": to be ready", func() bool { return r.Ready() == nil })
		if restart.voter {
			await(t, n, restart.name+": to have a vote", func() bool { m, _ := memberOf(n, "r1"); return m.Voter })
			await(t, r, "the note to be gone", func() bool { noted, err := joining.Noted(dir); return !noted && err == nil })
			await(t, r, "to be no replica", func() bool { return !r.Status().Replica })
			continue
		}
		for range 10 { // a request for a vote comes every stagedPause at the latest
			_ = r.pause(patience(t), nil)
		}
		time.Sleep(2 * stagedPause)
		if m, ok := memberOf(n, "r1"); !ok || m.Voter || !r.Status().Replica {
			t.Errorf("%s: it is %+v, a replica: %t; want it without a vote", restart.name, m, r.Status().Replica)
		}
	}
}

// A replica that hears no leader while there is one is not ready beyond MaxLag, and ready
// again after it has kept up. Its loss, and its lag, stop no write.
func TestReplicaLags(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	r := replicaOf(t, n, func(c *Config) { c.MaxLag = time.Second })
	if st := r.Status(); !st.Replica || st.MaxLag != time.Second || st.Lagging != "" {
		t.Errorf("a replica that keeps up: %+v", st)
	}
	if st := n.Status(); st.Replica || st.MaxLag != 0 {
		t.Errorf("a voter: %+v", st)
	}
	n.halt(t)
	await(t, r, "the replica to lag", func() bool { return errors.Is(r.Ready(), ErrLagging) })
	if st := r.Status(); st.Lagging == "" || st.Lags != 1 || st.Lag <= time.Second || st.Ready {
		t.Errorf("a replica that lags: %+v", st)
	}
	n = n.again(t)
	await(t, r, "the replica to be ready again", func() bool { return r.Ready() == nil })
	if st := r.Status(); st.Lagging != "" || st.Lag > time.Second/2 {
		t.Errorf("a replica that has caught up: %+v", st)
	}
	r.halt(t)
	for i := range 5 {
		must(t, n, tagChange(newID(), fmt.Sprintf("without%d", i)))
	}
}

// TestNoLeader: replicas alone cannot say that there is no leader.
func TestNoLeader(t *testing.T) {
	voter, replica := memberReport{voter: true}, memberReport{}
	led := memberReport{voter: true, identity: identity{Leader: "s1"}}
	for _, c := range []struct {
		others []memberReport
		want   bool
	}{
		{nil, false},
		{[]memberReport{replica, replica}, false},
		{[]memberReport{voter}, true},
		{[]memberReport{replica, voter, replica}, true},
		{[]memberReport{voter, led}, false},
		{[]memberReport{voter, {identity: identity{Leader: "s1"}}}, false},
	} {
		if got := noLeader(c.others); got != c.want {
			t.Errorf("%+v: %v, want %v", c.others, got, c.want)
		}
	}
}

// What counts votes counts no replica, and what concerns each server's state counts it: a
// table of each use of raft's suffrage.
func TestReplicaCounts(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	r := replicaOf(t, n, nil)
	leading, following := n.raft.Load(), r.raft.Load()
	full := &Room{Low: true, Full: true}
	for name, check := range map[string]func() bool{
		"its state is compared": func() bool {
			n.comparison.compare(t.Context(), leading)
			return slices.ContainsFunc(n.comparison.compared(), func(c Compared) bool { return c.ID == "r1" && !c.voter && c.Index > 0 })
		},
		"it compares itself, and the voter backs it": func() bool {
			r.comparison.compare(t.Context(), following)
			return r.Serving() == nil
		},
		"a replica that differs stops itself": func() bool {
			_, err := judge([]Compared{{ID: "s1", voter: true, Index: 9, Differs: true}}, false, 9)
			return err != nil
		},
		"a replica that differs stops no majority": func() bool {
			_, err := judge([]Compared{{ID: "s2", voter: true, Index: 9}, {ID: "r1", Index: 9, Differs: true}}, true, 9)
			return err == nil
		},
		"replicas that agree make no majority": func() bool {
			backed, _ := judge([]Compared{{ID: "s2", voter: true}, {ID: "s3", voter: true}, {ID: "r1", Index: 9}, {ID: "r2", Index: 9}}, true, 9)
			return !backed
		},
		"a replica without room stops no growth": func() bool {
			n.disks.space.mu.Lock()
			n.disks.space.others, n.disks.space.asked = []memberReport{{identity: identity{ID: "r1", Room: full}, address: r.Address()}}, true
			n.disks.space.mu.Unlock()
			n.disks.judgeCluster(leading)
			return n.NoRoom() == nil
		},
		"it gets no leadership, at a stop": func() bool {
			_, err := n.lead.successor(t.Context(), leading)
			return err != nil
		},
		"it gets no leadership, by name": func() bool {
			return n.members.transferLocal(t.Context(), leading, "r1") != nil
		},
		"the last voter is not removed beside it": func() bool {
			return n.members.checkRemoval(t.Context(), leading, "s1") != nil
		},
		"it is removed without asking for a majority of it": func() bool {
			return n.members.checkRemoval(t.Context(), leading, "r1") == nil
		},
		"the leader is confirmed without it": func() bool {
			c, ok := n.Confirmed()
			return ok && slices.Equal(c.Others, []string{r.Address()})
		},
		"a consistent read works through the leader": func() bool {
			seq, err := r.Consistent(patience(t))
			return err == nil && seq >= n.Head().Seq
		},
		"a write is forwarded": func() bool {
			return must(t, r, tagChange(newID(), "forwarded")).Refusal == nil
		},
		"its clock is read, and counts for no majority": func() bool {
			n.times.clocks.MembersAre(leading.GetConfiguration().Configuration().Servers)
			_, voters := n.times.clocks.Answered(time.Now())
			_, read := n.times.clocks.Others()["r1"]
			return voters == 1 && read
		},
		"only replicas lag": func() bool { return r.replica.follows(following) && !n.replica.follows(leading) },
	} {
		if !check() {
			t.Errorf("not so: %s", name)
		}
	}
}
