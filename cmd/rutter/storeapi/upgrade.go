package storeapi

import (
	"context"

	"rutter/api"
	"rutter/raftstore"
)

// Upgrader adapts the store's feature versions to api.Upgrader.
type Upgrader struct{ *raftstore.Membership }

// Features implements api.Upgrader.
func (u Upgrader) Features(ctx context.Context) api.ClusterFeatures {
	version, servers := u.Membership.Features(ctx)
	f := api.ClusterFeatures{Version: version}
	for _, s := range servers {
		f.Servers = append(f.Servers, api.ServerFeatures{ID: s.ID, Program: s.Program, Knows: s.Knows, Agrees: s.Agrees, Error: s.Error})
	}
	return f
}

// Finalize implements api.Upgrader.
func (u Upgrader) Finalize(ctx context.Context) error { return asAPI(u.Membership.Finalize(ctx)) }
