package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/api/client"
	"rutter/cmd/rutter/localhttp"
	"rutter/varp"
)

// agentConfig says how an agent runs.
type agentConfig struct {
	Agent       agent.Config
	API         *client.Client
	SVP, Status string // addresses, or off
	CNAPI       string // likewise, for servers
	SVPMaxAge   time.Duration
	VMs         *vmNode
	VMsAsked    bool // the vminfod's address was given
	Tasks       *nodeTasks
	Logger      *slog.Logger
	TLS         *agentTLS // nil: none
	Confine     func()    // called when the ports are open
}

// runAgent runs an agent with its SVP and its status until ctx ends.
func runAgent(ctx context.Context, cfg agentConfig) (err error) {
	a, err := agent.New(cfg.Agent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	failed := func(err error) error { // what runs already ends with it
		g.Go(func() error { return err })
		return g.Wait()
	}
	var svpStats func() varp.Stats
	if cfg.SVP != "off" {
		svp, err := newAgentSVP(a, cfg.SVPMaxAge, cfg.Logger)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", cfg.SVP)
		if err != nil {
			return fmt.Errorf("SVP: %w (--svp off, if another daemon holds the port)", err)
		}
		svpStats = svp.Stats
		g.Go(func() error { return svp.Run(ctx, listener) })
	}
	if cfg.Status != "off" {
		listener, err := net.Listen("tcp", cfg.Status)
		if err != nil {
			return failed(fmt.Errorf("status: %w (--listen off, if another daemon holds the port)", err))
		}
		g.Go(func() error { return localhttp.Serve(ctx, withSVP(nodeHandler(a, cfg.VMs), svpStats), listener) })
	}
	if cfg.VMs != nil {
		if err := cfg.VMs.serveServers(ctx, cfg.CNAPI, cfg.TLS, g); err != nil {
			return failed(err)
		}
		listener, err := cfg.VMs.vminfodListener(cfg.VMsAsked, cfg.Logger)
		if err != nil {
			return failed(err)
		}
		g.Go(func() error { return cfg.VMs.run(ctx, a, listener) })
	}
	cfg.TLS.run(ctx, a, cfg, g)
	if cfg.Tasks != nil {
		g.Go(func() error {
			return unending(ctx, "tasks", cfg.Logger, func(ctx context.Context) error { return cfg.Tasks.run(ctx, a) })
		})
	}
	cfg.Confine()
	g.Go(func() error { return a.Run(ctx) })
	return g.Wait()
}
