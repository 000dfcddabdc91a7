package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/link/plan"
	"rutter/agent/zone"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
	"rutter/projections/desired"
)

// Agent makes one compute node match the log. Its methods, except Run and Close, may be
// called from any goroutine.
type Agent struct {
	cfg        Config
	cache      *cache
	replica    *replica
	persister  *persister
	follower   *follower
	reconciler *reconciler
}

// New opens the cache and loads it; from then on lookups are answered from it. New
// starts nothing. Errors: what is wrong with cfg, and ErrLocked. A damaged cache is put
// aside without an error. A disk that cannot be used is no error either: see
// cache_disk.go.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	logger := cfg.Logger.With("cn", cfg.CN)
	a := &Agent{cfg: cfg, replica: newReplica(cfg.CN, logger)}
	var held *contents
	cfg.DiskDelay("open the cache")
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
	a.cache.delay = a.cfg.DiskDelay
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
	choose, err := zone.New(zone.Config{
		Servers: a.cfg.Servers, Node: a.cfg.CN.String(), Zone: a.cfg.Zone, Ask: a.cfg.AskZone, Every: a.cfg.ZoneEvery, Settle: a.cfg.ZoneSettle, Spread: a.cfg.ZoneSpread, Jitter: a.cfg.Jitter,
	})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	kernel, err := a.cfg.Kernel(numbers, a.saveNumbers)
	if err != nil {
		return fmt.Errorf("agent: kernel: %w", err)
	}
	a.persister = newPersister(a.replica, a.cache, logger)
	a.follower = &follower{
		cfg: &a.cfg, replica: a.replica, persister: a.persister, incarnation: held.Head.Incarnation,
		watermark: a.watermark, condition: a.condition, isOnDemand: a.isOnDemand, logger: logger, fedUntil: a.cfg.Now(), since: a.cfg.Now(), retryNow: make(chan struct{}, 1), choose: choose,
	}
	a.reconciler = &reconciler{
		cfg: &a.cfg, replica: a.replica, kernel: kernel, report: a.follower.report, reach: a.follower.reachable,
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

// Run follows the log and programs the kernel until ctx ends. Then it saves what is not
// saved yet, and returns nil. Any other end is an error. The links stay as they are.
func (a *Agent) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return a.reconciler.Run(running) })
	if a.cfg.Watch != nil {
		g.Go(func() error { return a.reconciler.Watch(running) })
	}
	// The persister ends after the follower, so that everything is saved.
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

// Age is how long no server has fed this node: the age of what lookups answer. It is 0
// while a server feeds it.
func (a *Agent) Age() time.Duration { return a.follower.age() }

// Object returns an object as this agent holds it. It is false if the object is not
// among those that this compute node must know. Callers must not change the object.
func (a *Agent) Object(kind log.Kind, id string) (log.Object, bool) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	rec, ok := a.replica.state.Get(kind, id)
	return rec.Object, ok
}

// VL2 returns where a MAC of a vnet is, as VL2 of the state that this agent holds. It
// is also false for a vnet on which this compute node has no NIC.
func (a *Agent) VL2(vnet uint32, mac log.MAC) (projections.Underlay, bool) {
	return a.replica.VL2(vnet, mac)
}

// VL3 returns the MAC that has an address on a vnet, and where that MAC is.
func (a *Agent) VL3(vnet uint32, ip netip.Addr) (log.MAC, projections.Underlay, bool) {
	return a.replica.VL3(vnet, ip)
}

// Changes returns changes of the held NICs after a position, at most limit of them.
// Position 0 is before all changes. If it returns no change, there are no more. gap
// means that some changes in between are not kept any more: a caller that then reads
// all held rows, and these changes, misses nothing.
func (a *Agent) Changes(after uint64, limit int) (changes []Change, gap bool) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	return a.replica.journal.after(after, limit)
}

// LastChange returns the position of the last change.
func (a *Agent) LastChange() uint64 {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	return a.replica.journal.pos
}

// View calls fn with the held state, which does not change during the call. fn must be
// short and must not keep the state.
func (a *Agent) View(fn func(*projections.State)) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	fn(a.replica.state)
}

// condition is what operators must know about this node.
func (a *Agent) condition() (c feed.Condition) {
	if h := a.replica.holding(); h != nil {
		c = feed.Condition{
			Hold: h.ID, Going: uint32(h.Going), Links: uint32(h.Links), Was: h.Was.Cluster, Log: h.Log, Names: strings.Join(h.Names, "\n"),
		}
	}
	c.Trouble = strings.Join(a.trouble(), "\n")
	return c
}

// SetAttachments says where the links of NICs end, as the sources of VMs have it now: told
// has each NIC of each VM that a source lists, with the zero Attach where the VM says
// nothing. Each call is all that they say now: what is told of a MAC before the log has its
// NIC counts from the NIC's first moment, if it is in the last call then.
//
// A NIC that is not in told keeps what was told of it last, also by an earlier process (it is
// on disk beside the number of its link); what was told ends with the NIC. So a source that
// died, or is not complete, says nothing of the NICs that it lacks, and takes nothing away. A
// NIC of which nothing was ever told has the zero Attach.
//
// A NIC with None has no link while it is in told, also one that the log has: its VM let it
// go. What was told of it before ends.
//
// A NIC whose attachment is another one is programmed soon, by itself. What cannot be (see
// plan.CheckAttach) is not taken: the NIC keeps what it had, and a failure of it says why.
// The caller makes sure that a source tells only of the NICs of its own VMs. SetAttachments
// may be called from any goroutine, also before Run; it keeps no reference to told.
func (a *Agent) SetAttachments(told map[log.MAC]desired.Attach) { a.reconciler.tell(told) }

func (a *Agent) isOnDemand(vnet uint32) bool {
	r := a.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.onDemand[vnet]
}

// trouble lists what else is wrong, one line each.
func (a *Agent) trouble() (lines []string) {
	if failure := a.persister.status().Failure; failure != "" {
		lines = append(lines, "the cache cannot be written: "+failure)
	}
	if a.cfg.Trouble != nil {
		lines = append(lines, a.cfg.Trouble()...)
	}
	return lines
}

// Accept allows the held view to remove what it lacks, if its hold has that id. Errors:
// ErrNoHold, ErrOtherHold.
func (a *Agent) Accept(id string) (Hold, error) { return a.replica.accept(id) }

// Part calls fn with this node's part of the state; nothing is applied during the call.
// fn receives the cluster whose log it is (zero: none yet), the seq of the last
// bookmark, and whether all that this node must know was held at least once. The state
// may contain some entries after the bookmark. While a view is held, complete is false:
// what the view lacks is not deleted. fn must not call the agent, must not keep the
// state, and must be short. It may keep the objects that it finds, because they are
// never changed.
func (a *Agent) Part(fn func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool)) {
	r := a.replica
	r.mu.RLock()
	defer r.mu.RUnlock()
	fn(r.state, r.cursor.Cluster, r.cursor.Seq, r.complete && r.reset == nil && r.view.phase == settled)
}

// VMsHere returns the VMs that the log has on this compute node. complete is false while some
// may be missing: see Part.
func (a *Agent) VMsHere() (vms []log.UUID, complete bool) {
	a.Part(func(state *projections.State, _ log.UUID, _ log.Seq, whole bool) {
		complete = whole
		for rec := range state.VMsOn(a.cfg.CN) {
			vms = append(vms, rec.Object.(*log.VM).UUID)
		}
	})
	return vms, complete
}

// Incarnation is the number of this process. It is higher than those of all earlier
// processes.
func (a *Agent) Incarnation() uint64 { return a.follower.incarnation }

// OpenTasks returns the tasks of this compute node that have not ended, as the agent
// holds them. Callers must not change them.
func (a *Agent) OpenTasks() (tasks []*log.Task) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	for rec := range a.replica.state.OpenTasksOn(a.cfg.CN) {
		tasks = append(tasks, rec.Object.(*log.Task))
	}
	return tasks
}

// attachingKernel is a Kernel whose links end where sources of VMs say; *link.Manager is one.
type attachingKernel interface {
	// Attach takes what Agent.SetAttachments was told, and returns the NICs that it changes.
	Attach(told map[log.MAC]desired.Attach) (changed []log.MAC)
}

// attachments is where links of NICs end, as SetAttachments had it last; nil: the kernel has it.
type attachments = atomic.Pointer[map[log.MAC]desired.Attach]

// tell leaves what sources of VMs told to the goroutine that uses the kernel.
func (r *reconciler) tell(to map[log.MAC]desired.Attach) {
	to = maps.Clone(to)
	r.attachments.Store(&to)
	wake(r.woken)
}

// attach gives the kernel what sources of VMs told since the last call, and has the NICs
// looked at that this changes.
func (r *reconciler) attach() {
	to := r.attachments.Swap(nil)
	if kernel, ok := r.kernel.(attachingKernel); ok && to != nil {
		if changed := kernel.Attach(*to); len(changed) > 0 {
			noteNICs(r.replica, changed)
		}
	}
}
