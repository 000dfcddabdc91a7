package netsync

import (
	"context"
	"errors"
	"slices"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmmstate"
	"rutter/log"
)

// eventBatch is how many events of VMs are skipped at once.
const eventBatch = 256

// Local is the Node that package vminfo watches. VMs is called from one
// goroutine.
type Local struct {
	service *vminfo.Service
	runner  Manifests // nil: another program has the manifests
	vmms    *vmmstate.Table
	placed  []string // sources whose VMs the log places
	known   map[log.UUID]*parsed
}

// Manifests are those of the node's VMs: a vmrun.Runner, or the helper that runs VMs.
type Manifests interface {
	Manifest(id log.UUID) (vmdoc.Value, error)
	Stamp(id log.UUID) string
	Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error
}

// parsed is a VM as it was last read; it is read again when it changes.
type parsed struct {
	json  *byte // of the text that vminfod shows
	stamp string
	vm    VM
	bad   bool
	seen  bool
}

// NewLocal returns the node of a service. runner may be nil. placed are the names of the
// sources whose VMs the log places: VM.Placed.
func NewLocal(service *vminfo.Service, runner Manifests, vmms *vmmstate.Table, placed ...string) *Local {
	return &Local{service: service, runner: runner, vmms: vmms, placed: placed, known: make(map[log.UUID]*parsed)}
}

// Watch calls wake after each change of a VM, until ctx ends.
func (l *Local) Watch(ctx context.Context, wake func()) {
	select {
	case <-l.service.Ready():
	case <-ctx.Done():
		return
	}
	store := l.service.Store()
	_, _, seq := store.Kept()
	for {
		wake()
		events, changed, err := store.Since(seq, eventBatch)
		if err != nil {
			_, _, seq = store.Kept()
			continue
		}
		if len(events) > 0 {
			seq = events[len(events)-1].Seq
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// VMs implements Node.
func (l *Local) VMs() (vms []VM, gone func(vm log.UUID) bool) {
	unseen := l.service.Gone() // before the list: what comes meanwhile is in the list
	bad := make(map[log.UUID]bool)
	list, _ := l.service.Store().List()
	for _, shown := range list {
		p := l.read(shown)
		p.seen = true
		if p.bad {
			bad[shown.UUID] = true
			continue
		}
		vms = append(vms, p.vm)
	}
	for id, p := range l.known {
		if !p.seen {
			delete(l.known, id)
		}
		p.seen = false
	}
	return vms, func(vm log.UUID) bool { return !bad[vm] && unseen(vm) }
}

// read reads a VM if it has changed. A manifest that cannot be read is not written
// either.
func (l *Local) read(shown vmdoc.VM) *parsed {
	stamp := ""
	if l.runner != nil {
		stamp = l.runner.Stamp(shown.UUID)
	}
	if p := l.known[shown.UUID]; p != nil && p.json == &shown.JSON[0] && p.stamp == stamp {
		return p
	}
	p := &parsed{json: &shown.JSON[0], stamp: stamp}
	l.known[shown.UUID] = p
	value, err := vmdoc.ParseValue(shown.JSON)
	var manifest vmdoc.Value
	if stamp != "" {
		if manifest, err = l.runner.Manifest(shown.UUID); err != nil {
			manifest, err = vmdoc.Value{}, nil
			p.stamp = "" // read it again
		}
	}
	if err == nil {
		p.vm, err = VMOf(value, manifest)
		p.vm.Placed = slices.Contains(l.placed, l.service.Store().Holder(shown.UUID))
	}
	p.bad = err != nil
	return p
}

// Edit implements Node.
func (l *Local) Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error {
	if l.runner == nil {
		return errors.New("netsync: another program has the manifests")
	}
	return l.runner.Edit(id, change)
}

// Reboot implements Node. A VM that does not run needs none.
func (l *Local) Reboot(id log.UUID) error {
	running, active := l.vmms.Active(id)
	if !active {
		return nil
	}
	_, _, err := l.vmms.SetState(running.ID, "reboot", log.UUID{})
	if errors.Is(err, vmmstate.ErrVMMFinal) || errors.Is(err, vmmstate.ErrNoVMM) {
		return nil
	}
	return err
}
