package vmmstate

import (
	"fmt"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// Ended ends the VMM of a VM that its own program stopped, before the store shows that:
// destroyed, or failed if there is a failure. A VM without a VMM is nothing to end.
func (m *Table) Ended(vm log.UUID, failure string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.activeLocked(vm)
	if held == nil {
		return
	}
	m.ended[vm] = held.PID
	next := *held
	if next.State, next.Reason = VMMDestroyed, failure; failure != "" {
		next.State = VMMFailed
	}
	m.setLocked(next)
}

// passed takes note that a VM whose VMM was ended was seen not to run, also if it runs again
// already: a VM without a known process looks the same then.
func (m *Table) passed(event vmstore.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ended := m.ended[event.UUID]; !ended {
		return
	}
	v, err := vmdoc.ParseValue(event.Line)
	if err != nil {
		return // the present state counts
	}
	if vm, _ := v.Get("vm"); vm.Text("state") != "running" {
		delete(m.ended, event.UUID)
	}
}

// refused says why a VM cannot be started or stopped from here.
func (m *Table) refused(vm log.UUID) error {
	if m.cfg.Refuses == nil {
		return nil
	}
	return m.cfg.Refuses(vm)
}

// Unregister ends a VMM by force if it has not ended, and returns the resulting state.
// The stored VMM is removed when that state is recorded.
func (m *Table) Unregister(id log.UUID) (VMM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil {
		return VMM{}, fmt.Errorf("%w: %s", ErrNoVMM, id)
	}
	m.lookLocked(held.VM)
	if held = m.vmms[id]; held.Final() {
		return *held, nil
	}
	if err := m.refused(held.VM); err != nil {
		return *held, err
	}
	if err := m.enqueueLocked(held.VM, m.stopJob(*held, true)); err != nil {
		return *held, err
	}
	if held.PID != 0 {
		m.ended[held.VM] = held.PID
	}
	ended := *held
	ended.State, ended.Reason = VMMDestroyed, ""
	m.setLocked(ended)
	return *m.vmms[id], nil
}
