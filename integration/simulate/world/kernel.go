package world

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections/desired"
)

// kernel is the kernel of one compute node. It outlives the agents that program it.
type kernel struct {
	n      *node
	refuse atomic.Int64 // how many of a hundred steps fail

	mu       sync.Mutex // protects what follows; held during a pass, which never waits
	fake     plan.Fake
	rnd      *rand.Rand
	spaces   map[string]bool // VM namespaces
	numbers  plan.Numbers
	refused  bool   // it refused steps once
	meddled  bool   // another program changed it once
	complete bool   // the pass under way may remove
	notify   func() // tells the agent of changes by others; nil: none runs
}

func newKernel(n *node, seed uint64) *kernel {
	k := &kernel{n: n, spaces: map[string]bool{}, rnd: rand.New(rand.NewPCG(seed, 7))}
	k.fake.Fail = func(plan.Step) error {
		if percent := k.refuse.Load(); percent > 0 && k.rnd.Int64N(100) < percent {
			k.refused = true
			return syscall.EBUSY
		}
		return nil
	}
	return k
}

// programmed is the kernel as one agent programs it.
type programmed struct {
	*link.Manager
	k *kernel
}

// Pass implements agent.Kernel.
func (p programmed) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.k.complete = complete
	return p.Manager.Pass(ctx, want, complete)
}

// Apply implements agent.Kernel.
func (p programmed) Apply(ctx context.Context, delta desired.LinksDelta) link.Result {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.k.complete = true // a delta names what it removes: no absence deletes
	return p.Manager.Apply(ctx, delta)
}

// Attach is that of the manager.
func (p programmed) Attach(told map[log.MAC]desired.Attach) []log.MAC {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	return p.Manager.Attach(told)
}

// device is what the manager sees of the kernel. Each namespace is there at its first use.
type device struct{ k *kernel }

func (d device) Identify(identify func(have *plan.Snapshot)) { d.k.fake.Identify(identify) }

func (d device) Dump(ctx context.Context, namespaces []string) (plan.Snapshot, error) {
	d.add(namespaces)
	return d.k.fake.Dump(ctx, namespaces)
}

func (d device) DumpPart(ctx context.Context, part plan.Part) (plan.Snapshot, error) {
	d.add(part.Namespaces)
	return d.k.fake.DumpPart(ctx, part)
}

func (d device) Do(ctx context.Context, steps []plan.Step) []error {
	for _, s := range steps {
		if deletes(s.Op) && !d.k.complete {
			d.k.n.w.seen.Add(d.k.n.name, seen.Step{Text: s.String(), Deletes: true})
		}
	}
	errs := d.k.fake.Do(ctx, steps)
	d.k.fake.Done = nil // it would grow for the whole history
	return errs
}

func (d device) add(namespaces []string) {
	for _, name := range namespaces {
		if name != "" {
			d.k.fake.AddNamespace(name)
			d.k.spaces[name] = true
		}
	}
}

// ResolverFiles is that of *link.Netlink: all that there are.
func (d device) ResolverFiles() (map[string]string, error) { return d.k.fake.ResolverFiles() }

// Namespaces is that of *link.Netlink: all that there are.
func (d device) Namespaces() []string { return slices.Sorted(maps.Keys(d.k.spaces)) }

func deletes(op plan.Op) bool {
	return slices.Contains([]plan.Op{plan.OpDelLink, plan.OpDelAddress, plan.OpDelRoute, plan.OpDelFDB, plan.OpDelNeigh, plan.OpRemoveResolvers}, op)
}

// manager makes the kernel that an agent programs.
func (k *kernel) manager(numbers plan.Numbers, save func(plan.Numbers) error) *link.Manager {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.numbers = numbers
	k.numbers.SetNode(k.n.cn)
	return link.NewManager(link.ManagerConfig{Kernel: device{k}, Numbers: numbers, Save: func(n plan.Numbers) error {
		k.numbers = n // the pass has the lock
		return save(n)
	}})
}

// watch is agent.Config's: it tells of changes by other programs.
func (k *kernel) watch(ctx context.Context, changed, _ func()) error {
	k.mu.Lock()
	k.notify = changed
	k.mu.Unlock()
	<-ctx.Done()
	k.mu.Lock()
	k.notify = nil
	k.mu.Unlock()
	return nil
}

// differences are the steps that would make the kernel as want says. Empty: it is so.
func (k *kernel) differences(want desired.Links) (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	namespaces := map[string]bool{"": true}
	maps.Copy(namespaces, k.spaces)
	for _, f := range want.Fabrics {
		namespaces[f.Namespace] = true
	}
	fake := k.fake // a look changes nothing of what the agent's manager knows
	fake.Identify(nil)
	have, err := fake.Dump(context.Background(), slices.Sorted(maps.Keys(namespaces)))
	if err != nil {
		return []string{err.Error()}
	}
	work := plan.Plan(want, have, k.numbers, true)
	for _, s := range work.Steps {
		all = append(all, s.String())
	}
	for _, b := range work.Blocked {
		all = append(all, "blocked: "+b.String())
	}
	return all
}

// meddle changes n objects as another program would, and says what it changed.
func (k *kernel) meddle(n int64, seed uint64) (done []string) {
	rnd := rand.New(rand.NewPCG(seed, 11))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.meddled = true
	for range n {
		if len(k.fake.Links) == 0 {
			break
		}
		l := k.fake.Links[rnd.IntN(len(k.fake.Links))]
		switch rnd.IntN(4) {
		case 0:
			done = append(done, "delete "+l.Name)
			k.fake.DeleteLink(l.Namespace, l.Name)
		case 1:
			l.MTU -= 100
			done = append(done, fmt.Sprintf("%s mtu %d", l.Name, l.MTU))
		case 2:
			l.Up = !l.Up
			done = append(done, fmt.Sprintf("%s up=%v", l.Name, l.Up))
		case 3:
			if len(l.FDB) > 0 {
				done = append(done, fmt.Sprintf("%s loses entry %v", l.Name, l.FDB[0]))
				l.FDB = slices.Delete(l.FDB, 0, 1)
			} else if len(l.Neighs) > 0 {
				done = append(done, fmt.Sprintf("%s loses neighbour %v", l.Name, l.Neighs[0]))
				l.Neighs = slices.Delete(l.Neighs, 0, 1)
			}
		}
	}
	if k.notify != nil && rnd.IntN(2) == 0 { // else only a sweep finds it
		k.notify()
	}
	return done
}

// meddledWith reports whether another program changed the kernel, which its agent may not know
// yet: only the end of the history shows whether it is mended.
func (k *kernel) meddledWith() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.meddled
}

// refusedSome reports whether the kernel refused steps. A barrier does not wait for objects that
// failed and that its change does not concern.
func (k *kernel) refusedSome() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused
}
