package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"rutter/agent/filter"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

const (
	// maxRounds is how often a pass plans again after executing steps: some changes
	// cause others (the kernel empties a table, drops the routes of an address), which
	// the next dump shows.
	maxRounds = 3

	firstDelay = 100 * time.Millisecond // of an object that failed once
	maxDelay   = 30 * time.Second       // of one that keeps failing
)

// ManagerConfig configures a Manager.
type ManagerConfig struct {
	Kernel plan.Kernel
	// Numbers are those that were saved by the last process.
	Numbers plan.Numbers
	// Save saves changed Numbers. It is called before a link is made under a new
	// number; if it fails, the pass fails. Default: they are not saved.
	Save func(plan.Numbers) error
	// Ahead is how many entries of one vnet, neighbours and forwarding entries
	// together, are programmed before the kernel asks for them. Vnets with more are on
	// demand. Default DefaultAhead; negative: no limit.
	Ahead int
	// Table is how many entries the kernel holds for each vnet on demand. Default
	// DefaultTable.
	Table int
	// UndoRenames: links of ours that were renamed get their names back. Default: the new
	// names are accepted.
	UndoRenames bool
	// Secure says whether links are attached with port security, whose rules the kernel's
	// filter holds. Default: they are not.
	Secure plan.Secure
	// Attached, with port security, is called after each pass and part that changed where
	// NICs are attached, with all of them. It must not block, nor keep the map. Default: it
	// is not called.
	Attached func(map[log.MAC]Attachment)
	// Now is the time of day. Default time.Now.
	Now func() time.Time
}

// Manager makes passes: it compares the kernel with what is wanted, executes the steps
// that are missing, and remembers failures. One goroutine at a time may use it, except
// for Resolve and Asked.
type Manager struct {
	cfg     ManagerConfig
	numbers plan.Numbers
	demand  *demand
	backoff map[plan.Object]waiting

	// last is what the last pass wanted, with the later changes of Apply: those of own
	// NICs are in last, those of single entries in since. lastMatched means that the
	// kernel matched it. doubt is set when it may not match any more. work is what the
	// last pass, and the parts since, left undone, and left has its objects; a difference
	// found now of any other object is drift. lastOwned: no caller has the slices of last.
	last        desired.Links
	lastOwned   bool
	since       expectedEntries
	lastMatched bool
	doubt       bool
	work        plan.Work
	left        leftUndone
	stirred     map[log.MAC]bool // NICs that a part must look at: see Result.Stirred

	marks  marks
	absent map[string]absence // VM namespaces that did not exist at the last pass

	peers       peers
	unsupported atomic.Pointer[unsupported] // see Unsupported
	attached    map[log.MAC]Attachment      // see noteAttached
	rules       *filter.State               // as this program left them; nil: unknown

	surplus, kept map[linkEntry]struct{} // see Surplus and Keep; kept is nil unless something is
}

type waiting struct {
	err   error
	delay time.Duration
	until time.Time
}

// Failure is an object that could not be made as wanted.
type Failure struct {
	Object  plan.Object
	Err     error
	RetryAt time.Time // zero: with the next pass
}

// String reads "object: reason".
func (f Failure) String() string { return f.Object.String() + ": " + f.Err.Error() }

// Result is what a pass did and found.
type Result struct {
	Steps    []plan.Step // done, in order
	Failures []Failure   // in the order found, without conflicts
	// Conflicts are objects that foreign links block.
	Conflicts []plan.Blocked
	// Drift has those of Steps that correct changes by other programs: the kernel
	// matched in their objects after the last pass, and these are wanted as they were
	// then.
	Drift []plan.Step
	// Unread is how many VM namespaces could not be read. The cause of each is in
	// Failures, with each link that is wanted in it.
	Unread int
	// Pending are the objects that are not as wanted, with what each concerns. They are
	// those of the last pass, and never changed in place. Settled: nothing else differs
	// from what is wanted (SAFETY L2). Matched implies both.
	Pending []Pending
	Settled bool
	// RetryAt is the earliest time at which a failed object is tried again; zero if
	// none waits.
	RetryAt time.Time
	// Matched: a dump after all steps shows the kernel as wanted, nothing has failed
	// and nothing is in conflict. With an incomplete view this says nothing about
	// objects that are not wanted.
	Matched bool
	// Look: a pass should follow, because nothing else shows the kernel's state. Only
	// Apply sets it.
	Look bool
	// Part: Apply changed own NICs. Failures, Conflicts and RetryAt are then those of all
	// that is wanted, as after a pass.
	Part bool
	// Links is how many links of all kinds are wanted, with Part.
	Links int
	// Stirred are NICs that another program may have changed, or whose namespace
	// appeared or went, in order. The kernel does not match before a part, or a pass, has
	// them. Only Apply sets it.
	Stirred []log.MAC
}

// NewManager returns a Manager over a kernel.
func NewManager(cfg ManagerConfig) *Manager {
	if cfg.Save == nil {
		cfg.Save = func(plan.Numbers) error { return nil }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{cfg: cfg, marks: marks{want: new(desired.Links)}, numbers: cfg.Numbers, backoff: map[plan.Object]waiting{}, stirred: map[log.MAC]bool{}, since: newExpectedEntries(), demand: newDemand(cfg.Table, cfg.Now)}
	if kernel, ok := cfg.Kernel.(identifyingKernel); ok {
		kernel.Identify(m.identify)
		m.marks.identify = true
	}
	return m
}

// Number returns the N of the fabric<N> of a NIC.
func (m *Manager) Number(want desired.Fabric) (uint32, bool) { return m.numbers.Lookup(want.MAC) }

// Pass makes the kernel match want. complete means that want is everything that should
// exist, so that other objects of ours may be deleted. An error means that our own
// namespace could not be read or the numbers could not be saved. Failures of single
// objects, and those of VM namespaces, are in the Result: no other object waits for them.
func (m *Manager) Pass(ctx context.Context, want desired.Links, complete bool) (Result, error) {
	now := m.cfg.Now()
	m.doubt = true // until the end of the pass
	want.Attach(m.attachOf)
	namespaces := namespacesOf(&want, &m.numbers)
	if listener, ok := m.cfg.Kernel.(Listener); ok {
		listener.Observed() // the dump shows those changes
		listener.Stirred()
	}
	generation := m.demand.begin()
	have, err := m.dumpPass(ctx, namespaces, &want, complete)
	if err != nil {
		return Result{}, err
	}
	if err := m.assign(want, have); err != nil {
		return Result{}, err
	}
	m.demand.follow(&want)
	var result Result
	var work plan.Work
	for round := 0; ; round++ {
		full := m.demand.extend(want, &have)
		work = plan.PlanSecured(full, have, m.numbers, complete, m.cfg.Secure)
		work.Steps = m.withheld(work.Steps)
		due := m.due(work.Steps, now)
		if len(due) == 0 || round == maxRounds {
			break
		}
		done := m.do(ctx, due, now)
		if round == 0 {
			result.Drift = m.drift(done, &full)
		}
		result.Steps = append(result.Steps, done...)
		if err := ctx.Err(); err != nil {
			return result, err
		}
		generation = m.demand.begin()
		if have, err = m.dumpPass(ctx, namespaces, &want, complete); err != nil {
			return result, err
		}
	}
	m.demand.sync(&have, generation)
	m.demand.shrink(ctx, entryWriterOf(m.cfg.Kernel))
	m.forget(work.Steps)
	m.miss(have.Missing, now)
	if m.cfg.Secure.On {
		m.peers = countPeers(&want)
	}
	m.noteFilter(&have)
	m.noteAttached(map[log.MAC]Attachment{}, want.Fabrics, &have)
	m.report(&result, work)
	result.Unread = len(have.Unread)
	m.last, m.lastOwned, m.lastMatched, m.doubt = want, false, result.Matched, false
	m.work, m.left = work, m.leave(&result, &work, &want)
	clear(m.stirred)
	m.since.clear()
	if complete && m.kept == nil {
		m.settleMarks(&have)
		m.marks.settleFiles(m.numbers.Node(), &have, work.Steps)
		if err := m.settle(m.numbers.MACs(), want.Fabrics, &have); err != nil {
			return result, err
		}
	}
	return result, nil
}

// namespacesOf returns the namespaces in which links are wanted, or were made.
func namespacesOf(want *desired.Links, numbers *plan.Numbers) []string {
	wanted := make([]string, 0, len(want.Fabrics))
	for i := range want.Fabrics {
		wanted = append(wanted, want.Fabrics[i].Namespace)
	}
	return plan.Searched(wanted, numbers.Namespaces())
}

// assign gives every wanted fabric a number, and saves the numbers if any is
// new. A link of ours that already has the MAC keeps its name.
func (m *Manager) assign(want desired.Links, have plan.Snapshot) error {
	changed := m.marks.unsaved
	var taken names
	for i := range want.Fabrics {
		w := &want.Fabrics[i]
		if _, ok := m.numbers.Lookup(w.MAC); !ok {
			if taken == nil {
				taken = takenNames(&have)
			}
			m.numbers.Assign(w.MAC, taken.in(w.Namespace))
			changed = true
		}
		changed = m.numbers.Tell(w.MAC, w.Attach) || changed
		changed = m.numbers.Put(w.MAC, w.Namespace) || changed
	}
	if !changed {
		return nil
	}
	return m.saveNumbers()
}

func (m *Manager) saveNumbers() error {
	if err := m.cfg.Save(m.numbers); err != nil {
		return fmt.Errorf("link: save fabric numbers: %w", err)
	}
	m.marks.unsaved = false
	return nil
}

// due returns the steps that may be executed now: not those of objects that wait after
// a failure, nor those on a link that is missing for that reason.
func (m *Manager) due(steps []plan.Step, now time.Time) []plan.Step {
	if len(m.backoff) == 0 {
		return steps
	}
	due := make([]plan.Step, 0, len(steps))
	unmade := map[plan.LinkKey]bool{}
	for _, s := range steps {
		w, waits := m.backoff[s.Object]
		waits = waits && now.Before(w.until)
		if s.Op == plan.OpAddLink && (waits || unmade[plan.LinkKey{Namespace: "", Name: s.Spec.Needs()}]) {
			unmade[s.Spec.Key()] = true
			if s.Spec.Peer != nil {
				unmade[s.Spec.Peer.Key()] = true
			}
			continue
		}
		if !waits && !unmade[plan.LinkKey{Namespace: s.Namespace, Name: s.Link}] {
			due = append(due, s)
		}
	}
	return due
}

// do executes steps, returns those that succeeded, and delays the others. A step that
// fails because its link failed waits only for the link.
func (m *Manager) do(ctx context.Context, steps []plan.Step, now time.Time) []plan.Step {
	errs := m.cfg.Kernel.Do(ctx, steps)
	if errs == nil {
		if len(m.backoff) > 0 {
			for _, s := range steps {
				delete(m.backoff, s.Object)
			}
		}
		return steps
	}
	done := make([]plan.Step, 0, len(steps))
	failed := map[plan.Object]bool{}
	for i, err := range errs {
		s := steps[i]
		switch {
		case err == nil:
			done = append(done, s)
		case errors.Is(err, plan.ErrNotMade) || failed[s.Object] || ctx.Err() != nil:
		default:
			failed[s.Object] = true
			delay := min(cmp.Or(2*m.backoff[s.Object].delay, firstDelay), maxDelay)
			m.backoff[s.Object] = waiting{err: err, delay: delay, until: now.Add(delay)}
		}
	}
	for _, s := range done {
		if !failed[s.Object] {
			delete(m.backoff, s.Object)
		}
	}
	return done
}

// forget removes the delays of objects that need no steps any more.
func (m *Manager) forget(steps []plan.Step) {
	if len(m.backoff) == 0 {
		return
	}
	open := map[plan.Object]bool{}
	for _, s := range steps {
		open[s.Object] = true
	}
	for o := range m.backoff {
		if !open[o] {
			delete(m.backoff, o)
		}
	}
}

// report fills in what a pass could not do.
func (m *Manager) report(result *Result, work plan.Work) {
	for _, b := range work.Blocked {
		switch {
		case errors.Is(b.Err, plan.ErrForeign):
			result.Conflicts = append(result.Conflicts, b)
		case errors.Is(b.Err, plan.ErrNoNamespace):
			result.Failures = append(result.Failures, Failure{Object: b.Object, Err: b.Err, RetryAt: m.absent[b.Namespace].until})
		case b.Object.Kind == plan.ObjectRules:
			result.Failures = append(result.Failures, Failure{Object: b.Object, Err: b.Err, RetryAt: m.cfg.Now().Add(firstPause)})
		default:
			result.Failures = append(result.Failures, Failure{Object: b.Object, Err: b.Err, RetryAt: b.RetryAt})
		}
	}
	seen := map[plan.Object]bool{}
	for _, s := range work.Steps {
		if seen[s.Object] {
			continue
		}
		seen[s.Object] = true
		if w, ok := m.backoff[s.Object]; ok {
			result.Failures = append(result.Failures, Failure{Object: s.Object, Err: w.err, RetryAt: w.until})
		} else if s.Op == plan.OpAddLink {
			result.Failures = append(result.Failures, Failure{Object: s.Object, Err: fmt.Errorf("%w: %s", plan.ErrNotMade, s.Spec.Needs())})
		}
	}
	m.reportBridges(result, work.Steps, seen)
	result.Failures = append(result.Failures, refusals(m)...)
	for _, f := range result.Failures {
		if !f.RetryAt.IsZero() && (result.RetryAt.IsZero() || f.RetryAt.Before(result.RetryAt)) {
			result.RetryAt = f.RetryAt
		}
	}
	result.Matched = len(work.Steps) == 0 && len(work.Blocked) == 0
}

func sameFabric(a, b desired.Fabric) bool {
	return a.MAC == b.MAC && a.VNet == b.VNet && a.VLAN == b.VLAN && a.MTU == b.MTU && a.VM == b.VM &&
		a.Namespace == b.Namespace && a.Gateway == b.Gateway && a.Hold == b.Hold && a.Security == b.Security && a.Attach == b.Attach &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Allowed, b.Allowed) && slices.Equal(a.Routes, b.Routes) && slices.Equal(a.Resolvers, b.Resolvers)
}

// Listener is a Kernel that receives notifications of changes by other programs.
type Listener interface {
	// Observed returns, once, the changes since the last call that differ from what was
	// programmed: single entries, and whether there was any other change, which only a
	// pass finds.
	Observed() (entries []plan.Entry, other bool)
	// Stirred returns, once, the fabric links that differ from what was programmed, and
	// the VM namespaces that appeared, went, or were replaced.
	Stirred() (links []plan.LinkKey, namespaces []string)
	// Read returns the current state of single entries, as the step that makes each:
	// OpSetNeigh or OpSetFDB, or OpDelNeigh or OpDelFDB if the entry does not exist.
	Read(ctx context.Context, entries []plan.Entry) ([]plan.Step, error)
}

// Resolve answers the kernel's questions until ctx ends, and then returns ctx's error.
// It may run beside everything else. With a kernel that asks nothing, it only waits.
func (m *Manager) Resolve(ctx context.Context) error {
	asker, ok := m.cfg.Kernel.(Asker)
	if !ok {
		<-ctx.Done()
		return ctx.Err()
	}
	return asker.Ask(ctx, m.demand.resolve)
}

// SetSource sets the source of the log's single entries. Before that, nothing is
// answered. It is called before Pass, Apply and Resolve.
func (m *Manager) SetSource(truth Source) { m.demand.source = truth }

// Ahead is how many entries of a vnet are programmed ahead; 0: no limit.
func (m *Manager) Ahead() int { return max(cmp.Or(m.cfg.Ahead, DefaultAhead), 0) }

// Asked counts the kernel's questions. Any goroutine may call it.
func (m *Manager) Asked() Asked { return m.demand.asked() }
