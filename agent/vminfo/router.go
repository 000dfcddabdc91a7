package vminfo

import (
	"context"
	"fmt"

	"rutter/agent/vmsource"
	"rutter/log"
)

// Router sends what is asked about a VM to the VM's own source. It is a vmsource.Control.
// Errors are those of the source, and vmsource.ErrNoControl.
type Router struct{ Service *Service }

// Start implements vmsource.Control.
func (r Router) Start(ctx context.Context, vm log.UUID) error {
	control, err := r.starting(vm)
	if err != nil {
		return err
	}
	return control.Start(ctx, vm)
}

// Stop implements vmsource.Control.
func (r Router) Stop(ctx context.Context, vm log.UUID, force bool) error {
	control, err := r.Service.Control(vm)
	if err != nil {
		return err
	}
	return control.Stop(ctx, vm, force)
}

// Prepare implements vmsource.Preparer. vmsource.ErrNoPreparation: the source prepares
// nothing.
func (r Router) Prepare(ctx context.Context, vm log.UUID) error {
	control, err := r.starting(vm)
	if err != nil {
		return err
	}
	if preparer, is := control.(vmsource.Preparer); is {
		return preparer.Prepare(ctx, vm)
	}
	return vmsource.ErrNoPreparation
}

// starting is the control of a VM that is to be started. One that its source has put aside,
// because of its zonename for one, is not: it could get the links of another VM.
func (r Router) starting(vm log.UUID) (vmsource.Control, error) {
	if why := r.Service.asideOf(vm); why != "" {
		return nil, fmt.Errorf("%w: VM %s is put aside: %s", vmsource.ErrNoControl, vm, why)
	}
	return r.Service.Control(vm)
}

// Reboot reboots a VM whose source does that by itself; done is false for others.
func (r Router) Reboot(ctx context.Context, vm log.UUID) (done bool, err error) {
	control, err := r.Service.Control(vm)
	if err != nil {
		return false, err
	}
	if rebooter, is := control.(vmsource.Rebooter); is {
		return true, rebooter.Reboot(ctx, vm)
	}
	return false, nil
}

// Refuses says why a VM is not started or stopped from here, and what to do.
func (r Router) Refuses(vm log.UUID) error {
	_, err := r.Service.Control(vm)
	return err
}
