package vmmstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// The states of a VMM that this node gives; the names are Omicron's
// (spec/vmm-doorbell.md, 7.1).
const (
	VMMStarting  = "starting"
	VMMRunning   = "running"
	VMMStopping  = "stopping"
	VMMRebooting = "rebooting"
	VMMMigrating = "migrating"
	VMMFailed    = "failed"
	VMMDestroyed = "destroyed"
)

// Errors about one VMM.
var (
	// ErrNoVMM: this node has no such VMM and no record of it.
	ErrNoVMM = errors.New("vminfo: no such VMM here")
	// ErrVMMFinal: the VMM has ended; its state does not change any more.
	ErrVMMFinal = errors.New("vminfo: the VMM has ended")
	// ErrVMMClash: the VM has another VMM here that has not ended.
	ErrVMMClash = errors.New("vminfo: the VM has another VMM here")
	// ErrBusy: too many VMs wait to be started or stopped; nothing was changed.
	ErrBusy = errors.New("vminfo: too many VMs wait to be started or stopped")
)

// maxVMMs bounds the VMMs of one node, including those that have ended and are not
// recorded yet.
const maxVMMs = 20_000

// VMM is one running incarnation of a VM as this node knows it. Gen is owned by this
// node: +1 for each observation, and never lower, also after a restart.
type VMM struct {
	ID        log.UUID   `json:"id"`
	VM        log.UUID   `json:"vm"`
	State     string     `json:"state"`
	Gen       uint64     `json:"gen"`
	Updated   time.Time  `json:"time_updated"`
	Reason    string     `json:"reason,omitempty"` // of a failure, or why a VM does not stop
	PID       int        `json:"pid,omitempty"`    // of its init process, once it was seen
	Recorded  uint64     `json:"recorded"`         // the generation that the log has
	Migration *Migration `json:"migration_in,omitempty"`
}

// Migration is a migration to this node (Omicron's MigrationRuntimeState).
type Migration struct {
	ID      log.UUID  `json:"migration_id"`
	State   string    `json:"state"` // pending, in_progress, failed or completed
	Gen     uint64    `json:"gen"`
	Updated time.Time `json:"time_updated"`
}

// Final reports whether the VMM has ended.
func (v VMM) Final() bool { return v.State == VMMFailed || v.State == VMMDestroyed }

// Starter starts and stops VMs; *Runner does.
type Starter interface {
	Start(ctx context.Context, vm log.UUID) error
	Stop(ctx context.Context, vm log.UUID, force bool) error
}

// Config configures VMMs. Folder, Store and Starter must be given.
type Config struct {
	// Folder keeps a file for each VMM: states and generations outlive the
	// agent. It is made if it is not there.
	Folder string
	// Store has the state of the VMs.
	Store *vmstore.Store
	// Ready is closed once the store holds every VM (Service.Ready): before that, a VM
	// that is not in it has not ended. nil: it holds them already.
	Ready <-chan struct{}
	// Starter starts and stops VMs.
	Starter Starter
	// Refuses says why a VM cannot be started or stopped from here; nil: each can.
	Refuses func(vm log.UUID) error
	// Adopts are the names of the sources whose VMs get a VMM when they run without one,
	// whatever started them.
	Adopts []string
	// Placed returns the VMM of a VM that the log has on this node and that no node has told
	// a state of: an operator has made it for a VM that comes. The VM that runs takes it into
	// use. gen is its generation in the log. nil: none is placed.
	Placed func(vm log.UUID) (vmm log.UUID, gen uint64, is bool)
	// Ring is called for each VMM with a state that the log does not have. It must not
	// block, and may be called again for the same VMM: a ring is a hint. nil: no rings.
	Ring func(id log.UUID)
	// Logger; nil discards.
	Logger *slog.Logger
}

// Table are the VMMs of a compute node. Methods may be called from any goroutine,
// Run once.
type Table struct {
	cfg  Config
	jobs chan vmmJob

	mu         sync.Mutex // protects what follows; held while a file is written
	vmms       map[log.UUID]*VMM
	active     map[log.UUID]log.UUID // the VMM of a VM that has not ended
	unrecorded map[log.UUID]struct{} // VMMs whose state the log may not have
	// ended has the init processes of VMMs that were ended by request, until their VM
	// is seen without. They are not adopted while they are being stopped.
	ended   map[log.UUID]int
	waiting map[log.UUID]*waiting // of VMs that have jobs
	// saving collects the VMMs that are written together; nil: each is written alone.
	saving *batch
}

// New reads what the folder keeps.
func New(cfg Config) (*Table, error) {
	if cfg.Folder == "" || cfg.Store == nil || cfg.Starter == nil {
		return nil, errors.New("vminfo: VMMs need a folder, a store and a starter")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("vminfo: VMMs: %w", err)
	}
	m := &Table{
		cfg: cfg, jobs: make(chan vmmJob, maxVMMJobsWaiting), vmms: make(map[log.UUID]*VMM),
		active: make(map[log.UUID]log.UUID), unrecorded: make(map[log.UUID]struct{}), ended: make(map[log.UUID]int),
		waiting: make(map[log.UUID]*waiting),
	}
	if err := m.load(); err != nil {
		return nil, err
	}
	return m, nil
}

// Run compares the stored states with what VMs do, once they are loaded, and follows
// them until ctx ends.
func (m *Table) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		m.work(running)
		return nil
	})
	g.Go(func() error { return m.follow(running) })
	return g.Wait()
}

func (m *Table) follow(ctx context.Context) error {
	if m.cfg.Ready != nil {
		select {
		case <-m.cfg.Ready:
		case <-ctx.Done():
			return nil
		}
	}
	seq := m.observeAll()
	m.RingAll()
	for {
		events, changed, err := m.cfg.Store.Since(seq, vmstore.EventBatch)
		if err != nil {
			seq = m.observeAll() // the events were lost: the current state counts
			continue
		}
		for _, event := range events {
			seq = event.Seq
			m.passed(event)
			m.observe(event.UUID)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// observeAll inspects every VM, and returns the seq that it has seen.
func (m *Table) observeAll() uint64 {
	_, _, seq := m.cfg.Store.Kept()
	var vms []log.UUID
	for _, vmm := range m.List() {
		vms = append(vms, vmm.VM)
	}
	for _, source := range m.cfg.Adopts {
		vms = append(vms, m.cfg.Store.UUIDs(source)...)
	}
	for part := range slices.Chunk(vms, saveBatch) {
		m.mu.Lock()
		m.saving = new(batch)
		for _, vm := range part {
			m.observeLocked(vm)
		}
		m.saveAllLocked()
		m.mu.Unlock()
	}
	return seq
}

// observe derives the VMM's state from what the VM does.
func (m *Table) observe(vm log.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observeLocked(vm)
}

// lookLocked is observe for a VM about which a caller asks, so that the caller does not
// wait for Run.
func (m *Table) lookLocked(vm log.UUID) {
	select {
	case <-m.cfg.Ready:
	default:
		if m.cfg.Ready != nil {
			return // a VM that is not in the store may exist
		}
	}
	m.observeLocked(vm)
}

func (m *Table) observeLocked(vm log.UUID) {
	running, pid, adopt := m.seen(vm)
	if ended, ok := m.ended[vm]; ok && (!running || ended != pid) {
		delete(m.ended, vm)
	}
	vmm := m.activeLocked(vm)
	if vmm != nil {
		next, reason := nextState(*vmm, running, pid, m.waiting[vm] != nil)
		if next == VMMFailed && vmm.State == VMMRunning {
			next, reason = m.whyEnded(vm, reason)
		}
		updated := *vmm
		updated.State, updated.Reason = next, reason
		if running && next == VMMRunning {
			updated.PID = pid
		}
		if updated.State != vmm.State || updated.PID != vmm.PID {
			m.setLocked(updated)
		}
		vmm = m.activeLocked(vm)
	}
	_, ending := m.ended[vm]
	if vmm == nil && running && adopt && !ending {
		m.adoptLocked(vm, pid)
	}
}

// seen is the store's knowledge of a VM.
func (m *Table) seen(vm log.UUID) (running bool, pid int, adopt bool) {
	held, source, ok := m.cfg.Store.From(vm)
	if !ok {
		return false, 0, false
	}
	state, pid := runningOf(held.JSON)
	return state == "running", pid, slices.Contains(m.cfg.Adopts, source)
}

// runningOf reads a VM's state and init process; 0 means none.
func runningOf(text []byte) (state string, pid int) {
	v, err := vmdoc.ParseValue(text)
	if err != nil {
		panic("vminfo: a VM that is not JSON was stored")
	}
	number, _ := v.Get("pid")
	pid, _ = strconv.Atoi(number.Literal()) // 0: none
	return v.Text("state"), pid
}

// adoptLocked gives a VMM to a VM that runs without one.
func (m *Table) adoptLocked(vm log.UUID, pid int) {
	if len(m.vmms) >= maxVMMs {
		m.cfg.Logger.Error("a VM runs without a VMM: there are too many", "vm", vm, "vmms", len(m.vmms))
		return
	}
	vmm := VMM{ID: vmstore.RandomUUID(), VM: vm, State: VMMRunning, PID: pid}
	if m.cfg.Placed != nil {
		if id, gen, is := m.cfg.Placed(vm); is && m.vmms[id] == nil {
			// The first state that a node tells counts with the generation of what was placed.
			vmm.ID, vmm.Gen = id, max(gen, 1)-1
		}
	}
	m.setLocked(vmm)
}

// nextState is the next state of a VMM whose VM is seen running as pid, or not. A VM that
// has not been seen running yet may run all the same while jobs for it are to be done.
func nextState(v VMM, running bool, pid int, jobs bool) (state, reason string) {
	replaced := v.PID != 0 && pid != v.PID
	unseen := v.PID == 0 && jobs
	switch {
	case v.State == VMMStopping && (!running && !unseen || replaced):
		return VMMDestroyed, ""
	case v.State == VMMStarting && running, v.State == VMMMigrating && running, v.State == VMMRebooting && running && (replaced || v.PID == 0):
		return VMMRunning, ""
	case v.State == VMMRunning && (!running || replaced):
		return VMMFailed, fmt.Sprintf("init process %d ended, and nobody had asked for it", v.PID)
	}
	return v.State, v.Reason
}

// activeLocked returns the VMM of a VM that has not ended.
func (m *Table) activeLocked(vm log.UUID) *VMM {
	id, ok := m.active[vm]
	if !ok {
		return nil
	}
	return m.vmms[id]
}

// holdLocked keeps a VMM in memory.
func (m *Table) holdLocked(vmm *VMM) {
	m.vmms[vmm.ID] = vmm
	switch {
	case !vmm.Final():
		m.active[vmm.VM] = vmm.ID
	case m.active[vmm.VM] == vmm.ID:
		delete(m.active, vmm.VM)
	}
	if vmm.Recorded < vmm.Gen {
		m.unrecorded[vmm.ID] = struct{}{}
	} else {
		delete(m.unrecorded, vmm.ID)
	}
}

// setLocked gives a VMM its next generation, writes it to disk before it is visible,
// and rings.
func (m *Table) setLocked(vmm VMM) {
	vmm.Gen++
	vmm.Updated = time.Now().UTC()
	vmm.Migration = vmm.Migration.after(vmm)
	if m.saving != nil {
		m.saving.vmms = append(m.saving.vmms, vmm)
		m.holdLocked(&vmm)
		return
	}
	if err := m.save(vmm); err != nil {
		// It is visible all the same: after a restart it is observed again.
		m.cfg.Logger.Error("a VMM's state is not on disk", "vmm", vmm.ID, "state", vmm.State, "gen", vmm.Gen, "error", err)
	}
	m.holdLocked(&vmm)
	m.notifyLocked(vmm)
}

// notifyLocked logs a VMM's new state, and rings for it.
func (m *Table) notifyLocked(vmm VMM) {
	m.cfg.Logger.Info("VMM", "vmm", vmm.ID, "vm", vmm.VM, "state", vmm.State, "gen", vmm.Gen, "reason", vmm.Reason)
	if m.cfg.Ring != nil {
		m.cfg.Ring(vmm.ID)
	}
}

// after returns the state of a migration to this node with the VMM's new state: if the
// VMM ends, the migration fails; if it runs, the migration is complete.
func (g *Migration) after(vmm VMM) *Migration {
	if g == nil || g.State == "failed" || g.State == "completed" || !vmm.Final() && vmm.State != VMMRunning {
		return g
	}
	next := Migration{ID: g.ID, State: "completed", Gen: g.Gen + 1, Updated: vmm.Updated}
	if vmm.Final() {
		next.State = "failed"
	}
	return &next
}

// Register makes a VMM of a VM, in state starting (it is started by SetState).
// Registering it again changes nothing. Errors: ErrVMMClash, ErrVMMFinal.
func (m *Table) Register(id, vm log.UUID) (VMM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := m.vmms[id]; held != nil {
		if held.VM != vm {
			return *held, fmt.Errorf("%w: %s is a VMM of VM %s", ErrVMMClash, id, held.VM)
		}
		return *held, nil
	}
	if other := m.activeLocked(vm); other != nil {
		return VMM{}, fmt.Errorf("%w: %s", ErrVMMClash, other.ID)
	}
	if len(m.vmms) >= maxVMMs {
		return VMM{}, fmt.Errorf("vminfo: there are %d VMMs already", maxVMMs)
	}
	m.setLocked(VMM{ID: id, VM: vm, State: VMMStarting})
	return *m.vmms[id], nil
}

// Active returns the VMM of a VM that has not ended, as of what the store has now.
func (m *Table) Active(vm log.UUID) (VMM, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lookLocked(vm)
	if held := m.activeLocked(vm); held != nil {
		return *held, true
	}
	return VMM{}, false
}

// Get returns a VMM.
func (m *Table) Get(id log.UUID) (VMM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := m.vmms[id]; held != nil {
		return *held, nil
	}
	return VMM{}, fmt.Errorf("%w: %s", ErrNoVMM, id)
}

// List returns every VMM by id.
func (m *Table) List() []VMM {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]VMM, 0, len(m.vmms))
	for _, vmm := range m.vmms {
		list = append(list, *vmm)
	}
	slices.SortFunc(list, func(a, b VMM) int { return vmstore.CompareUUID(a.ID, b.ID) })
	return list
}

// SetState makes a VMM run, stop, reboot, or be the target of a migration, and returns
// the resulting state; what follows is observed later. changed is false if there was
// nothing to do. Errors: ErrNoVMM, ErrVMMFinal.
func (m *Table) SetState(id log.UUID, want string, migration log.UUID) (vmm VMM, changed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil {
		return VMM{}, false, fmt.Errorf("%w: %s", ErrNoVMM, id)
	}
	next := *held
	var job func(context.Context)
	if err := m.refused(held.VM); err != nil && !held.Final() && want != "migration_target" {
		return *held, false, err
	}
	switch {
	case held.Final() && want == "stopped":
		return *held, false, nil
	case held.Final():
		return *held, false, fmt.Errorf("%w: %s is %s", ErrVMMFinal, id, held.State)
	case want == "running" && held.State != VMMStarting && held.State != VMMMigrating,
		want == "stopped" && held.State == VMMStopping,
		want == "reboot" && held.State == VMMRebooting:
		return *held, false, nil
	case want == "running":
		return *held, false, m.enqueueLocked(held.VM, m.startJob(next))
	case want == "stopped":
		next.State, job = VMMStopping, m.stopJob(next, false)
	case want == "reboot":
		next.State, job = VMMRebooting, m.rebootJob(next)
	case want == "migration_target":
		next.State = VMMMigrating
		next.Migration = &Migration{ID: migration, State: "pending", Gen: 1, Updated: time.Now().UTC()}
	default:
		return *held, false, fmt.Errorf("vminfo: state %q: want running, stopped, reboot or migration_target", want)
	}
	if job != nil {
		if err := m.enqueueLocked(held.VM, job); err != nil {
			return *held, false, err
		}
	}
	m.setLocked(next) // the job waits for the lock when it observes
	return *m.vmms[id], true, nil
}
