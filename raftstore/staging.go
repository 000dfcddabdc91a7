package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/joining"
	"rutter/raftstore/internal/lag"
)

// identity is what a server reports about itself to another server.
type identity struct {
	ID      string   `json:"id"`
	Cluster log.UUID `json:"cluster"` // zero if the server belongs to none yet
	Applied uint64   `json:"applied_index"`
	Last    uint64   `json:"last_index"`      // the end of raft's log; 0 from a program that does not report it
	Feature uint32   `json:"feature_version"` // the highest version that it agrees to now
	Members []string `json:"members"`         // ids, as the server knows them
	Skips   string   `json:"skips,omitempty"` // a hash over the skips of the server; "": none, or a program that does not know skips

	// Term is raft's; 0 from a program that reports neither it nor the fields below.
	Term    uint64 `json:"term,omitempty"`
	Knows   uint32 `json:"feature_known,omitempty"` // the highest version that its program knows; 0: Feature
	Program string `json:"program,omitempty"`       // version of its program
	Leader  string `json:"leader,omitempty"`        // the leader's peer address, as the server knows it
	Stalled bool   `json:"stalled,omitempty"`       // its disk hangs
	Room    *Room  `json:"room,omitempty"`

	// Window has the bounds of the window of change ids; zero from a program that does
	// not report them. They must be the same on all servers.
	Window windowBounds `json:"window,omitzero"`
	// Seq is the end of the log as the server has it; 0 from a program that does not
	// report it.
	Seq log.Seq `json:"seq,omitempty"`
}

// windowBounds are Config.DedupeAge and Config.DedupeCount.
type windowBounds struct {
	Age   time.Duration `json:"age_ns"`
	Count int           `json:"count"`
}

// checkWindow refuses a server that would remember other change ids than this one,
// because their states would differ.
func (i *identity) checkWindow(cfg *Config) error {
	if own := (windowBounds{cfg.DedupeAge, cfg.DedupeCount}); i.Window != (windowBounds{}) && i.Window != own {
		return fmt.Errorf("server %s remembers %d change ids for %v, and this one %d for %v: give both the same DedupeCount and DedupeAge", i.ID, i.Window.Count, i.Window.Age, own.Count, own.Age)
	}
	return nil
}

const (
	// identityWait bounds the wait for one server's identity.
	identityWait = time.Second
	// maxStagedLag is how many raft entries a server without a vote may be behind when it
	// gets one. It catches up with so many in well under a second. A voter that is far
	// behind counts for the quorum and cannot acknowledge.
	maxStagedLag = 4096
	// stagedPause is the time between two requests of a joining server for its vote.
	stagedPause = 200 * time.Millisecond
)

// ErrNotCaughtUp: the server is too far behind to get a vote. Retry later.
var ErrNotCaughtUp = errors.New("raftstore: the server has not caught up")

func (ms *Membership) identity() identity {
	skips := ms.store.skipping.skipsName()
	ms.store.mu.RLock()
	defer ms.store.mu.RUnlock()
	i := identity{ID: ms.store.cfg.ID, Cluster: ms.store.head.Cluster, Applied: ms.store.head.Applied, Feature: ms.store.keeper.agrees(), Knows: ms.store.cfg.Features, Program: ms.store.cfg.Program, Skips: skips, Window: windowBounds{ms.store.cfg.DedupeAge, ms.store.cfg.DedupeCount}}
	i.Room, i.Seq = ms.store.disks.space.own.Load(), ms.store.head.Seq
	if r := ms.store.raft.Load(); r != nil {
		i.Last, i.Term, i.Leader, i.Stalled = r.LastIndex(), r.CurrentTerm(), ms.store.lead.leaderAddress(), ms.store.disks.stalled() != nil
	}
	for _, m := range ms.store.head.Conf.Servers {
		i.Members = append(i.Members, string(m.ID))
	}
	return i
}

// knows returns the highest feature version that the server's program knows.
func (i *identity) knows() uint32 { return max(i.Knows, i.Feature) }

// last returns the end of the server's raft log, as far as it reported that.
func (i *identity) last() uint64 { return max(i.Last, i.Applied) }

// identityOf asks the server at address for its identity.
func (ms *Membership) identityOf(ctx context.Context, address string) (i identity, err error) {
	if address == ms.store.Address() {
		return ms.identity(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityWait)
	defer cancel()
	answer, err := ms.store.endpoint.callPeer(ctx, address, askIdentity, nil)
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(answer, &i); err != nil {
		return i, fmt.Errorf("identity of %s: %w", address, err)
	}
	return i, nil
}

// AddNonvoter adds the server id at address as a follower without a vote. It does not
// count for a quorum, and can be promoted when it has caught up.
func (ms *Membership) AddNonvoter(ctx context.Context, id, address string) error {
	if id == "" || address == "" {
		return fmt.Errorf("raftstore: add member %q at %q: want an id and an address", id, address)
	}
	return ms.admin(ctx, adminRequest{Do: "add-nonvoter", Member: Member{ID: id, Address: address}})
}

// Promote gives a vote to the server id, which follows without one. Errors:
// ErrNotCaughtUp, ErrNoLeader and raft's.
func (ms *Membership) Promote(ctx context.Context, id string) error {
	return ms.admin(ctx, adminRequest{Do: "promote", Member: Member{ID: id}})
}

// checkNewcomer refuses a server that does not answer, has another id than named, belongs
// to another cluster, or could not read the log. A voter that does not answer would count
// for the quorum at once, and a cluster of one server would stop.
func (ms *Membership) checkNewcomer(ctx context.Context, m Member) error {
	i, err := ms.identityOf(ctx, m.Address)
	if err != nil {
		return fmt.Errorf("server %s does not answer at %s, start it first: %w", m.ID, m.Address, err)
	}
	ms.store.mu.RLock()
	h := ms.store.head
	ms.store.mu.RUnlock()
	switch {
	case i.ID != m.ID:
		return fmt.Errorf("the server at %s is called %q, not %q: look at its --id", m.Address, i.ID, m.ID)
	case !i.Cluster.IsZero() && i.Cluster != h.Cluster:
		return fmt.Errorf("server %s belongs to cluster %s, and this is %s: give it an empty data folder", m.ID, i.Cluster, h.Cluster)
	case !i.Cluster.IsZero() && i.Skips != ms.store.skipping.skipsName():
		return fmt.Errorf("server %s has not skipped what this cluster was taken past: compare rutter cluster skip --data DIR --list on both, or give it an empty data folder", m.ID)
	case i.knows() < h.Feature:
		return fmt.Errorf("server %s knows feature version %d, and the cluster is at %d: upgrade it first", m.ID, i.knows(), h.Feature)
	}
	return i.checkWindow(&ms.store.cfg)
}

// checkRemoval refuses to remove a voter if less than a majority of the remaining voters
// answers: neither the removal nor anything after it could be committed.
func (ms *Membership) checkRemoval(ctx context.Context, r *raft.Raft, id string) error {
	var left, answering int
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if m.Suffrage != raft.Voter || string(m.ID) == id {
			continue
		}
		left++
		if _, err := ms.identityOf(ctx, string(m.Address)); err == nil {
			answering++
		}
	}
	if left == 0 {
		return errors.New("it is the last server with a vote: stop it instead")
	}
	if answering <= left/2 {
		return fmt.Errorf("%d of the %d voters that would be left answer, which is no majority: bring one back, or add a server, first", answering, left)
	}
	return nil
}

// promoteLocal is Promote on the leader.
func (ms *Membership) promoteLocal(ctx context.Context, r *raft.Raft, id string) error {
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) != id {
			continue
		}
		if m.Suffrage == raft.Voter {
			return nil
		}
		at := Member{ID: id, Address: string(m.Address)}
		if err := ms.checkNewcomer(ctx, at); err != nil {
			return err
		}
		i, err := ms.identityOf(ctx, at.Address)
		if err != nil {
			return err
		}
		if head := ms.store.appliedIndex(); i.Cluster.IsZero() || i.Applied+maxStagedLag < head {
			return fmt.Errorf("%s is at raft index %d of %d: %w", id, i.Applied, head, ErrNotCaughtUp)
		}
		return awaitFuture(ctx, r.AddVoter(m.ID, m.Address, 0, enqueueTimeout))
	}
	return fmt.Errorf("%q is no member of the cluster: see its status for their ids", id)
}

// stage requests a vote for this server, which has joined, until the leader finds that it
// has caught up. If the server stops before, nothing is lost: it follows, and an operator
// or its next start (wantsVote) can promote it.
func (ms *Membership) stage(ctx context.Context) {
	for {
		try, cancel := context.WithTimeout(ctx, ms.store.cfg.ProposeTimeout)
		err := ms.Promote(try, ms.store.cfg.ID)
		cancel()
		if err == nil {
			ms.store.logger.Info("has a vote now")
			if err := joining.Forget(ms.store.cfg.Dir); err != nil {
				ms.store.logger.Warn("the note that this server joins for a vote stays; a start of a voter ignores it", "error", err)
			}
			return
		}
		ms.store.logger.Debug("no vote yet", "because", err)
		timer := time.NewTimer(stagedPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// mayJoin reports whether a server with Join set still has to join, or to get its vote. A
// server that was removed does not come back by a restart: an operator must add it again.
func (ms *Membership) mayJoin() bool {
	ms.store.mu.RLock()
	servers := ms.store.head.Conf.Servers
	ms.store.mu.RUnlock()
	if ms.fresh || len(servers) == 0 {
		return true
	}
	for _, m := range servers {
		if string(m.ID) == ms.store.cfg.ID {
			return m.Suffrage != raft.Voter
		}
	}
	ms.store.logger.Warn("this server was removed from its cluster and does not join again by itself: use rutter cluster join, or empty its data folder")
	return false
}

// wantsVote reports whether this server, which joins, asks for a vote once it has caught
// up. A server with an empty folder does so unless it is started as a replica, and notes it
// in the folder. A later start that finds a server without a vote and without that note
// asks for none: an operator made it a replica.
func (ms *Membership) wantsVote() (bool, error) {
	dir := ms.store.cfg.Dir
	ms.store.mu.RLock()
	empty := len(ms.store.head.Conf.Servers) == 0
	ms.store.mu.RUnlock()
	if ms.store.cfg.NonVoter {
		return false, joining.Forget(dir)
	}
	if ms.fresh || empty {
		return true, joining.Note(dir)
	}
	noted, err := joining.Noted(dir)
	if err == nil && !noted {
		ms.store.logger.Info("this server is a replica: it follows without a vote until rutter cluster promote gives it one")
	}
	return noted, err
}

// replica watches how far a server without a vote is behind the leader.
type replica struct {
	store *Store
	meter *lag.Meter
}

// run asks the leader for its position, and judges this server by the answers, until ctx
// is done.
func (p *replica) run(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(p.meter.Every())
	defer tick.Stop()
	for {
		if p.follows(r) {
			p.look(ctx, r)
		} else if p.meter.Reset(time.Now()) {
			p.store.logger.Info("this server has a vote: its lag no longer counts")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follows reports whether this server is a member without a vote.
func (p *replica) follows(r *raft.Raft) bool {
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) == p.store.cfg.ID {
			return m.Suffrage != raft.Voter
		}
	}
	return false
}

// look asks once. While the cluster has no leader, its log does not move, and no server is
// behind. That there is none, voters say: replicas that are cut off together know no leader
// either. A server that no voter answers is cut off, and its lag grows.
func (p *replica) look(ctx context.Context, r *raft.Raft) {
	begun := time.Now()
	if address := p.store.lead.leaderAddress(); address != "" {
		if i, err := p.store.members.identityOf(ctx, address); err == nil {
			p.meter.Observed(begun, i.Seq)
		}
	} else if noLeader(p.store.members.reports(ctx, r)) {
		p.meter.Observed(begun, p.store.Head().Seq)
	}
	if ctx.Err() != nil || !p.meter.Judge(time.Now(), p.store.Head().Seq) {
		return
	}
	if err := p.store.Lagging(); err != nil {
		p.store.logger.Warn("this replica is not ready, and sends its nodes to other servers", "because", err)
	} else {
		p.store.logger.Info("this replica has caught up, and serves again")
	}
}

// noLeader reports whether a voter answered, and none that answered knows a leader.
func noLeader(others []memberReport) bool {
	voters := false
	for i := range others {
		if others[i].Leader != "" {
			return false
		}
		voters = voters || others[i].voter
	}
	return voters
}

// Lagging returns an error that wraps ErrLagging while this server has no vote and is too
// far behind the leader, else nil. Nodes that follow it must go to another server.
func (s *Store) Lagging() error {
	st := s.replica.meter.Status()
	if !st.Over {
		return nil
	}
	bound := s.replica.meter.Bound()
	return fmt.Errorf("%w: it was %v behind the leader, over %v, and is asked again when it has been within %v for %v: look at its disk and at its way to the leader", ErrLagging, st.Lag.Round(100*time.Millisecond), bound, bound/2, bound/2)
}

// checkFounding refuses to begin a new cluster beside a running one. Otherwise servers
// with the empty folder of a replaced machine and the old list of members would agree on
// an empty log. Members that do not answer count as new.
func (ms *Membership) checkFounding(ctx context.Context) error {
	type answer struct {
		from Member
		is   identity
		err  error
	}
	answers := make(chan answer, len(ms.store.cfg.InitialMembers))
	asked := 0
	for _, m := range ms.store.cfg.InitialMembers {
		if m.ID == ms.store.cfg.ID {
			continue
		}
		if ms.store.tasks.Start(func() {
			i, err := ms.identityOf(ctx, m.Address)
			answers <- answer{m, i, err}
		}) {
			asked++
		}
	}
	for range asked {
		a := <-answers
		if a.err != nil || a.is.Cluster.IsZero() || len(a.is.Members) == 0 {
			continue
		}
		known := false
		for _, id := range a.is.Members {
			known = known || id == ms.store.cfg.ID
		}
		if !known {
			return fmt.Errorf("server %s belongs to cluster %s, which does not know %s: to add this server to it, give its address to join in place of the list of peers", a.from.ID, a.is.Cluster, ms.store.cfg.ID)
		}
	}
	return nil
}
