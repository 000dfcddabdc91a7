package vmrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Errors about an init process that was started.
var (
	// ErrNoInit: the program of the manifest's init cannot be run.
	ErrNoInit = errors.New("vminfo: the program cannot be run")
	// ErrInitEnded: it ran and ended at once.
	ErrInitEnded = errors.New("vminfo: it ended at once")
)

const (
	// initWithin is how long a shell may take to become the init program.
	initWithin = 5 * time.Second
	// initLives is how long an init process must run before Start reports success: a
	// process with wrong settings ends sooner.
	initLives = 20 * time.Millisecond
)

// The exit statuses of a shell whose exec failed (POSIX.1-2017, 2.8.2).
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// awaitInit returns when a process has become the VM's init and has run for a moment.
// It then writes the pid file.
func (r *Runner) awaitInit(ctx context.Context, id log.UUID, pid int, program string, ended <-chan error) error {
	late := time.NewTimer(initWithin)
	defer late.Stop()
	for !system.HasStarted(pid) {
		select {
		case how := <-ended:
			return whyEnded(program, how) // it may have been the program already
		case <-late.C:
			return fmt.Errorf("process %d is still no init after %s: %w", pid, initWithin, vmdoc.ErrTimeout)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(system.InitPoll):
		}
	}
	// It may end at once; it counts as having run.
	if err := r.writePID(id, pid); err != nil {
		return err
	}
	select {
	case how := <-ended:
		return whyEnded(program, how)
	case <-time.After(r.lives):
	}
	select {
	case how := <-ended: // meanwhile, on a machine that stood still
		return whyEnded(program, how)
	default:
		return nil
	}
}

// whyEnded distinguishes a program that could not be run from one that ended, by the
// process's exit status. The cause is only text: its exit status is not ours.
func whyEnded(program string, how error) error {
	var exit *exec.ExitError
	switch {
	case how == nil:
		return fmt.Errorf("%w: %s: exit status 0", ErrInitEnded, program)
	case errors.As(how, &exit) && exit.ExitCode() == exitNotFound:
		return fmt.Errorf("%w: %s: there is no such file (%v)", ErrNoInit, program, how)
	case errors.As(how, &exit) && exit.ExitCode() == exitCannotRun:
		return fmt.Errorf("%w: %s: is there such a file, and is it executable? (%v)", ErrNoInit, program, how)
	}
	return fmt.Errorf("%w: %s: %v", ErrInitEnded, program, how)
}

// writePID writes the pid file of a VM atomically.
func (r *Runner) writePID(id log.UUID, pid int) error {
	if err := os.MkdirAll(r.cfg.PIDs, 0o755); err != nil {
		return err
	}
	path := r.pidFile(id)
	if err := os.WriteFile(path+".new", append(strconv.AppendInt(nil, int64(pid), 10), '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
