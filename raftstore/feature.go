package raftstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/command"
)

// raiseFeature raises the replicated feature version to what every member says
// that it knows, the ones without a vote included: whoever does not answer may
// not know it. Until then a newer program behaves as the older ones do, and can
// be taken back; and for Config.FeatureSettle after that, since an upgrade that
// went wrong is often seen only when it is done. since is when all were first
// found to know a higher one, without a break; it is returned as it then is.
func (g *keeper) raiseFeature(ctx context.Context, r *raft.Raft, since time.Time) (time.Time, error) {
	g.store.mu.RLock()
	current := g.store.head.Feature
	g.store.mu.RUnlock()
	version := g.store.cfg.features
	if !g.store.lead.leading() || version <= current {
		return time.Time{}, nil
	}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		i, err := g.store.members.identityOf(ctx, string(m.Address))
		if err != nil || i.Feature <= current {
			return time.Time{}, nil // it is asked again later
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

// becomeOfFeature makes the state decide by a feature version from now on.
// The caller is the FSM's goroutine.
func (a *applier) becomeOfFeature(version uint32) {
	if a.head.Feature < log.FeatureContained && version >= log.FeatureContained {
		a.window.BecomeContained(a.head.Time)
	}
	a.head.Feature = version
	a.store.mu.Lock()
	a.store.state.SetFeature(version)
	a.store.mu.Unlock()
}

// applyFeature takes a new feature version; it never goes back.
func (a *applier) applyFeature(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("feature version of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	version := binary.BigEndian.Uint32(data)
	if version > a.store.cfg.features {
		return fmt.Errorf("the cluster is of feature version %d, and this program knows %d: upgrade it: %w", version, a.store.cfg.features, log.ErrFormat)
	}
	a.becomeOfFeature(max(a.head.Feature, version))
	return nil
}
