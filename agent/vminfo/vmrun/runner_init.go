package vmrun

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/vmrun/internal/isolate"
	"rutter/log"
)

// Errors about an init process that was started.
var (
	// ErrNoInit: the program of the manifest's init cannot be run.
	ErrNoInit = errors.New("vminfo: the program cannot be run")
	// ErrInitEnded: it ran and ended at once.
	ErrInitEnded = errors.New("vminfo: it ended at once")

	// errLate: the caller's time ended while the program was starting. It may run.
	errLate = errors.New("it is not known to run")
)

const (
	// initWithin is how long a process may take to become the init program.
	initWithin = 30 * time.Second
	// initLives is how long an init process must run before Start reports success: a
	// process with wrong settings ends sooner.
	initLives = 20 * time.Millisecond
)

// awaitInit lets a process become the VM's init, and returns when it has run for a
// moment. It then writes the pid file.
func (r *Runner) awaitInit(ctx context.Context, id log.UUID, child *isolate.Child, program string) error {
	ended, err := r.become(ctx, id, child, program)
	if err != nil {
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

// become lets a process become the VM's program, and writes the pid file. ended receives
// how it ended.
func (r *Runner) become(ctx context.Context, id log.UUID, child *isolate.Child, program string) (ended <-chan error, err error) {
	within, cancel := context.WithTimeout(ctx, initWithin)
	err = child.Run(within)
	cancel()
	if err != nil {
		child.Abort()
		_ = child.Wait()
		if errors.Is(err, isolate.ErrNotFound) || errors.Is(err, isolate.ErrCannotRun) {
			err = fmt.Errorf("%w: %s: %w", ErrNoInit, program, err)
		}
		return nil, err
	}
	end := make(chan error, 1)
	go func() { end <- child.Wait() }() // a zombie would keep its namespace's number
	// It may end at once; it counts as having run.
	if err := r.writePID(id, child.PID); err != nil {
		return nil, errors.Join(errLate, err)
	}
	return end, nil
}

// whyEnded says how a program ended. The cause is only text: its exit status is not
// ours.
func whyEnded(program string, how error) error {
	if how == nil {
		return fmt.Errorf("%w: %s: exit status 0", ErrInitEnded, program)
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

// endsUnasked reports whether SIGTERM has no effect on a process although the process
// did not choose so: the kernel does not deliver it to the first process of a pid
// namespace without a handler (pid_namespaces(7)). Elsewhere the signal would end the
// process, so SIGKILL does the same. Errors count as false.
func endsUnasked(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	first := false
	const term = 1 << (unix.SIGTERM - 1)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch fields := strings.Fields(value); name {
		case "NSpid":
			first = len(fields) > 1 && fields[len(fields)-1] == "1"
		case "SigBlk", "SigIgn", "SigCgt":
			if set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil || set&term != 0 {
				return false
			}
		}
	}
	return first
}
