package vmsource

import (
	"context"
	"errors"
	"fmt"

	"rutter/log"
)

// ErrNoControl: the VM's source does not start and stop its VMs. The error says who does,
// and what to do.
var ErrNoControl = errors.New("vminfo: this VM is not started or stopped from here")

// NoControl is an ErrNoControl about a VM of a source: what says who does it, and what to do.
func NoControl(source, what string) error {
	return fmt.Errorf("%w: it is one of %s: %s", ErrNoControl, source, what)
}

// ErrNoPreparation: the VM's source makes nothing of a VM before its start, so there is
// nothing to wait for.
var ErrNoPreparation = errors.New("vminfo: the VM's source prepares nothing")

// ErrUnreachable: what starts and stops the VM does not answer. It is not known whether it did
// what it was asked for; the VM is as its source reports it.
var ErrUnreachable = errors.New("vminfo: what starts and stops this VM does not answer")

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
