package serve

import (
	"context"
	"log/slog"
	"time"

	"rutter/cmd/rutter/serviceaddr"
	"rutter/raftstore"
)

// addressLeader implements serviceaddr.Leader by the store.
type addressLeader struct{ store *raftstore.Store }

// Confirmed implements serviceaddr.Leader.
func (l addressLeader) Confirmed() (term uint64, at time.Time, others []string, ok bool) {
	c, ok := l.store.Confirmed()
	return c.Term, c.At, c.Others, ok
}

// Serves implements serviceaddr.Leader.
func (l addressLeader) Serves() bool {
	_, leads := l.store.Leading()
	return leads && l.store.Ready() == nil
}

// Moved implements serviceaddr.Leader.
func (l addressLeader) Moved() <-chan struct{} { return l.store.LeaderMoved() }

// HandOver implements serviceaddr.Leader.
func (l addressLeader) HandOver(ctx context.Context) error {
	if _, leads := l.store.Leading(); !leads {
		return nil
	}
	return l.store.Members().Transfer(ctx, "")
}

// newServiceAddresses makes the service of a server's addresses; nil if it has none.
func newServiceAddresses(addresses []serviceaddr.Address, store *raftstore.Store, logger *slog.Logger) *serviceaddr.Service {
	if len(addresses) == 0 {
		return nil
	}
	return serviceaddr.New(serviceaddr.Config{Addresses: addresses, Leader: addressLeader{store}, Logger: logger})
}
