package main

import (
	"context"
	"net"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/api/access"
	"rutter/api/client"
	"rutter/api/pki"
	"rutter/api/tlsgate"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// agentTLS is what an agent has of TLS: nil if it has none.
type agentTLS struct {
	keeper  *tlsgate.Keeper
	renewer *tlsgate.Renewer
}

// openAgentTLS reads the files that TLSFlags name, and makes the client of the
// servers, which is the agent's way to them with TLS or without.
func openAgentTLS(c *cli.Context, cn log.UUID, servers []string, cfg *agentConfig) (*client.Client, error) {
	paths, given, err := term.TLSPaths(c)
	if err != nil {
		return nil, err
	}
	if !given {
		return term.OpenClient(client.Config{Servers: servers}, nil)
	}
	t := new(agentTLS)
	if t.keeper, err = tlsgate.New(tlsgate.Config{Paths: paths, Name: pki.Clients, Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	if id := t.keeper.Identity(); id.Role != access.CN || id.UUID != cn {
		return nil, usagef("the certificate in %s is of %s, and this is cn:%s: get its own (rutter agent join)", paths.Cert, id.Actor(), cn)
	}
	api, err := term.OpenClient(client.Config{Servers: servers, DialTLS: term.DialServer(t.keeper)}, nil)
	if err != nil {
		return nil, err
	}
	t.renewer, err = tlsgate.NewRenewer(tlsgate.RenewConfig{
		Keeper: t.keeper, Jitter: jitter, Logger: cfg.Logger,
		Ask: certcmd.Renewal(api),
	})
	cfg.TLS = t
	return api, err
}

// run keeps the agent's certificate until ctx ends; t may be nil.
func (t *agentTLS) run(ctx context.Context, a *agent.Agent, cfg agentConfig, g *errgroup.Group) {
	if t == nil {
		return
	}
	follower := &trustFollower{view: a.View, keepers: map[string]*tlsgate.Keeper{pki.Clients: t.keeper}, logger: cfg.Logger}
	g.Go(func() error { return t.keeper.Run(ctx) })
	g.Go(func() error { return follower.run(ctx) })
	g.Go(func() error { return t.renewer.Run(ctx) })
}

// secured lets servers in over listener, and nobody else; t may be nil.
func (t *agentTLS) secured(listener net.Listener) net.Listener {
	if t == nil {
		return listener
	}
	return t.keeper.Listener(listener, tlsgate.Port{Name: "cn-api", Need: tlsgate.Role(access.Server)})
}
