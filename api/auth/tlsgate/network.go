package tlsgate

import (
	"context"
	"fmt"
	"net"

	"rutter/api/auth/matrix"
)

// Network connects servers to each other's peer port. It accepts only servers, with
// certificates of the authorities of peers. It implements raftstore's Network.
type Network struct{ Keeper *Keeper }

// Listen opens the peer port.
func (n Network) Listen(address string) (net.Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	return n.Keeper.Listener(inner, Port{Name: "raft", Need: Role(matrix.Server)}), nil
}

// Dial connects to the peer port of another server.
func (n Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.Keeper.Dial(ctx, "tcp", address, Role(matrix.Server))
}
