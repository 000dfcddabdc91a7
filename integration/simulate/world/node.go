package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/agent"
	"rutter/agent/link/plan"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// node is one compute node, through its agent's restarts.
type node struct {
	busy
	*drive
	w      *world
	i      int
	name   string
	cn     log.UUID
	host   *network.Host
	source *vmSource
	kernel *kernel
	clock  clock
	looked log.Cursor // at which the kernel was compared with the log last; of the sampler

	mu     sync.Mutex // protects what follows
	agent  *agent.Agent
	knew   bool            // an agent has run
	keeper *tlsgate.Keeper // of the agent's certificate; nil: without TLS
	fed    agent.Dialer    // that of the agent that got a bookmark last
	api    *client.Client
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func (w *world) newNode(i int) *node {
	name := fmt.Sprintf("cn%d", i+1)
	n := &node{w: w, i: i, name: name, cn: cnID(i), host: w.net.Host(name), drive: newDrive(w, name)}
	n.source = newVMSource(n)
	n.kernel = newKernel(n, w.h.Seed+uint64(i))
	return n
}

func cnID(i int) log.UUID {
	return log.UUID{0: 0x56, 6: 0x40, 8: 0x80, 14: byte((i + 1) >> 8), 15: byte(i + 1)}
}

// start runs an agent from the node's folder.
func (n *node) start() error {
	if n.running() != nil {
		return errRunning
	}
	n.host.Up()
	keeper, err := n.keeperOf()
	if err != nil {
		return err
	}
	api, err := n.w.clientOf(n.host, "", n.i, keeper, 0)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Zone: n.zone(), AskZone: api.Zone, ZoneEvery: zoneEvery, ZoneSettle: zoneSettle, ZoneSpread: zoneSpread,
		CN: n.cn, Folder: n.dir, Servers: api.Servers(), Dialer: tapped{api, n, keeper}, Logger: n.w.logger(n.name),
		Kernel: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			return n.kernel.programs(numbers, save)
		},
		Watch: n.kernel.watch, SweepEvery: 5 * time.Second, HoldRemovals: -1, Now: n.clock.now,
		Jitter: n.w.jitter(n.name), DiskDelay: n.disk.delay,
	}) // its disk may make it wait, so without the lock; see busy
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.countCache(a)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.keeper = keeper
	n.agent, n.api, n.cancel, n.ended, n.err = a, api, cancel, ended, nil
	n.w.seen.Add(n.name, seen.Process{State: "started"})
	go func() {
		keeping, stop := context.WithCancel(ctx)
		var kept sync.WaitGroup
		kept.Go(func() { n.keep(keeping, keeper, a) })
		kept.Go(func() { n.answerSVP(keeping, a) })
		kept.Go(func() { n.syncNICs(keeping, a, api) })
		err := a.Run(ctx)
		stop()
		kept.Wait()
		err = errors.Join(err, a.Close())
		api.Close()
		n.mu.Lock()
		n.err = err
		if ctx.Err() == nil {
			n.agent = nil
		}
		n.mu.Unlock()
		close(ended)
		if ctx.Err() == nil {
			n.w.unexpected(n.name, err)
			n.w.revive(n, err)
		}
	}()
	return nil
}

// stop ends the agent, and returns when it has ended.
func (n *node) stop() error {
	n.mu.Lock()
	a, cancel, ended := n.agent, n.cancel, n.ended
	n.agent = nil
	n.mu.Unlock()
	if a == nil {
		return nil
	}
	cancel()
	<-ended
	n.w.ended(n.name)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// uncertified reports whether the certificate that the agent uses has ended.
func (n *node) uncertified() bool {
	n.mu.Lock()
	keeper := n.keeper
	n.mu.Unlock()
	return keeper != nil && keeper.Unusable()
}

func (n *node) running() *agent.Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent
}

// wasFed: the agent of a dialler got a bookmark, so that a server knows its session.
func (n *node) wasFed(d agent.Dialer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fed = d
}

// known is the agent that runs, if a server knows its session.
func (n *node) known() *agent.Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil || n.fed != agent.Dialer(n.api) {
		return nil
	}
	return n.agent
}
