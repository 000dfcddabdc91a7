package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/projections/desired"
)

// kernel is the kernel of one compute node. It outlives the agents that program it. Each call of
// an agent takes simulated time; mu is held only for what happens at one instant.
type kernel struct {
	n      *node
	refuse atomic.Int64 // how many of a hundred steps fail

	mu      sync.Mutex // protects what follows; nothing waits under it
	fake    plan.Fake
	rnd     *rand.Rand
	paces   *rand.Rand      // of how long calls take
	slow    int             // so many of the next calls take long
	spaces  map[string]bool // VM namespaces
	numbers plan.Numbers    // as they were saved last
	refused bool            // it refused steps once
	meddled bool            // another program changed it once
	fresh   bool            // it started anew, or its node lied; it was not yet seen to be as the log says
	notify  func()          // tells the agent of changes by others; nil: none runs
}

func newKernel(n *node, seed uint64) *kernel {
	k := &kernel{n: n, rnd: rand.New(rand.NewPCG(seed, 7)), paces: rand.New(rand.NewPCG(seed, 13))}
	k.boot()
	return k
}

// slowCalls are how many calls take long in a kernel that has just started, and often of an agent
// that has: much else starts then.
const slowCalls = 4

// boot makes the kernel one that has just started: it has nothing of what was programmed.
func (k *kernel) boot() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fake, k.spaces, k.meddled, k.slow, k.fresh = plan.Fake{Fail: k.fail}, map[string]bool{}, false, slowCalls, true
}

// fail is plan.Fake's: mu is locked.
func (k *kernel) fail(plan.Step) error {
	if percent := k.refuse.Load(); percent > 0 && k.rnd.Int64N(100) < percent {
		k.refused = true
		k.n.w.count(coverage.StepRefused, 1)
		return syscall.EBUSY
	}
	return nil
}

// programmed is the kernel as one agent programs it. Its fields belong to the agent's goroutine.
type programmed struct {
	*link.Manager
	k        *kernel
	complete bool // the pass under way may remove
	locked   bool // the manager holds a lock that others wait for: no call may wait
}

// Pass implements agent.Kernel.
func (p *programmed) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	p.complete = complete
	return p.Manager.Pass(ctx, want, complete)
}

// Apply implements agent.Kernel. It takes its time before and behind what it does, because the
// manager does that under a lock.
func (p *programmed) Apply(ctx context.Context, delta desired.LinksDelta) link.Result {
	p.complete = true // a delta names what it removes: no absence deletes
	p.k.takes(ctx)
	p.locked = true
	defer func() {
		p.locked = false
		p.k.takes(ctx)
	}()
	return p.Manager.Apply(ctx, delta)
}

// longest is how long a call of a kernel takes at most.
const longest = 2 * time.Second

// takes waits as long as a call of the kernel takes: mostly some milliseconds, in one call of 200
// up to longest. It does not wait while no history runs.
func (k *kernel) takes(ctx context.Context) {
	if !k.n.w.busy.Load() {
		return
	}
	k.mu.Lock()
	most := 5 * time.Millisecond
	switch n := k.paces.IntN(200); {
	case k.slow > 0:
		k.slow--
		most = longest / 2
	case n == 0:
		most = longest
	case n < 5:
		most = 100 * time.Millisecond
	}
	d := time.Duration(k.paces.Int64N(int64(most)))
	k.mu.Unlock()
	pause(ctx, d)
}

// device is what the manager of one agent sees of the kernel. Each namespace is there at its first
// use. An agent that was ended changes nothing any more, and sees nothing.
type device struct {
	k *kernel
	p *programmed
}

// takes waits as long as a call takes that is made in a pass.
func (d device) takes(ctx context.Context) {
	if !d.p.locked {
		d.k.takes(ctx)
	}
}

// Identify is that of *link.Netlink.
func (d device) Identify(identify func(have *plan.Snapshot)) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.fake.Identify(identify)
}

// Dump implements plan.Kernel. What it read is old when it returns.
func (d device) Dump(ctx context.Context, namespaces []string) (have plan.Snapshot, err error) {
	return d.read(ctx, namespaces, func() (plan.Snapshot, error) { return d.k.fake.Dump(ctx, namespaces) })
}

// DumpPart implements plan.PartKernel.
func (d device) DumpPart(ctx context.Context, part plan.Part) (plan.Snapshot, error) {
	return d.read(ctx, part.Namespaces, func() (plan.Snapshot, error) { return d.k.fake.DumpPart(ctx, part) })
}

func (d device) read(ctx context.Context, namespaces []string, dump func() (plan.Snapshot, error)) (have plan.Snapshot, err error) {
	d.k.mu.Lock()
	if err = ctx.Err(); err == nil {
		d.add(namespaces)
		have, err = dump()
	}
	d.k.mu.Unlock()
	d.takes(ctx)
	return have, err
}

// Do implements plan.Kernel. The steps are done at the end of the time that it takes.
func (d device) Do(ctx context.Context, steps []plan.Step) []error {
	d.takes(ctx)
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{err}, len(steps))
	}
	for _, s := range steps {
		if deletes(s.Op) && !d.p.complete {
			d.k.n.w.seen.Add(d.k.n.name, seen.Step{Text: s.String(), Deletes: true})
		}
	}
	errs := d.k.fake.Do(ctx, steps)
	d.k.fake.Done = nil // it would grow for the whole history
	return errs
}

// add makes namespaces. The caller has locked mu.
func (d device) add(namespaces []string) {
	for _, name := range namespaces {
		if name != "" {
			d.k.fake.AddNamespace(name)
			d.k.spaces[name] = true
		}
	}
}

// ResolverFiles is that of *link.Netlink: all that there are.
func (d device) ResolverFiles() (map[string]string, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return d.k.fake.ResolverFiles()
}

// Namespaces is that of *link.Netlink: all that there are.
func (d device) Namespaces() []string {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return slices.Sorted(maps.Keys(d.k.spaces))
}

func deletes(op plan.Op) bool {
	return slices.Contains([]plan.Op{plan.OpDelLink, plan.OpDelAddress, plan.OpDelRoute, plan.OpDelFDB, plan.OpDelNeigh, plan.OpRemoveResolvers}, op)
}

// programs makes the kernel that an agent programs.
func (k *kernel) programs(numbers plan.Numbers, save func(plan.Numbers) error) (*programmed, error) {
	// What an agent's older cache has no number of is in the kernel as the agent before it
	// left it, until the agent saves what it finds there.
	if cluster := numbers.Cluster(); !cluster.IsZero() {
		if err := k.keep(numbers); err != nil {
			return nil, err
		}
	}
	numbers.SetNode(k.n.cn)
	k.mu.Lock()
	k.slow = max(k.slow, min(k.paces.IntN(4), 1)*slowCalls)
	k.mu.Unlock()
	p := &programmed{k: k}
	p.Manager = link.NewManager(link.ManagerConfig{Kernel: device{k, p}, Numbers: numbers, Save: func(n plan.Numbers) error {
		return errors.Join(k.keep(n), save(n))
	}})
	return p, nil
}

// keep takes a copy of the numbers, which the manager goes on to change.
func (k *kernel) keep(numbers plan.Numbers) error {
	text, err := json.Marshal(numbers)
	if err != nil {
		return err
	}
	var kept plan.Numbers
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	kept.SetNode(k.n.cn)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.numbers = kept
	return nil
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

// isFresh reports whether the kernel started anew, and was not yet seen to be as the log says. Until
// its agent has a session, servers do not know that what was programmed is gone.
func (k *kernel) isFresh() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fresh
}

// lied: something else than the agent says what the kernel has. A node's word about itself is
// believed, and hurts only itself.
func (k *kernel) lied() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fresh = true
}

// wasRight: the kernel was seen to be as the log says.
func (k *kernel) wasRight() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fresh = false
}
