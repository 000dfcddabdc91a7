package vmmstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
)

// maxVMMJobs bounds how many VMs are started or stopped at once.
const maxVMMJobs = 8

// maxVMMJobsWaiting bounds how many more wait for that; further callers get ErrBusy.
const maxVMMJobsWaiting = 1000

// nicsWithin is how long the start of a VM may wait until the agent has put its NICs
// into its namespace.
const nicsWithin = 30 * time.Second

// An interface that is asserted at run time stops matching without an error when a name
// changes.
var _ vmsource.Preparer = (*vmrun.Runner)(nil)

// rebooter is a Starter that reboots VMs whose sources do that by themselves; vminfo.Router
// is one.
type rebooter interface {
	Reboot(ctx context.Context, vm log.UUID) (done bool, err error)
}

// start starts a VM once its NICs are there.
func (m *Table) start(ctx context.Context, vm log.UUID) error {
	if p, ok := m.cfg.Starter.(vmsource.Preparer); ok {
		err := p.Prepare(ctx, vm)
		if err == nil {
			err = m.awaitNICs(ctx, vm)
		}
		if err != nil && !errors.Is(err, vmsource.ErrNoPreparation) {
			return err
		}
	}
	return m.cfg.Starter.Start(ctx, vm)
}

func (m *Table) awaitNICs(ctx context.Context, vm log.UUID) error {
	late := time.NewTimer(nicsWithin)
	defer late.Stop()
	_, _, seq := m.cfg.Store.Kept()
	for {
		held, ok := m.cfg.Store.Get(vm)
		if !ok {
			return nil // Start returns the error
		}
		v, err := vmdoc.ParseValue(held.JSON)
		if err != nil {
			panic("vminfo: a VM that is not JSON was stored")
		}
		nics, _ := v.Get("nics")
		if len(nics.Items()) == 0 || v.Text("zone_state") != "installed" && vmdoc.Addressed(v) {
			return nil
		}
		events, changed, err := m.cfg.Store.Since(seq, vmstore.EventBatch)
		if err != nil {
			_, _, seq = m.cfg.Store.Kept()
			continue
		}
		if len(events) > 0 {
			seq = events[len(events)-1].Seq
			continue
		}
		select {
		case <-changed:
		case <-late.C:
			return fmt.Errorf("vminfo: VM %s: its NICs %s have no addresses after %s: are they in the log, on this compute node, has it an underlay, and does the agent reach a server?", vm, strings.Join(vmdoc.Unaddressed(v), ", "), nicsWithin)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// vmmJob is a job for a VM.
type vmmJob struct {
	vm log.UUID
	do func(context.Context)
}

// waiting has the jobs of a VM that are not done.
type waiting struct {
	count int
	done  chan struct{} // closed when there are none
}

// enqueueLocked passes a job to Run, and never waits.
func (m *Table) enqueueLocked(vm log.UUID, do func(context.Context)) error {
	w := m.waiting[vm]
	if w == nil {
		w = &waiting{done: make(chan struct{})}
	}
	done := func(ctx context.Context) {
		do(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if w.count--; w.count == 0 {
			delete(m.waiting, vm)
			m.observeLocked(vm) // what waited for the last of them: see nextState
			close(w.done)
		}
	}
	select {
	case m.jobs <- vmmJob{vm, done}:
		w.count++
		m.waiting[vm] = w
		return nil
	default:
		return fmt.Errorf("%w: %d wait already", ErrBusy, cap(m.jobs))
	}
}

// Settled returns when all requested work for a VM is done, or ctx ends: earlier
// requests do not undo what the caller does to the VM then.
func (m *Table) Settled(ctx context.Context, vm log.UUID) error {
	m.mu.Lock()
	w := m.waiting[vm]
	m.mu.Unlock()
	if w == nil {
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("vminfo: VM %s: what was asked for before is not done: %w", vm, ctx.Err())
	}
}

// work does the jobs until ctx ends: several at once, but those of one VM one after the
// other, in order. Otherwise a reboot could end what the job before still starts.
func (m *Table) work(ctx context.Context) {
	doing := new(errgroup.Group)
	doing.SetLimit(maxVMMJobs)
	defer func() { _ = doing.Wait() }()      // jobs return no error
	last := make(map[log.UUID]chan struct{}) // closed when a VM's last job is done
	for {
		select {
		case job := <-m.jobs:
			before, done := last[job.vm], make(chan struct{})
			maps.DeleteFunc(last, func(_ log.UUID, done chan struct{}) bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			last[job.vm] = done
			doing.Go(func() error {
				defer close(done)
				if before != nil {
					<-before // it was begun before this one, so it has a slot
				}
				job.do(ctx)
				return nil
			})
		case <-ctx.Done():
			return
		}
	}
}

func (m *Table) startJob(vmm VMM) func(context.Context) {
	return func(ctx context.Context) {
		if err := m.start(ctx, vmm.VM); err != nil && !errors.Is(err, vmrun.ErrRunning) {
			m.becomeFailed(vmm.ID, err)
		}
		m.observe(vmm.VM)
	}
}

func (m *Table) stopJob(vmm VMM, force bool) func(context.Context) {
	return func(ctx context.Context) {
		err := m.cfg.Starter.Stop(ctx, vmm.VM, force)
		if err != nil && !errors.Is(err, vmrun.ErrNotRunning) && ctx.Err() == nil {
			err = m.cfg.Starter.Stop(ctx, vmm.VM, true)
		}
		if err != nil && !errors.Is(err, vmrun.ErrNotRunning) {
			m.cfg.Logger.Error("a VM did not stop, also not by force", "vmm", vmm.ID, "vm", vmm.VM, "error", err)
			m.stillStopping(vmm.ID, err)
		}
		m.observe(vmm.VM)
	}
}

func (m *Table) rebootJob(vmm VMM) func(context.Context) {
	return func(ctx context.Context) {
		if r, ok := m.cfg.Starter.(rebooter); ok {
			if done, err := r.Reboot(ctx, vmm.VM); done {
				m.rebooted(vmm.ID, err)
				return
			}
		}
		err := m.cfg.Starter.Stop(ctx, vmm.VM, false)
		if errors.Is(err, vmsource.ErrUnreachable) {
			m.rebooted(vmm.ID, err) // if it has ended all the same, its source reports that
			return
		}
		if err == nil || errors.Is(err, vmrun.ErrNotRunning) {
			err = m.start(ctx, vmm.VM)
		}
		if err != nil {
			m.becomeFailed(vmm.ID, err)
		}
	}
}

// rebooted ends the reboot of a VMM whose VM's source did it, or could not.
func (m *Table) rebooted(id log.UUID, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil || held.State != VMMRebooting {
		return
	}
	next := *held
	next.State = VMMRunning
	if cause != nil {
		next.Reason = "it was not rebooted: " + cause.Error()
	}
	m.setLocked(next)
}

// stillStopping records on a VMM why its VM did not stop.
func (m *Table) stillStopping(id log.UUID, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := m.vmms[id]; held != nil && held.State == VMMStopping {
		stuck := *held
		stuck.Reason = cause.Error()
		m.setLocked(stuck)
	}
}

func (m *Table) becomeFailed(id log.UUID, cause error) {
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
