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
func (s *Store) raiseFeature(ctx context.Context, r *raft.Raft, since time.Time) (time.Time, error) {
	s.mu.RLock()
	current := s.head.Feature
	s.mu.RUnlock()
	version := s.cfg.features
	if !s.leading() || version <= current {
		return time.Time{}, nil
	}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		i, err := s.identityOf(ctx, string(m.Address))
		if err != nil || i.Feature <= current {
			return time.Time{}, nil // it is asked again later
		}
		if err := i.checkWindow(&s.cfg); err != nil {
			return time.Time{}, err
		}
		version = min(version, i.Feature)
	}
	if since.IsZero() {
		since = s.cfg.Now()
		s.logger.Info("every server knows a higher feature version: the upgrade can be taken back until it is raised", "from", current, "to", version, "in", s.cfg.FeatureSettle)
	}
	if s.cfg.Now().Sub(since) < s.cfg.FeatureSettle {
		return since, nil
	}
	future := r.Apply(binary.BigEndian.AppendUint32([]byte{command.Feature}, version), enqueueTimeout)
	if err := awaitFuture(ctx, future); err != nil {
		return since, fmt.Errorf("raise the feature version to %d: %w", version, err)
	}
	s.logger.Info("feature version raised", "from", current, "to", version)
	return time.Time{}, nil
}

// becomeOfFeature makes the state decide by a feature version from now on.
// The caller is the FSM's goroutine.
func (s *Store) becomeOfFeature(version uint32) {
	if a := &s.applier; a.head.Feature < log.FeatureContained && version >= log.FeatureContained {
		a.window.BecomeContained(a.head.Time)
	}
	s.applier.head.Feature = version
	s.mu.Lock()
	s.state.SetFeature(version)
	s.mu.Unlock()
}

// applyFeature takes a new feature version; it never goes back.
func (s *Store) applyFeature(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("feature version of %d bytes: %w", len(data), log.ErrCorrupt)
	}
	version := binary.BigEndian.Uint32(data)
	if version > s.cfg.features {
		return fmt.Errorf("the cluster is of feature version %d, and this program knows %d: upgrade it: %w", version, s.cfg.features, log.ErrFormat)
	}
	s.becomeOfFeature(max(s.applier.head.Feature, version))
	return nil
}
