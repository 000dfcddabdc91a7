package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmmstate"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
)

// vmRunner is the part of vminfo.Runner that this package uses.
type vmRunner interface {
	Manifest(id log.UUID) (vmdoc.Value, error)
	Prepare(ctx context.Context, id log.UUID) error
	Start(ctx context.Context, id log.UUID) error
	Stop(ctx context.Context, id log.UUID, force bool) error
	Create(v vmdoc.Value) error
	Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error
	Remove(ctx context.Context, id log.UUID) error
}

// vmms is the part of vminfo.VMMs that this package uses.
type vmms interface {
	Active(vm log.UUID) (vmmstate.VMM, bool)
	Get(id log.UUID) (vmmstate.VMM, error)
	SetState(id log.UUID, want string, migration log.UUID) (vmm vmmstate.VMM, changed bool, err error)
	Unregister(id log.UUID) (vmmstate.VMM, error)
	Settled(ctx context.Context, vm log.UUID) error
}

// Machines runs the tasks on the VMs of this node's manifests, the same way as `rutter
// vm`: each is done when its effect is seen.
type Machines struct {
	Runner vmRunner
	// Control starts and stops VMs, each by its own source; nil: Runner does.
	Control vmsource.Control
	Store   *vmstore.Store
	VMMs    vmms
	// Check refuses updates of a VM that are not allowed here, and sends the requested
	// changes of its NICs to the log; nil: all updates are allowed.
	Check func(ctx context.Context, manifest, fields vmdoc.Value) error
	// Programs allows tasks to choose what runs on this node: the fields of
	// vmrule.Programs. Without it, only manifests that are written on the node do.
	Programs bool
}

// Kinds are the tasks, by CNAPI's names for them.
func (m *Machines) Kinds() map[string]Kind {
	return map[string]Kind{
		"machine_create": m.create, "machine_boot": m.on(m.boot), "machine_shutdown": m.on(m.shutdown), "machine_reboot": m.on(m.reboot),
		"machine_update": m.update, "machine_destroy": m.on(m.destroy),
	}
}

// action has the parameters of a task on one VM.
type action struct {
	id    log.UUID
	Force bool
}

// on makes a Kind of an action on the VM that params names by uuid.
func (m *Machines) on(do func(ctx context.Context, a action) error) Kind {
	return func(ctx context.Context, params json.RawMessage) (any, error) {
		var p struct {
			UUID  string `json:"uuid"`
			Force any    `json:"force"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("params: %w", err)
		}
		id, err := log.ParseUUID(p.UUID)
		if err != nil {
			return nil, fmt.Errorf("params.uuid: %w", err)
		}
		if err := do(ctx, action{id, p.Force == true || p.Force == "true"}); err != nil {
			return nil, err
		}
		return m.seen(id), nil
	}
}

// seen returns a VM in its current state; nil if it is gone.
func (m *Machines) seen(id log.UUID) any {
	vm, ok := m.Store.Get(id)
	if !ok {
		return nil
	}
	v, err := vmdoc.ParseValue(vm.JSON)
	if err != nil {
		return nil
	}
	shown := map[string]vmdoc.Value{}
	for _, name := range []string{"uuid", "alias", "state", "zone_state", "pid", "last_modified"} {
		if field, ok := v.Get(name); ok {
			shown[name] = field
		}
	}
	return map[string]any{"vm": shown}
}

// How long the effect of an action may take to be seen, as in vmadm (spec/vminfod.md
// section 5.5), within the task's own time.
const (
	seenWithin = 60 * time.Second
	pollPause  = 100 * time.Millisecond // at the VMM, whose changes make no event
)

// condition is the state of a VM to wait for; there is false when the VM is gone.
type condition func(vm vmdoc.Value, there bool) bool

// await returns when the VM meets the condition.
func (m *Machines) await(ctx context.Context, id log.UUID, is condition) error {
	return m.awaitUnless(ctx, id, func() error { return nil }, is)
}

// stuck returns why a VMM has failed, or cannot be stopped.
func (m *Machines) stuck(vmm log.UUID) func() error {
	return func() error {
		if held, err := m.VMMs.Get(vmm); err == nil && held.Reason != "" {
			return fmt.Errorf("its VMM is %s: %s", held.State, held.Reason)
		}
		return nil // one that is gone was stopped
	}
}

// awaitUnless is await, and ends early when broken returns an error.
func (m *Machines) awaitUnless(ctx context.Context, id log.UUID, broken func() error, is condition) error {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	_, _, seq := m.Store.Kept()
	for {
		events, changed, err := m.Store.Since(seq, 1)
		if err != nil || len(events) > 0 { // events were lost, or there is a new one
			_, _, seq = m.Store.Kept()
			if _, changed, err = m.Store.Since(seq, 1); err != nil {
				continue
			}
		}
		vm, there := m.Store.Get(id)
		var v vmdoc.Value
		if there {
			if v, err = vmdoc.ParseValue(vm.JSON); err != nil {
				return err
			}
		}
		if is(v, there) {
			return nil
		}
		if err := broken(); err != nil {
			return fmt.Errorf("VM %s: %w", id, err)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("VM %s: what was done is not visible yet: %w", id, ctx.Err())
		}
	}
}

func textOf(v vmdoc.Value, name string) string {
	field, _ := v.Get(name)
	text, _ := field.String()
	return text
}

func runs(v vmdoc.Value, there bool) bool { return there && textOf(v, "state") == "running" }

// control is what starts and stops VMs.
func (m *Machines) control() vmsource.Control {
	if m.Control == nil {
		return m.Runner
	}
	return m.Control
}

// prepare makes a VM's namespace, where its source has that done before the start, and waits
// for the addresses of its NICs there.
func (m *Machines) prepare(ctx context.Context, a action) error {
	preparer, is := m.control().(vmsource.Preparer)
	if !is {
		return nil
	}
	if err := preparer.Prepare(ctx, a.id); errors.Is(err, vmsource.ErrNoPreparation) {
		return nil
	} else if err != nil {
		return err
	}
	prepared := func(v vmdoc.Value, there bool) bool {
		return there && textOf(v, "zone_state") != "installed" && vmdoc.Addressed(v)
	}
	if err := m.await(ctx, a.id, prepared); err != nil {
		return fmt.Errorf("waiting for its NICs (are they in the log, on this compute node?): %w", err)
	}
	return nil
}

func (m *Machines) boot(ctx context.Context, a action) error {
	if err := m.prepare(ctx, a); err != nil {
		return err
	}
	if err := m.control().Start(ctx, a.id); err != nil && !errors.Is(err, vmrun.ErrRunning) {
		return err
	}
	return m.await(ctx, a.id, runs)
}

func (m *Machines) shutdown(ctx context.Context, a action) error {
	vmm, managed := m.VMMs.Active(a.id)
	var err error
	switch {
	case !managed:
		err = m.control().Stop(ctx, a.id, a.Force)
	case a.Force:
		_, err = m.VMMs.Unregister(vmm.ID)
	default:
		_, _, err = m.VMMs.SetState(vmm.ID, "stopped", log.UUID{})
	}
	if err != nil && !errors.Is(err, vmrun.ErrNotRunning) {
		return err
	}
	if err := m.awaitUnless(ctx, a.id, m.stuck(vmm.ID), ended); err != nil {
		return err
	}
	return m.VMMs.Settled(ctx, a.id) // otherwise it could end what is started next
}

// ended: nothing is left of a VM except its manifest.
func ended(v vmdoc.Value, there bool) bool {
	return !there || textOf(v, "zone_state") == "installed"
}

func (m *Machines) reboot(ctx context.Context, a action) error {
	vmm, managed := m.VMMs.Active(a.id)
	if !managed || a.Force {
		if err := m.shutdown(ctx, a); err != nil {
			return err
		}
		return m.boot(ctx, a)
	}
	if _, _, err := m.VMMs.SetState(vmm.ID, "reboot", log.UUID{}); err != nil {
		return err
	}
	broken := func() error {
		if _, err := m.VMMs.Get(vmm.ID); err != nil {
			return err // it has failed, and the log has that
		}
		return m.stuck(vmm.ID)()
	}
	err := m.awaitUnless(ctx, a.id, broken, func(v vmdoc.Value, there bool) bool {
		pid, _ := v.Get("pid")
		return runs(v, there) && string(pid.AppendJSON(nil)) != fmt.Sprint(vmm.PID)
	})
	if err != nil {
		return err
	}
	return m.VMMs.Settled(ctx, a.id)
}

// manifest reads the manifest of a VM. Of a VM of another source the error says whose it is.
func (m *Machines) manifest(id log.UUID) (vmdoc.Value, error) {
	v, err := m.Runner.Manifest(id)
	if holder := m.Store.Holder(id); errors.Is(err, vmrun.ErrNoVM) && holder != "" {
		return v, fmt.Errorf("VM %s is one of %s and has no manifest: it is changed and removed there: %w", id, holder, err)
	}
	return v, err
}

// destroy ends a VM and removes its manifest. The node's NIC sync then removes its NICs
// from the log.
func (m *Machines) destroy(ctx context.Context, a action) error {
	if _, err := m.manifest(a.id); err != nil {
		return err
	}
	// A VMM that is being stopped must not be stopped a second time meanwhile.
	a.Force = true
	if err := m.shutdown(ctx, a); err != nil {
		return err
	}
	if err := m.Runner.Remove(ctx, a.id); err != nil {
		return err
	}
	return m.await(ctx, a.id, func(_ vmdoc.Value, there bool) bool { return !there })
}

// facts are read from the system, never from a manifest; orders belong to the task.
var (
	facts  = []string{"state", "zone_state", "pid", "boot_timestamp", "last_modified", "transition_to"}
	orders = []string{"force", "autoboot_now", "task", "networks"} // networks: the NICs on them are made from it
)

// fieldsOf reads the fields of a VM from params.
func fieldsOf(params json.RawMessage) (v vmdoc.Value, id log.UUID, err error) {
	if v, err = vmdoc.ParseValue(params); err != nil || !v.IsObject() {
		return v, id, fmt.Errorf("params: want the fields of a VM (%w)", err)
	}
	for _, name := range facts {
		if _, ok := v.Get(name); ok {
			return v, id, fmt.Errorf("params.%s: it is what the system says of a VM: leave it out", name)
		}
	}
	for _, name := range orders {
		v = v.Without(name)
	}
	if id, err = log.ParseUUID(textOf(v, "uuid")); err != nil {
		return v, id, fmt.Errorf("params.uuid: %w", err)
	}
	return v, id, nil
}

// create writes the manifest of a new VM, and starts it unless autoboot is false.
func (m *Machines) create(ctx context.Context, params json.RawMessage) (any, error) {
	v, id, err := fieldsOf(params)
	if err != nil {
		return nil, err
	}
	if owner, err := log.ParseUUID(textOf(v, "owner_uuid")); err != nil || owner.IsZero() {
		return nil, fmt.Errorf("params.owner_uuid: give the UUID of the VM's owner: %w", err)
	}
	if err := m.mayChoose(id, vmdoc.Value{}, v); err != nil {
		return nil, err
	}
	if err := m.Runner.Create(v); err != nil {
		return nil, err
	}
	if err := m.await(ctx, id, func(_ vmdoc.Value, there bool) bool { return there }); err != nil {
		return nil, err
	}
	if autoboot, ok := v.Get("autoboot"); !ok || string(autoboot.AppendJSON(nil)) != "false" {
		if err := m.boot(ctx, action{id: id}); err != nil {
			return m.seen(id), fmt.Errorf("the VM is created, and does not run: %w", err)
		}
	}
	return m.seen(id), nil
}

// update changes fields of a manifest. null removes a field, and vmadm's verbs change
// NICs, tags and metadata.
func (m *Machines) update(ctx context.Context, params json.RawMessage) (any, error) {
	fields, id, err := fieldsOf(params)
	if err != nil {
		return nil, err
	}
	fields = fields.Without("uuid")
	manifest, err := m.manifest(id)
	if err == nil {
		err = m.mayChoose(id, manifest, vmdoc.Updated(manifest, fields))
	}
	if err == nil && m.Check != nil {
		err = m.Check(ctx, manifest, fields)
	}
	if err != nil {
		return nil, err
	}
	var refused error
	err = m.Runner.Edit(id, func(v vmdoc.Value) vmdoc.Value {
		updated := vmdoc.Updated(v, fields)
		if refused = m.mayChoose(id, v, updated); refused != nil {
			return v // it was changed meanwhile
		}
		return updated
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	err = m.await(ctx, id, func(vm vmdoc.Value, there bool) bool {
		for _, name := range fields.Keys() {
			want, _ := fields.Get(name)
			if got, ok := vm.Get(name); name != "nics" && !vmdoc.IsVerb(name) && (want.IsNull() && !vmdoc.IsDefault(vm, name) && name != "zonename" || !want.IsNull() && (!ok || !got.Equal(want))) {
				return false
			}
		}
		return there
	})
	return m.seen(id), err
}
