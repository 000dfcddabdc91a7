package tlsgate

import (
	"context"
	"fmt"
	"net"

	"rutter/api/auth/matrix"
)

// Network connects servers to each other's peer port. It accepts only servers, with
// certificates of the authorities of peers. It implements raftstore's Network.
type Network struct {
	Keeper *Keeper
	// Through makes the connections below TLS; nil: plain TCP of this machine.
	Through interface {
		Listen(address string) (net.Listener, error)
		Dial(ctx context.Context, address string) (net.Conn, error)
	}
}

// Listen opens the peer port.
func (n Network) Listen(address string) (net.Listener, error) {
	listen := func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	if n.Through != nil {
		listen = n.Through.Listen
	}
	inner, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	return n.Keeper.Listener(inner, Port{Name: "raft", Need: Role(matrix.Server)}), nil
}

// Dial connects to the peer port of another server.
func (n Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	if n.Through == nil {
		return n.Keeper.Dial(ctx, "tcp", address, Role(matrix.Server))
	}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return n.Through.Dial(ctx, address) }
	return n.Keeper.DialWith(ctx, dial, "tcp", address, Role(matrix.Server))
}
