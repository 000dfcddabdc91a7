package raftstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// other is what another member says of itself.
type other struct {
	identity
	address string
	voter   bool
}

// othersOf asks all other members who they are, and returns those that answer
// within handOverLook, in no order.
func (ms *Membership) othersOf(ctx context.Context, r *raft.Raft) (all []other) {
	ctx, cancel := context.WithTimeout(ctx, handOverLook)
	defer cancel()
	var mu sync.Mutex // protects all
	var asked sync.WaitGroup
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if string(m.ID) == ms.store.cfg.ID {
			continue
		}
		asked.Go(func() {
			i, err := ms.identityOf(ctx, string(m.Address))
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, other{i, string(m.Address), m.Suffrage == raft.Voter})
		})
	}
	asked.Wait()
	return all
}

// sortByLog puts those that have most of the log first.
func sortByLog(all []other) {
	slices.SortFunc(all, func(a, b other) int { return cmp.Or(cmp.Compare(b.last(), a.last()), cmp.Compare(a.ID, b.ID)) })
}
