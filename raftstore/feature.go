package raftstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// raiseFeature raises the replicated feature version to what every member says
// that it knows, the ones without a vote included: whoever does not answer may
// not know it. Until then a newer program behaves as the older ones do, and can
// be taken back.
func (s *Store) raiseFeature(ctx context.Context, r *raft.Raft) error {
	s.mu.RLock()
	current := s.head.feature
	s.mu.RUnlock()
	version := s.cfg.features
	if !s.leading() || version <= current {
		return nil
	}
	for _, m := range r.GetConfiguration().Configuration().Servers {
		i, err := s.identityOf(ctx, string(m.Address))
		if err != nil || i.Feature <= current {
			return nil // it is asked again later
		}
		version = min(version, i.Feature)
	}
	future := r.Apply(binary.BigEndian.AppendUint32([]byte{commandFeature}, version), enqueueTimeout)
	if err := awaitFuture(ctx, future); err != nil {
		return fmt.Errorf("raise the feature version to %d: %w", version, err)
	}
	s.logger.Info("feature version raised", "from", current, "to", version)
	return nil
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
	s.applier.head.feature = max(s.applier.head.feature, version)
	return nil
}
