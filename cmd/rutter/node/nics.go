package node

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/vmlink"
	"rutter/log/feed"
)

// nicSync synchronizes the NICs of a node's VMs with the log.
type nicSync struct {
	cfg   netsync.Config
	node  *netsync.Local
	woken chan struct{} // holds a token when there is work

	mu     sync.Mutex
	syncer *netsync.Syncer // nil until it runs
}

// local is an agent's Local: the VM link, and the other parts that follow the state.
type local struct {
	*vmlink.Link
	vms *vmSide
}

// Connected implements agent.Local.
func (l local) Connected(ctx context.Context, conn *feed.Conn) {
	l.Link.Connected(ctx, conn)
	if l.vms.registered != nil {
		l.vms.registered.connected()
	}
}

// Advanced implements agent.Local.
func (l local) Advanced() {
	l.Link.Advanced()
	if l.vms.nics != nil {
		l.vms.nics.wake()
	}
	if l.vms.registered != nil {
		l.vms.registered.advanced()
	}
}

func (n *vmSide) local() agent.Local { return local{n.link, n} }

func (s *nicSync) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run synchronizes the NICs with the part of the log that agent a has.
func (s *nicSync) run(ctx context.Context, a *agent.Agent) error {
	s.cfg.Node, s.cfg.Log, s.cfg.Incarnation = s.node, a, a.Incarnation()
	syncer, err := netsync.New(s.cfg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.syncer = syncer
	s.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return syncer.Run(ctx) })
	g.Go(func() error {
		s.node.Watch(ctx, syncer.Wake)
		return nil
	})
	g.Go(func() error {
		for {
			select {
			case <-s.woken:
				syncer.Wake()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// status is nil while NICs are not synchronized.
func (s *nicSync) status() *netsync.Status {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncer == nil {
		return nil
	}
	status := s.syncer.Status()
	return &status
}
