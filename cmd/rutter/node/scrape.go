package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/localhttp"
)

// Scrape is where a Prometheus on another machine reads the node's metrics.
type Scrape struct {
	// Address is that of the listener. "" and "off": there is none.
	Address string
	// Readers are the names of the readers whose certificates are accepted, beside those of
	// operators: the metrics name VMs of all tenants, and a reader may be limited to one.
	Readers []string
}

// need refuses whom Scrape does not name.
func (s Scrape) need(id matrix.Identity) error {
	if id.Role == matrix.Operator || id.Role == matrix.Reader && slices.Contains(s.Readers, id.Name) {
		return nil
	}
	return fmt.Errorf("%w: %s; wanted is an operator, or a reader that --metrics-reader names (%q)", pki.ErrRole, id.Actor(), s.Readers)
}

// serveScrapes serves GET /metrics, and nothing else, to programs on other machines.
func (n *Node) serveScrapes(ctx context.Context, g *errgroup.Group) error {
	s := n.opts.Scrape
	if !enabled(s.Address) {
		return nil
	}
	listener, err := listenFreely(ctx, s.Address)
	if err != nil {
		return fmt.Errorf("metrics: %w (--metrics off, if another daemon holds the port)", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.metrics)
	secured := n.opts.Servers.secured(listener, tlsgate.Port{Name: "metrics", Need: s.need})
	g.Go(func() error { return localhttp.Serve(ctx, mux, secured) })
	return nil
}

// listenFreely listens at an address that this machine may get later (IP_FREEBIND, ip(7)).
func listenFreely(ctx context.Context, address string) (net.Listener, error) {
	freely := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		var failed error
		err := socket.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, failed)
	}}
	return freely.Listen(ctx, "tcp", address)
}
