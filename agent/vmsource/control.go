package vmsource

import (
	"context"
	"errors"

	"rutter/log"
)

// ErrNoControl: the VM's source does not start and stop its VMs. The error says who does,
// and what to do.
var ErrNoControl = errors.New("vminfo: this VM is not started or stopped from here")

// ErrNoPreparation: the VM's source makes nothing of a VM before its start, so there is
// nothing to wait for.
var ErrNoPreparation = errors.New("vminfo: the VM's source prepares nothing")

// Control starts and stops the VMs of one source. Its methods may be called from any
// goroutine. They return when the act was done or refused; its effect is seen when the
// source reports it.
type Control interface {
	// Start starts a VM that does not run.
	Start(ctx context.Context, vm log.UUID) error
	// Stop ends a VM: it is asked to end, and with force ended at once.
	Stop(ctx context.Context, vm log.UUID, force bool) error
}

// Rebooter is a Control that reboots by itself: the process of the VM may be the same after
// it. VMs of others are stopped and started.
type Rebooter interface {
	// Reboot reboots a VM that runs.
	Reboot(ctx context.Context, vm log.UUID) error
}

// Preparer is a Control that makes a VM's namespace before its start, so that NICs can be
// put into it. The start waits for their addresses.
type Preparer interface {
	Prepare(ctx context.Context, vm log.UUID) error
}

// Controlled is a Source whose VMs may be started and stopped from here.
type Controlled interface {
	Source
	// Control returns what starts and stops the source's VMs. Otherwise the error is an
	// ErrNoControl, which says who does it and what to do.
	Control() (Control, error)
}
