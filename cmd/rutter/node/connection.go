package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/trust"
	"rutter/log"
)

// certificateEvery is the time between two tries to read certificate files that could
// not be used.
const certificateEvery = time.Second

// certificate is a node's TLS certificate and the authorities that it trusts. A node
// works without its certificate (architecture rule 7). If the certificate is missing,
// unreadable or expired, the status reports it, and the node tries to read the files
// until it succeeds.
type certificate struct {
	cn     log.UUID
	paths  tlsgate.Paths
	logger *slog.Logger
	ready  chan struct{} // closed when keeper is set

	mu     sync.Mutex // protects what follows
	keeper *tlsgate.Keeper
	err    error // why there is no keeper
}

var (
	errNoCertificate = errors.New("the certificate cannot be used")
	errOtherNode     = errors.New("the certificate is of another node")
)

// Connection is a compute node's connection to the servers: a client, and the
// certificate that it shows.
type Connection struct {
	API *client.Client
	// renewal has connections that only renew the certificate, after its end too; nil:
	// without TLS.
	renewal *client.Client
	tls     *certificate // nil: without TLS
}

// Connect makes the connection of compute node cn to servers. paths are the files of
// its certificate; nil: no TLS. If the certificate cannot be used, the node tries to
// read it while it runs. A certificate of another node is refused.
func Connect(cn log.UUID, servers []string, files *tlsgate.Paths, logger *slog.Logger) (*Connection, error) {
	cfg, c := client.Config{Servers: servers}, new(Connection)
	if files != nil {
		c.tls = &certificate{cn: cn, paths: *files, logger: logger, ready: make(chan struct{})}
		if c.tls.open(); errors.Is(c.tls.err, errOtherNode) {
			return nil, term.UsageError{Err: c.tls.err}
		}
		cfg.DialTLS, cfg.Unwelcome = c.tls.dialRenewal, c.tls.unwelcome
		var err error
		if c.renewal, err = term.OpenClient(cfg, nil); err != nil {
			return nil, err
		}
		cfg.DialTLS, cfg.Unwelcome = c.tls.dial, nil // its feed goes on
	}
	var err error
	c.API, err = term.OpenClient(cfg, nil)
	return c, err
}

// open reads the files, unless they were read already.
func (t *certificate) open() {
	keeper, err := tlsgate.New(tlsgate.Config{Paths: t.paths, Name: pki.Clients, Logger: t.logger, Ended: true})
	if err == nil {
		if id := keeper.Identity(); id.Role != matrix.CN || id.UUID != t.cn {
			err = fmt.Errorf("%w: that in %s is of %s, and this is cn:%s: get its own (rutter agent join)", errOtherNode, t.paths.Cert, id.Actor(), t.cn)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.keeper, t.err = keeper, nil
		close(t.ready)
		if ends := keeper.Leaf().NotAfter; time.Now().After(ends) {
			t.logger.Error("the certificate has expired: this node works from its cache and follows no server until a server has renewed it, which is possible until renewable_until, or it joins again (rutter agent join); both are tried all the time", "file", t.paths.Cert, "ended", ends, "renewable_until", ends.Add(pki.Grace))
		}
		return
	}
	if t.err == nil || t.err.Error() != err.Error() {
		t.logger.Error("the certificate cannot be used: this node works from its cache and follows no server until there is one (rutter agent join); it is looked for all the time", "error", err)
	}
	t.err = err
}

// inUse returns the keeper of the files, or why they cannot be used.
func (t *certificate) inUse() (*tlsgate.Keeper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keeper == nil {
		return nil, fmt.Errorf("%w: %w", errNoCertificate, t.err)
	}
	return t.keeper, nil
}

func (t *certificate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	keeper, err := t.inUse()
	if err != nil {
		return nil, err
	}
	return keeper.Dial(ctx, network, address, tlsgate.Role(matrix.Server))
}

// dialRenewal is dial for the renewal of the certificate.
func (t *certificate) dialRenewal(ctx context.Context, network, address string) (net.Conn, error) {
	keeper, err := t.inUse()
	if err != nil {
		return nil, err
	}
	return keeper.DialRenewal(ctx, network, address, tlsgate.Role(matrix.Server))
}

// unwelcome says what to do if a server refuses a renewal because of a certificate.
func (t *certificate) unwelcome(err error) error {
	keeper, missing := t.inUse()
	if missing != nil {
		return nil
	}
	return keeper.Unwelcome(err)
}

// trouble returns the problem that an operator must mend, "" if there is none.
func (c *Connection) trouble() []string {
	if c.tls == nil {
		return nil
	}
	keeper, err := c.tls.inUse()
	if err != nil {
		return []string{err.Error() + ": renew it (rutter agent join)"}
	}
	return keeper.Warnings()
}

// run keeps the node's certificate renewed, in g, until ctx ends.
func (c *Connection) run(ctx context.Context, a *agent.Agent, logger *slog.Logger, g *errgroup.Group) {
	if c.tls == nil {
		return
	}
	g.Go(func() error {
		keeper, err := c.tls.await(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx ended before there was a certificate
		}
		renewer, err := tlsgate.NewRenewer(tlsgate.RenewConfig{Keeper: keeper, Jitter: trust.Jitter, Logger: logger, Ask: pkiclient.Renewal(c.renewal)})
		if err != nil {
			return err
		}
		follower := &trust.Follower{View: trust.OfAgent(a.Part), Keepers: map[string]*tlsgate.Keeper{pki.Clients: keeper}, Logger: logger}
		g.Go(func() error { return keeper.Run(ctx) })
		g.Go(func() error { return follower.Run(ctx) })
		return renewer.Run(ctx)
	})
}

// await tries to read the files until they can be used. Errors: ctx's.
func (t *certificate) await(ctx context.Context) (*tlsgate.Keeper, error) {
	look := time.NewTicker(certificateEvery)
	defer look.Stop()
	for {
		if keeper, err := t.inUse(); err == nil {
			return keeper, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
			t.open()
		}
	}
}

// secured accepts on listener only whom port accepts. Without TLS it accepts every client.
func (c *Connection) secured(listener net.Listener, port tlsgate.Port) net.Listener {
	if c.tls == nil {
		return listener
	}
	return &certificateListener{Listener: listener, tls: c.tls, port: port, closed: make(chan struct{})}
}

// certificateListener accepts connections only when there is a certificate to show.
type certificateListener struct {
	net.Listener
	tls     *certificate
	port    tlsgate.Port
	closing sync.Once
	closed  chan struct{}
	opening sync.Once
	secure  net.Listener
}

// Accept implements net.Listener.
func (l *certificateListener) Accept() (net.Conn, error) {
	select {
	case <-l.tls.ready:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	l.opening.Do(func() {
		l.secure = l.tls.keeper.Listener(l.Listener, l.port)
	})
	return l.secure.Accept()
}

// Close implements net.Listener.
func (l *certificateListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	select {
	case <-l.tls.ready:
		l.opening.Do(func() { l.secure = l.Listener })
		return l.secure.Close()
	default:
		return l.Listener.Close()
	}
}
