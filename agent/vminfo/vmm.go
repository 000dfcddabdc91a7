package vminfo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
	// ErrNoVMM: this node has no such VMM, and nothing is kept of it.
	ErrNoVMM = errors.New("vminfo: no such VMM here")
	// ErrVMMFinal: the VMM has ended; its state does not change any more.
	ErrVMMFinal = errors.New("vminfo: the VMM has ended")
	// ErrVMMClash: the VM has another VMM here that has not ended.
	ErrVMMClash = errors.New("vminfo: the VM has another VMM here")
)

// maxVMMs bounds the VMMs of one node, those included that have ended and are
// not recorded yet.
const maxVMMs = 20_000

// maxVMMJobs bounds how many VMs are started or stopped at once.
const maxVMMJobs = 8

// VMM is one running incarnation of a VM as this node knows it. Gen is this
// node's: +1 for each observation, and never lower, also after a restart.
type VMM struct {
	ID        log.UUID   `json:"id"`
	VM        log.UUID   `json:"vm"`
	State     string     `json:"state"`
	Gen       uint64     `json:"gen"`
	Updated   time.Time  `json:"time_updated"`
	Reason    string     `json:"reason,omitempty"` // of a failure
	PID       int        `json:"pid,omitempty"`    // of its init process, once it was seen
	Recorded  uint64     `json:"recorded"`         // the generation that the log has
	Migration *Migration `json:"migration_in,omitempty"`
}

// Migration is one that comes to this node (Omicron's MigrationRuntimeState).
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

// VMMConfig configures VMMs. Folder, Store and Starter must be given.
type VMMConfig struct {
	// Folder keeps a file for each VMM: states and generations outlive the
	// agent. It is made if it is not there.
	Folder string
	// Store tells what VMs do.
	Store *Store
	// Starter does what is asked for.
	Starter Starter
	// Ring is called for each VMM that has a state which the log has not. It
	// must not block, and may be called again for the same: a ring is a hint.
	// nil: nobody is told.
	Ring func(id log.UUID)
	// Logger; nil discards.
	Logger *slog.Logger
}

// VMMs are the VMMs of a compute node. Methods may be called from any goroutine,
// Run once.
type VMMs struct {
	cfg  VMMConfig
	jobs chan func(context.Context)

	mu   sync.Mutex // protects what follows; held while a file is written
	vmms map[log.UUID]*VMM
}

// NewVMMs reads what the folder keeps.
func NewVMMs(cfg VMMConfig) (*VMMs, error) {
	if cfg.Folder == "" || cfg.Store == nil || cfg.Starter == nil {
		return nil, errors.New("vminfo: VMMs need a folder, a store and a starter")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("vminfo: VMMs: %w", err)
	}
	m := &VMMs{cfg: cfg, jobs: make(chan func(context.Context), maxVMMs), vmms: make(map[log.UUID]*VMM)}
	names, err := filepath.Glob(filepath.Join(cfg.Folder, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("vminfo: VMMs: %w", err)
	}
	for _, name := range names {
		vmm := new(VMM)
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, vmm)
		}
		if err == nil && filepath.Base(name) != vmm.ID.String()+".json" {
			err = errors.New("it is that of VMM " + vmm.ID.String())
		}
		if err != nil {
			// A generation that began anew would be ignored by everybody.
			return nil, fmt.Errorf("vminfo: %s cannot be read, and its generation is needed: mend it, or move it away if the VMM is gone: %w", name, err)
		}
		m.vmms[vmm.ID] = vmm
	}
	return m, nil
}

// Run compares what is kept with what VMs do, and follows them until ctx ends.
// The store must be live.
func (m *VMMs) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		doing := new(errgroup.Group)
		doing.SetLimit(maxVMMJobs)
		defer func() { _ = doing.Wait() }() // jobs return no error
		for {
			select {
			case job := <-m.jobs:
				doing.Go(func() error { job(running); return nil })
			case <-running.Done():
				return nil
			}
		}
	})
	g.Go(func() error { return m.follow(running) })
	return g.Wait()
}

func (m *VMMs) follow(ctx context.Context) error {
	seq := m.observeAll()
	m.RingAll()
	for {
		events, changed, err := m.cfg.Store.Since(seq, eventBatch)
		if err != nil {
			seq = m.observeAll() // overtaken: what is there counts
			continue
		}
		for _, event := range events {
			seq = event.Seq
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

// observeAll looks at every VM, and returns the seq that it has seen.
func (m *VMMs) observeAll() uint64 {
	_, _, seq := m.cfg.Store.Kept()
	for _, vmm := range m.List() {
		m.observe(vmm.VM)
	}
	return seq
}

// observe takes what a VM does for its VMM's state.
func (m *VMMs) observe(vm log.UUID) {
	running, pid := false, 0
	if held, ok := m.cfg.Store.Get(vm); ok {
		v, err := ParseValue(held.JSON)
		if err != nil {
			panic("vminfo: a VM that is not JSON was stored")
		}
		running = v.textOf("state") == "running"
		number, _ := v.Get("pid")
		pid, _ = strconv.Atoi(number.text) // 0: none
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	vmm := m.activeLocked(vm)
	if vmm == nil {
		return
	}
	next, reason := nextState(*vmm, running, pid)
	if next == vmm.State && (pid == vmm.PID || !running) {
		return
	}
	updated := *vmm
	updated.State, updated.Reason = next, reason
	if running && next == VMMRunning {
		updated.PID = pid
	}
	m.setLocked(updated)
}

// nextState is what becomes of a VMM whose VM is seen running as pid, or not.
func nextState(v VMM, running bool, pid int) (state, reason string) {
	replaced := v.PID != 0 && pid != v.PID
	switch {
	case v.State == VMMStopping && (!running || replaced):
		return VMMDestroyed, ""
	case v.State == VMMStarting && running, v.State == VMMMigrating && running, v.State == VMMRebooting && running && replaced:
		return VMMRunning, ""
	case v.State == VMMRunning && (!running || replaced):
		return VMMFailed, fmt.Sprintf("init process %d ended, and nobody had asked for it", v.PID)
	}
	return v.State, v.Reason
}

// activeLocked is the VMM of a VM that has not ended.
func (m *VMMs) activeLocked(vm log.UUID) *VMM {
	for _, vmm := range m.vmms {
		if vmm.VM == vm && !vmm.Final() {
			return vmm
		}
	}
	return nil
}

// setLocked gives a VMM its next generation, on disk before anybody sees it,
// and rings.
func (m *VMMs) setLocked(vmm VMM) {
	vmm.Gen++
	vmm.Updated = time.Now().UTC()
	if err := m.save(vmm); err != nil {
		// Seen all the same: after a restart it is observed again.
		m.cfg.Logger.Error("a VMM's state is not on disk", "vmm", vmm.ID, "state", vmm.State, "gen", vmm.Gen, "error", err)
	}
	m.vmms[vmm.ID] = &vmm
	m.cfg.Logger.Info("VMM", "vmm", vmm.ID, "vm", vmm.VM, "state", vmm.State, "gen", vmm.Gen, "reason", vmm.Reason)
	if m.cfg.Ring != nil {
		m.cfg.Ring(vmm.ID)
	}
}

func (m *VMMs) path(id log.UUID) string {
	return filepath.Join(m.cfg.Folder, id.String()+".json")
}

// save writes a VMM's file so that it is whole after a crash, old or new.
func (m *VMMs) save(vmm VMM) error {
	text, err := json.Marshal(vmm)
	if err != nil {
		return err
	}
	temp := m.path(vmm.ID) + ".new"
	file, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, m.path(vmm.ID)); err != nil {
		return err
	}
	return syncFolder(m.cfg.Folder)
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Register makes a VMM of a VM, in state starting (it is started by SetState).
// Registering it again changes nothing. Errors: ErrVMMClash, ErrVMMFinal.
func (m *VMMs) Register(id, vm log.UUID) (VMM, error) {
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

// Unregister ends a VMM by force if it has not ended, and returns the state that
// results. What is kept of it goes when that is recorded.
func (m *VMMs) Unregister(id log.UUID) (VMM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil {
		return VMM{}, fmt.Errorf("%w: %s", ErrNoVMM, id)
	}
	if held.Final() {
		return *held, nil
	}
	ended := *held
	ended.State, ended.Reason = VMMDestroyed, ""
	m.setLocked(ended)
	m.jobs <- m.stopJob(ended, true)
	return *m.vmms[id], nil
}

// Get returns a VMM.
func (m *VMMs) Get(id log.UUID) (VMM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := m.vmms[id]; held != nil {
		return *held, nil
	}
	return VMM{}, fmt.Errorf("%w: %s", ErrNoVMM, id)
}

// List returns every VMM by id.
func (m *VMMs) List() []VMM {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]VMM, 0, len(m.vmms))
	for _, vmm := range m.vmms {
		list = append(list, *vmm)
	}
	slices.SortFunc(list, func(a, b VMM) int { return compareUUID(a.ID, b.ID) })
	return list
}

// SetState has a VMM run, stopped, rebooted or made the target of a migration,
// and returns the state that results now; what it leads to is observed later.
// changed is false when there was nothing to do. Errors: ErrNoVMM, ErrVMMFinal.
func (m *VMMs) SetState(id log.UUID, want string, migration log.UUID) (vmm VMM, changed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil {
		return VMM{}, false, fmt.Errorf("%w: %s", ErrNoVMM, id)
	}
	next := *held
	var job func(context.Context)
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
		m.jobs <- m.startJob(next)
		return *held, false, nil
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
	m.setLocked(next)
	if job != nil {
		m.jobs <- job
	}
	return *m.vmms[id], true, nil
}

func (m *VMMs) startJob(vmm VMM) func(context.Context) {
	return func(ctx context.Context) {
		if err := m.cfg.Starter.Start(ctx, vmm.VM); err != nil && !errors.Is(err, ErrRunning) {
			m.becomeFailed(vmm.ID, err)
		}
		m.observe(vmm.VM)
	}
}

func (m *VMMs) stopJob(vmm VMM, force bool) func(context.Context) {
	return func(ctx context.Context) {
		if err := m.cfg.Starter.Stop(ctx, vmm.VM, force); err != nil && !errors.Is(err, ErrNotRunning) {
			m.cfg.Logger.Error("a VM did not stop", "vmm", vmm.ID, "vm", vmm.VM, "error", err)
			return
		}
		m.observe(vmm.VM)
	}
}

func (m *VMMs) rebootJob(vmm VMM) func(context.Context) {
	return func(ctx context.Context) {
		err := m.cfg.Starter.Stop(ctx, vmm.VM, false)
		if err == nil || errors.Is(err, ErrNotRunning) {
			err = m.cfg.Starter.Start(ctx, vmm.VM)
		}
		if err != nil {
			m.becomeFailed(vmm.ID, err)
		}
	}
}

func (m *VMMs) becomeFailed(id log.UUID, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil || held.Final() {
		return
	}
	failed := *held
	failed.State, failed.Reason = VMMFailed, cause.Error()
	m.setLocked(failed)
}

// Recorded states that the log has a VMM's state of generation gen. A VMM that
// ended in it is forgotten; an older generation, or one that this node never
// gave, changes nothing.
func (m *VMMs) Recorded(id log.UUID, gen uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil || gen <= held.Recorded || gen > held.Gen {
		return nil
	}
	if held.Final() && gen == held.Gen {
		if err := os.Remove(m.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("vminfo: VMM %s: %w", id, err)
		}
		delete(m.vmms, id)
		return nil
	}
	recorded := *held
	recorded.Recorded = gen
	m.vmms[id] = &recorded
	return m.save(recorded)
}

// RingAll rings for each VMM whose state the log may not have: after a start,
// and after each new connection to a server.
func (m *VMMs) RingAll() {
	for _, vmm := range m.List() {
		if vmm.Recorded < vmm.Gen && m.cfg.Ring != nil {
			m.cfg.Ring(vmm.ID)
		}
	}
}

// apiVersion is one version of what the agent answers.
type apiVersion struct{ major, minor, patch uint64 }

// The versions. 2.0.0 adds the reason of a failure.
var (
	vmmV1 = apiVersion{1, 0, 0}
	vmmV2 = apiVersion{2, 0, 0}
)

func (v apiVersion) compare(w apiVersion) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor), cmp.Compare(v.patch, w.patch))
}

// parseVersion reads MAJOR.MINOR.PATCH (semver.org, 2), without what may follow.
func parseVersion(text string) (apiVersion, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return apiVersion{}, fmt.Errorf("%q is no MAJOR.MINOR.PATCH", text)
	}
	var numbers [3]uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return apiVersion{}, fmt.Errorf("%q is no MAJOR.MINOR.PATCH", text)
		}
		numbers[i] = n
	}
	return apiVersion{numbers[0], numbers[1], numbers[2]}, nil
}
