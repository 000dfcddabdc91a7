package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections"
)

// Agent makes one compute node match the log. Its methods but Run and Close may
// be called from any goroutine.
type Agent struct {
	cfg        Config
	cache      *cache
	replica    *replica
	persister  *persister
	follower   *follower
	reconciler *reconciler
}

// New opens the cache and loads what it holds: from now on lookups are answered
// from it. It starts nothing. Errors: what is wrong with cfg, and ErrLocked. A
// damaged cache is none: it is put aside; nor is a disk of no use: see cache_disk.go.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	logger := cfg.Logger.With("cn", cfg.CN)
	a := &Agent{cfg: cfg, replica: newReplica(cfg.CN, logger)}
	var held *contents
	if a.cache, held, err = openCache(cfg.Folder, cfg.CN, cfg.Now(), logger); err != nil {
		return nil, err
	}
	if err := a.build(held); err != nil {
		return nil, errors.Join(err, a.cache.Close())
	}
	logger.Info("cache loaded", "cursor", held.Head.Cursor, "objects", len(held.Objects), "scopes", len(held.Scopes), "incarnation", held.Head.Incarnation)
	return a, nil
}

func (a *Agent) build(held *contents) error {
	logger := a.replica.logger
	a.replica.view.share = max(a.cfg.HoldRemovals, 0)
	if err := a.replica.load(held); err != nil {
		return err
	}
	var numbers plan.Numbers
	if held.Numbers != nil {
		if err := json.Unmarshal(held.Numbers, &numbers); err != nil {
			logger.Error("fabric numbers cannot be read: links in the kernel keep theirs, others get new ones", "error", err)
		}
	}
	kernel, err := a.cfg.Kernel(numbers, a.saveNumbers)
	if err != nil {
		return fmt.Errorf("agent: kernel: %w", err)
	}
	a.persister = newPersister(a.replica, a.cache, logger)
	a.follower = &follower{
		cfg: &a.cfg, replica: a.replica, persister: a.persister, incarnation: held.Head.Incarnation,
		watermark: a.watermark, condition: a.condition, logger: logger, alone: a.cfg.Now(), since: a.cfg.Now(), reached: make(chan struct{}, 1),
	}
	a.reconciler = &reconciler{
		cfg: &a.cfg, replica: a.replica, kernel: kernel, tell: a.follower.tell, reach: a.follower.reach,
		woken: make(chan struct{}, 1), logger: logger,
	}
	return nil
}

func (a *Agent) saveNumbers(numbers plan.Numbers) error {
	text, err := json.Marshal(numbers)
	if err != nil {
		return fmt.Errorf("agent: fabric numbers: %w", err)
	}
	a.cache.SaveNumbers(text)
	return nil
}

// Run follows the log and programs the kernel until ctx ends; then it keeps
// what is left to keep, and returns nil. Another end is an error. The links
// stay as they are.
func (a *Agent) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return a.reconciler.Run(running) })
	if a.cfg.Watch != nil {
		g.Go(func() error { return a.reconciler.Watch(running) })
	}
	// The persister ends after the follower, so that nothing is left to keep.
	persisting, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer stop()
		return a.follower.Run(running)
	})
	g.Go(func() error { return a.persister.Run(persisting) })
	err := g.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// Close frees the cache. Run must have returned.
func (a *Agent) Close() error { return a.cache.Close() }

// Age is how old what lookups answer may be: the time for which no server has
// fed this node, 0 while one does.
func (a *Agent) Age() time.Duration { return a.follower.age() }

// Object returns an object as this agent holds it, false if it is not within
// what this compute node must know. Nobody may change it.
func (a *Agent) Object(kind log.Kind, id string) (log.Object, bool) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	rec, ok := a.replica.state.Get(kind, id)
	return rec.Object, ok
}

// VL2 answers where a MAC of a vnet is, as VL2 of the state that this agent
// holds; it is false also for a vnet that no NIC of this compute node is on.
func (a *Agent) VL2(vnet uint32, mac log.MAC) (projections.Underlay, bool) {
	return a.replica.VL2(vnet, mac)
}

// VL3 answers which MAC has an address on a vnet, and where it is.
func (a *Agent) VL3(vnet uint32, ip netip.Addr) (log.MAC, projections.Underlay, bool) {
	return a.replica.VL3(vnet, ip)
}
