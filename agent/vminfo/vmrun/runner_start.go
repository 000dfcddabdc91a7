package vmrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun/internal/isolate"
	"rutter/log"
)

// ordinaryEtcNetNS is where ip-netns(8) has the files of namespaces.
const ordinaryEtcNetNS = "/etc/netns"

// maxHostname bounds the bytes of a machine's name (uname(2)).
const maxHostname = 64

// Start starts the init process of a VM in what Prepare made. The process outlives this
// program. The manifest's "init" is its command line, a list of strings, and "root" the
// folder that is its file system; without an init, it sleeps. It runs apart from the
// node, as package isolate says. A machine of QEMU has started when QEMU answers. Errors:
// ErrRunning, ErrNoRoot, ErrRoot, ErrNoInit, ErrInitEnded, ErrNoKVM, ErrNoTap.
func (r *Runner) Start(ctx context.Context, id log.UUID) error {
	m, err := r.load(id)
	if err != nil {
		return err
	}
	unlock, err := r.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if p, ok := r.find(m); ok {
		_ = unix.Close(p.Fd)
		return fmt.Errorf("%w: %s, process %d", ErrRunning, id, p.Pid)
	}
	if err := r.prepare(ctx, m); err != nil {
		return err
	}
	if err := r.run(ctx, m); err != nil {
		if !errors.Is(err, ErrInitEnded) && !errors.Is(err, errLate) {
			err = errors.Join(err, r.clear(context.WithoutCancel(ctx), m))
		}
		return fmt.Errorf("vminfo: VM %s: init: %w", id, err)
	}
	return nil
}

// run runs the program of a VM, and returns when it has run for a moment.
func (r *Runner) run(ctx context.Context, m system.Manifest) error {
	p, err := programOf(m)
	if err != nil {
		return err
	}
	cfg := isolate.Config{NetNS: filepath.Join(r.cfg.NetNS, m.Zone), Line: p.line, Hostname: hostname(m)}
	if cfg.Base, err = r.takeUsers(m.UUID); err != nil {
		return err
	}
	if p.root != "" {
		if cfg.Root, err = openRoot(p.root); err != nil {
			return err
		}
		defer cfg.Root.Close()
	}
	if r.cfg.EtcNetNS != ordinaryEtcNetNS || r.ordinary() {
		cfg.Resolver = filepath.Join(r.cfg.EtcNetNS, m.Zone, "resolv.conf")
	}
	if p.machine != nil {
		return r.runMachine(ctx, m, p, cfg)
	}
	child, err := r.begin(m.UUID, cfg)
	if err != nil {
		return err
	}
	return r.awaitInit(ctx, m.UUID, child, p.line[0])
}

// begin starts the process of a VM, which waits in the VM's cgroups.
func (r *Runner) begin(id log.UUID, cfg isolate.Config) (*isolate.Child, error) {
	child, err := isolate.Begin(cfg)
	if err != nil {
		return nil, err
	}
	if err := r.admit(id, child.PID); err != nil {
		child.Abort()
		_ = child.Wait()
		return nil, err
	}
	return child, nil
}

// hostname is the name that a VM's programs see of their machine.
func hostname(m system.Manifest) string {
	name := cmp.Or(m.Value.Text("hostname"), m.Value.Text("alias"), m.UUID.String())
	return name[:min(len(name), maxHostname)]
}

// admit puts a process into the VM's cgroups.
func (r *Runner) admit(id log.UUID, pid int) error {
	for _, folder := range r.cgroups(id) {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), fmt.Append(nil, pid), 0o644); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}
