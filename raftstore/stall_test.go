package raftstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// heldThree starts a cluster of three whose disks can be held.
func heldThree(t *testing.T, tweak func(*Config)) (servers []*heldNode, leader *heldNode) {
	dir := t.TempDir()
	var members []Member
	for i := range 3 {
		members = append(members, Member{ID: fmt.Sprintf("s%d", i+1), Address: freeAddress(t)})
	}
	var nodes []*node
	for _, m := range members {
		cfg := testConfig(t, m.ID, filepath.Join(dir, m.ID))
		cfg.Listen, cfg.InitialMembers = m.Address, members
		if tweak != nil {
			tweak(&cfg)
		}
		servers = append(servers, launchHeld(t, cfg))
		nodes = append(nodes, servers[len(servers)-1].node)
	}
	must(t, nodes[0], tagChange(newID(), "before"))
	lead := leaderOf(t, nodes)
	for _, h := range servers {
		if h.node == lead {
			leader = h
		}
	}
	return servers, leader
}

// TestLeaderDiskHangs: a leader whose disk stands still without an error costs the
// cluster the time until that is found, and an election. Its own clients' writes go
// to the new leader, it is not ready, and when the disk goes on it follows, is ready
// and has what was written meanwhile.
func TestLeaderDiskHangs(t *testing.T) {
	t.Parallel()
	servers, held := heldThree(t, nil)
	var follower *heldNode
	for _, h := range servers {
		if h != held {
			follower = h
		}
	}
	term := held.raft.Load().CurrentTerm()
	held.disk.hold()
	began := time.Now()
	must(t, follower.node, tagChange(newID(), "through_a_follower"))
	t.Logf("a write through a follower took %v", time.Since(began))
	if took := time.Since(began); took < held.cfg.DiskStall/2 {
		t.Errorf("written after %v, with a disk that hangs and is found out after %v", took, held.cfg.DiskStall)
	}
	if now := follower.raft.Load().CurrentTerm(); now <= term {
		t.Errorf("term %d, before %d: nobody else was elected", now, term)
	}
	if err := held.Ready(); !errors.Is(err, ErrDiskHangs) {
		t.Errorf("the server with the disk is ready: %v", err)
	}
	if st := held.Status(); st.Ready || st.DiskStalls != 1 {
		t.Errorf("its status: ready %v, %d hangs", st.Ready, st.DiskStalls)
	}
	result := must(t, held.node, tagChange(newID(), "through_the_held"))
	if !errors.Is(held.Ready(), ErrDiskHangs) {
		t.Error("ready while its disk hangs")
	}
	held.disk.release(false)
	becomes(t, "ready again", func() bool { return held.Ready() == nil })
	if err := held.WaitSeq(patience(t), result.Last); err != nil {
		t.Fatal(err)
	}
	must(t, held.node, tagChange(newID(), "after"))
}

// TestFollowerDiskHangs: a follower whose disk hangs is not ready, and does not
// stand for election; the others go on.
func TestFollowerDiskHangs(t *testing.T) {
	t.Parallel()
	servers, leader := heldThree(t, nil)
	var held *heldNode
	for _, h := range servers {
		if h != leader {
			held = h
		}
	}
	held.disk.hold()
	must(t, leader.node, tagChange(newID(), "meanwhile"))
	becomes(t, "it says that its disk hangs", func() bool { return errors.Is(held.Ready(), ErrDiskHangs) })
	if err := held.transport.Load().RequestPreVote("s9", "127.0.0.1:1", nil, nil); !errors.Is(err, ErrDiskHangs) {
		t.Errorf("it stands for election: %v", err)
	}
	must(t, leader.node, tagChange(newID(), "more"))
	held.disk.release(false)
	becomes(t, "ready again", func() bool { return held.Ready() == nil })
	if err := held.WaitSeq(patience(t), leader.Head().Seq); err != nil {
		t.Fatal(err)
	}
}

// TestDiskHangsForGood: after DiskPatience the store ends, says that it cannot tell what
// is on disk, and does not wait for goroutines that wait for the disk.
func TestDiskHangsForGood(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	_, held := heldThree(t, func(c *Config) { c.DiskPatience = 2 * time.Second })
	held.disk.hold()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = held.Propose(ctx, tagChange(newID(), "lost_or_not"))
	select {
	case err := <-held.ended:
		if !errors.Is(err, ErrDiskHangs) {
			t.Errorf("ended by %v, want ErrDiskHangs", err)
		}
	case <-patience(t).Done():
		t.Fatal("it runs on")
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	held.cancel = nil
	held.disk.release(true) // what is left of it ends when the disk fails
	becomes(t, "raft ends", func() bool { return held.raft.Load().State() == raft.Shutdown })
}
