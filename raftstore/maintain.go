package raftstore

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/history"
	"rutter/raftstore/internal/changesdb"
)

// indexEvery is how often the index of the past is continued: what came
// since is looked through by each reader of the past.
const indexEvery = 5 * time.Second

// keeper looks after what grows: the floor, checkpoints, the index of the past, and the
// feature version.
type keeper struct {
	store   *Store
	upkeep  *changesdb.Upkeep
	indexer *history.Indexer
}

// runUpkeep looks after retention and checkpoints until ctx is done.
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
		case <-g.store.disks.room.upkeep:
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

// objectCount is how many objects there are, as far as was applied.
func (g *keeper) objectCount() int {
	g.store.applier.mu.Lock()
	defer g.store.applier.mu.Unlock()
	return g.store.state.Len()
}
