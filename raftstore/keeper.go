package raftstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/consent"
	"rutter/raftstore/internal/metarow"
)

// indexEvery is the time between two extensions of the index of the past. Each reader of
// the past has to scan the entries that came since.
const indexEvery = 5 * time.Second

// keeper does the upkeep: the floor, checkpoints, the index of the past, and the feature
// version.
type keeper struct {
	store   *Store
	upkeep  *changesdb.Upkeep
	indexer *history.Indexer
	consent atomic.Uint32 // the feature version that an operator agreed to; 0: none
}

// runUpkeep runs the upkeep until ctx is done.
func (g *keeper) runUpkeep(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(g.store.cfg.UpkeepEvery)
	defer tick.Stop()
	index := time.NewTicker(min(g.store.cfg.UpkeepEvery, indexEvery))
	defer index.Stop()
	var known time.Time // see raiseFeature
	for {
		select {
		case <-index.C:
			if g.store.Serving() == nil && g.store.failure() == nil {
				if err := g.indexer.Build(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, changesdb.ErrEpoch) && !errors.Is(err, ErrNoRoom) {
					g.store.logger.Warn("upkeep of the index", "error", err)
				}
			}
			continue
		case <-tick.C:
		case <-g.store.disks.space.upkeep:
		case <-ctx.Done():
			return
		}
		if g.store.Serving() != nil || g.store.failure() != nil {
			continue
		}
		var err error
		if known, err = g.raiseFeature(ctx, r, known); err == nil {
			err = g.moveFloor(ctx, r)
		}
		if err == nil {
			err = g.upkeep.Maintain(ctx)
		}
		if err == nil {
			err = g.indexer.Drop(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, changesdb.ErrEpoch) && !errors.Is(err, ErrNoRoom) {
			g.store.logger.Warn("upkeep of the log", "error", err)
		}
	}
}

// objectCount returns the number of objects in the applied state.
func (g *keeper) objectCount() int {
	g.store.applier.mu.Lock()
	defer g.store.applier.mu.Unlock()
	return g.store.state.Len()
}

// Retention is how much of the log a cluster keeps. It is replicated. The zero value
// means the default, changesdb.DefaultRetention.
type Retention = changesdb.Retention

// SetRetention changes the retention of the cluster. Any server takes the call.
func (s *Store) SetRetention(ctx context.Context, r Retention) error {
	if err := s.checkRetention(r); err != nil {
		return err
	}
	return s.members.admin(ctx, adminRequest{Do: "retention", Retention: &r})
}

func (s *Store) checkRetention(r Retention) error {
	if r.Age < 0 || r.Events == 0 || r.Bytes == 0 || r.Bytes > uint64(s.cfg.MapBytes)/2 {
		return fmt.Errorf("raftstore: retention of %v, %d events, %d bytes: want an age, at least one event, and from 1 to %d bytes", r.Age, r.Events, r.Bytes, s.cfg.MapBytes/2)
	}
	return nil
}

// RetentionPlan is the effect that a retention would have on this server's file now.
type RetentionPlan struct {
	Retention Retention
	Head      log.Seq
	Floor     log.Seq  // entries after it are kept
	Oldest    log.Time // of the first kept entry; 0 if there is none
	Bytes     uint64   // in use in changes.db
	Next      log.Seq  // where the floor would go now; Floor if it stays
	NextTime  log.Time // of the last entry that would be dropped; 0 if none would
}

// PlanRetention returns which entries r would drop now, and changes nothing. nil means
// the cluster's present retention.
func (s *Store) PlanRetention(r *Retention) (p RetentionPlan, err error) {
	if r != nil {
		if err := s.checkRetention(*r); err != nil {
			return p, err
		}
	}
	now, err := s.times.clock.Sure()
	if err != nil {
		return p, err
	}
	err = s.files.View(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		p = RetentionPlan{Retention: h.Retention.OrDefault(), Head: h.Seq, Floor: h.Floor, Next: h.Floor, Bytes: changesdb.UsedBytes(tx)}
		if r != nil {
			p.Retention = *r
		}
		if p.Oldest, err = changesdb.TimeOf(tx, h.Floor+1, h.Seq); err != nil {
			return err
		}
		to, err := changesdb.WantedFloor(tx, r, now)
		if err != nil || to.Seq == 0 {
			return err
		}
		p.Next = to.Seq
		p.NextTime, err = changesdb.TimeOf(tx, to.Seq, h.Seq)
		return err
	})
	return p, err
}

// setRetentionLocal is SetRetention on the leader.
func (g *keeper) setRetentionLocal(ctx context.Context, r *raft.Raft, want *Retention) error {
	if want == nil {
		return errors.New("retention: nothing to set")
	}
	if !g.store.comparison.allKnow(command.Retention, r.GetConfiguration().Configuration().Servers) {
		return errors.New("retention: not all members were heard to know this command: upgrade them, or wait until they are back")
	}
	return awaitFuture(ctx, r.Apply(append([]byte{command.Retention}, want.Encode()...), enqueueTimeout))
}

func (a *applier) applyRetention(data []byte) error {
	if len(data) < changesdb.RetentionBytes {
		return fmt.Errorf("retention of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	a.head.Retention = changesdb.ReadRetention(&metarow.Reader{Rest: data})
	return nil
}

// applyFloor moves the floor, never back. The rows are deleted later, in small
// transactions.
func (a *applier) applyFloor(data []byte) error {
	if len(data) < 8+len(log.Hash{}) {
		return fmt.Errorf("floor of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	r := metarow.Reader{Rest: data}
	seq := log.Seq(r.U64())
	if seq > a.head.Seq {
		return fmt.Errorf("floor at %d, beyond the head at %d: %w", seq, a.head.Seq, log.ErrCorrupt)
	}
	if seq > a.head.Floor {
		a.head.Floor, a.head.FloorHash = seq, log.Hash(r.Take(len(log.Hash{})))
	}
	return nil
}

// moveFloor proposes a new floor if enough entries can be dropped. Only the leader does
// so. It reads its own file, so the rows that it names exist.
func (g *keeper) moveFloor(ctx context.Context, r *raft.Raft) error {
	if !g.store.lead.leading() || !g.store.comparison.allKnow(command.Floor, r.GetConfiguration().Configuration().Servers) {
		return nil
	}
	now, err := g.store.times.clock.Sure()
	if err != nil {
		return err // a clock that may be wrong must not drop history
	}
	var to changesdb.Slot
	err = g.store.files.View(func(tx *bbolt.Tx) error {
		to, err = changesdb.WantedFloor(tx, nil, now)
		return err
	})
	if err != nil || to.Seq == 0 {
		return err
	}
	if err := awaitFuture(ctx, r.Apply(command.EncodeFloor(to.Seq, to.Hash), enqueueTimeout)); err != nil {
		return fmt.Errorf("move the floor to %d: %w", to.Seq, err)
	}
	g.store.logger.Info("the floor moves", "floor", to.Seq)
	return nil
}

// raiseFeature raises the replicated feature version to the highest that all members
// report to know, members without a vote included. A member that does not answer may not
// know it. Until the version is raised, a newer program behaves like the older ones, and
// can be taken back. The version is raised only after Config.FeatureSettle, because a bad
// upgrade is often noticed only when it is complete. since is the time from which on all
// members were known to know a higher version, without a break; raiseFeature returns it
// updated.
func (g *keeper) raiseFeature(ctx context.Context, r *raft.Raft, since time.Time) (time.Time, error) {
	g.store.mu.RLock()
	current, version := g.store.head.Feature, g.agrees()
	g.store.mu.RUnlock()
	if !g.store.lead.leading() || version <= current {
		return time.Time{}, nil
	}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		i, err := g.store.members.identityOf(ctx, string(m.Address))
		if err != nil || i.Feature <= current {
			return time.Time{}, nil // asked again in the next round
		}
		if err := i.checkWindow(&g.store.cfg); err != nil {
			return time.Time{}, err
		}
		version = min(version, i.Feature)
	}
	if since.IsZero() {
		since = g.store.cfg.Now()
		g.store.logger.Info("every server knows a higher feature version: the upgrade can be taken back until it is raised", "from", current, "to", version, "in", g.store.cfg.FeatureSettle)
	}
	if g.store.cfg.Now().Sub(since) < g.store.cfg.FeatureSettle {
		return since, nil
	}
	future := r.Apply(binary.BigEndian.AppendUint32([]byte{command.Feature}, version), enqueueTimeout)
	if err := awaitFuture(ctx, future); err != nil {
		return since, fmt.Errorf("raise the feature version to %d: %w", version, err)
	}
	g.store.logger.Info("feature version raised", "from", current, "to", version)
	return time.Time{}, nil
}

// becomeOfFeature makes the state decide by a feature version from here on. The caller is
// the FSM's goroutine.
func (a *applier) becomeOfFeature(version uint32) {
	if a.head.Feature < log.FeatureContained && version >= log.FeatureContained {
		a.window.BecomeContained(a.head.Time)
	}
	a.head.Feature = version
	a.store.mu.Lock()
	a.store.state.SetFeature(version)
	a.store.mu.Unlock()
}

// applyFeature sets a new feature version, never a lower one.
func (a *applier) applyFeature(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("feature version of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	version := binary.BigEndian.Uint32(data)
	if version > a.store.cfg.Features {
		return fmt.Errorf("the cluster is of feature version %d, and this program knows %d: upgrade it: %w", version, a.store.cfg.Features, log.ErrFormat)
	}
	a.becomeOfFeature(max(a.head.Feature, version))
	return nil
}

// agrees returns the highest feature version that this server agrees to now. The caller
// holds the store's lock.
func (g *keeper) agrees() uint32 {
	if head := &g.store.head; g.store.cfg.FeatureManual && !head.Cluster.IsZero() {
		return max(head.Feature, min(g.consent.Load(), g.store.cfg.Features))
	}
	return g.store.cfg.Features
}

func (g *keeper) loadConsent() error {
	version, err := consent.Load(g.store.cfg.Dir)
	g.consent.Store(version)
	return err
}

// giveConsent lets this server agree to a feature version. It stays so after a restart.
func (g *keeper) giveConsent(version uint32) error {
	if version > g.store.cfg.Features {
		return fmt.Errorf("server %s knows feature version %d, not %d: upgrade it first", g.store.cfg.ID, g.store.cfg.Features, version)
	}
	if err := consent.Save(g.store.cfg.Dir, version); err != nil {
		return fmt.Errorf("server %s: %w", g.store.cfg.ID, err)
	}
	g.consent.Store(version)
	g.store.logger.Info("an operator agrees to a feature version", "version", version)
	return nil
}

// ServerFeatures is what one server knows and agrees to.
type ServerFeatures struct {
	Member
	Program string `json:"program,omitempty"` // version of its program; "" if it does not report it
	Knows   uint32 `json:"knows"`             // the highest feature version
	Agrees  uint32 `json:"agrees"`            // to at most this version now
	Error   string `json:"error,omitempty"`   // it did not answer
}

// Features returns what each member knows now, and the version that the cluster has. A
// member that does not answer within a second has an error.
func (ms *Membership) Features(ctx context.Context) (cluster uint32, servers []ServerFeatures) {
	ms.store.mu.RLock()
	cluster = ms.store.head.Feature
	members := ms.store.head.Conf.Servers
	ms.store.mu.RUnlock()
	servers = make([]ServerFeatures, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		asked.Go(func() {
			servers[i].Member = Member{ID: string(m.ID), Address: string(m.Address)}
			who, err := ms.identityOf(ctx, string(m.Address))
			if err != nil {
				servers[i].Error = err.Error()
				return
			}
			servers[i].Program, servers[i].Knows, servers[i].Agrees = who.Program, who.knows(), who.Feature
		})
	}
	asked.Wait()
	return cluster, servers
}

// Finalize ends the time in which an upgrade can be taken back: every server agrees to
// the highest feature version that all of them know, and the cluster has it when Finalize
// returns. Any server takes the call. It is refused if a member does not answer, because
// that one may know less.
func (ms *Membership) Finalize(ctx context.Context) error {
	return ms.admin(ctx, adminRequest{Do: "finalize"})
}

// finalizeLocal is Finalize on the leader.
func (ms *Membership) finalizeLocal(ctx context.Context, r *raft.Raft) error {
	current, servers := ms.Features(ctx)
	version, highest, least := uint32(math.MaxUint32), current, ""
	for _, s := range servers {
		if s.Error != "" {
			return fmt.Errorf("finalize: server %s does not answer, and may know less: start it, or remove it: %s", s.ID, s.Error)
		}
		if s.Knows < version {
			version, least = s.Knows, s.ID
		}
		highest = max(highest, s.Knows)
	}
	switch {
	case version <= current && highest > current:
		return fmt.Errorf("finalize: server %s knows feature version %d at most, and others %d: upgrade it first", least, version, highest)
	case version <= current:
		return nil // there is nothing higher
	}
	for _, s := range servers {
		if s.Agrees >= version {
			continue
		}
		if err := ms.askConsent(ctx, s.Member, version); err != nil {
			return fmt.Errorf("finalize: %w; run it again", err)
		}
	}
	if err := awaitFuture(ctx, r.Apply(binary.BigEndian.AppendUint32([]byte{command.Feature}, version), enqueueTimeout)); err != nil {
		return fmt.Errorf("raise the feature version to %d: %w", version, err)
	}
	ms.store.logger.Info("feature version raised", "from", current, "to", version, "by", "an operator")
	return nil
}

func (ms *Membership) askConsent(ctx context.Context, m Member, version uint32) error {
	if m.ID == ms.store.cfg.ID {
		return ms.store.keeper.giveConsent(version)
	}
	payload, err := json.Marshal(adminRequest{Do: "consent", Member: m, Feature: version})
	if err != nil {
		return err
	}
	_, err = ms.store.endpoint.callPeer(ctx, m.Address, askAdmin, payload)
	return err
}
