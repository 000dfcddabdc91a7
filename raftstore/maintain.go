package raftstore

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/changesdb"
)

// indexEvery is how often the index of the past is continued: what came
// since is looked through by each reader of the past.
const indexEvery = 5 * time.Second

// runUpkeep looks after retention and checkpoints until ctx is done.
func (s *Store) runUpkeep(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(s.cfg.UpkeepEvery)
	defer tick.Stop()
	index := time.NewTicker(min(s.cfg.UpkeepEvery, indexEvery))
	defer index.Stop()
	var known time.Time // see raiseFeature
	for {
		select {
		case <-index.C:
			if s.Serving() == nil && s.failure() == nil {
				if err := s.indexer.Build(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, changesdb.ErrEpoch) && !errors.Is(err, ErrNoRoom) {
					s.logger.Warn("upkeep of the index", "error", err)
				}
			}
			continue
		case <-tick.C:
		case <-s.room.upkeep:
		case <-ctx.Done():
			return
		}
		if s.Serving() != nil || s.failure() != nil {
			continue
		}
		var err error
		if known, err = s.raiseFeature(ctx, r, known); err == nil {
			err = s.moveFloor(ctx, r)
		}
		if err == nil {
			err = s.upkeep.Maintain(ctx)
		}
		if err == nil {
			err = s.indexer.Drop(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, changesdb.ErrEpoch) && !errors.Is(err, ErrNoRoom) {
			s.logger.Warn("upkeep of the log", "error", err)
		}
	}
}

// objectCount is how many objects there are, as far as was applied.
func (s *Store) objectCount() int {
	s.applier.mu.Lock()
	defer s.applier.mu.Unlock()
	return s.state.Len()
}
