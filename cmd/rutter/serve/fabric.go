package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"rutter/api/liveness"
	"rutter/api/reach"
	"rutter/cmd/rutter/storeapi"
	"rutter/raftstore"
)

// newFabric returns the collector of the sessions of all servers.
func newFabric(store storeapi.Store, logger *slog.Logger) (*liveness.Fabric, *liveness.Table, error) {
	table := liveness.NewTable(uint64(time.Now().UnixNano()), time.Now)
	fabric, err := liveness.New(liveness.Config{
		Store: store, Peers: peersAdapter{store.Store}, Table: table, Logger: logger,
		NewID: store.NewID,
	})
	if err != nil {
		return nil, nil, err
	}
	return fabric, table, nil
}

// peersAdapter adapts the store to liveness.Peers.
type peersAdapter struct{ *raftstore.Store }

// Self implements liveness.Peers.
func (a peersAdapter) Self() string { return a.Store.ID() }

// Members implements liveness.Peers.
func (a peersAdapter) Members() (members []liveness.Member) {
	for _, m := range a.Store.Status().Members {
		members = append(members, liveness.Member{ID: m.ID, Address: m.Address})
	}
	return members
}

// Ask implements liveness.Peers.
func (a peersAdapter) Ask(ctx context.Context, address string, request []byte) ([]byte, error) {
	answer, err := a.Store.Ask(ctx, address, request)
	if errors.Is(err, raftstore.ErrNoLeader) {
		return nil, fmt.Errorf("%w: %w", liveness.ErrNoLeader, err)
	}
	return answer, err
}

// newGate returns what decides at which addresses servers reach compute nodes.
func newGate(store storeapi.Store, networks []netip.Prefix) *reach.Gate {
	return reach.New(reach.Config{View: store.View, Networks: networks, Servers: func() (servers []netip.Addr) {
		for _, m := range (peersAdapter{store.Store}).Members() {
			if at, err := netip.ParseAddrPort(m.Address); err == nil {
				servers = append(servers, at.Addr().Unmap())
			}
		}
		return servers
	}})
}
