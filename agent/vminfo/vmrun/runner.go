package vmrun

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Errors of a Runner.
var (
	// ErrRunning: the VM's init process is already running.
	ErrRunning = errors.New("vminfo: the VM runs already")
	// ErrNotRunning: the VM has no running init process.
	ErrNotRunning = errors.New("vminfo: the VM does not run")
	// ErrNoVM: there is no manifest of that VM.
	ErrNoVM = errors.New("vminfo: no manifest of that VM")
)

// defaultGrace is how long an init process may take to end by itself.
const defaultGrace = 10 * time.Second

// defaultPowerDown is how long a machine may take to shut down: less than what `rutter vm
// stop` waits, so that it gets its answer.
const defaultPowerDown = 45 * time.Second

// Config configures a Runner: the folders of Config, with the same
// defaults.
type Config struct {
	Manifests, PIDs, NetNS, Cgroup string
	// EtcNetNS is where the agent writes the resolv.conf of network namespaces, which VMs
	// with a root get. Default /etc/netns, which has no files of namespaces in another
	// folder than that of ip-netns(8).
	EtcNetNS string
	// Grace is how long an init process may take to end after SIGTERM before it
	// is killed. Default 10 s.
	Grace time.Duration
	// PowerDown is how long a machine of QEMU may take to shut down after its power button
	// was pressed, before QEMU is ended. Default 45 s.
	PowerDown time.Duration
}

// Runner starts and stops the VMs of a folder of manifests. It keeps no state: what
// runs is found as Folder finds it, so one program may start what another stops.
// Concurrent calls about one VM wait for each other.
//
// It makes a VM's namespace, cgroup and init process (runner_command.go). Namespaces in
// another folder than that of ip-netns(8) must exist, and stay. The agent makes the
// NICs in the namespace.
type Runner struct {
	cfg    Config
	finder system.Finder
	lives  time.Duration // how long an init process must run; see initLives
}

// New returns a runner.
func New(cfg Config) (*Runner, error) {
	if cfg.Manifests == "" {
		return nil, system.ErrNoManifests
	}
	cfg.PIDs = cmp.Or(cfg.PIDs, system.DefaultPIDs)
	cfg.NetNS = cmp.Or(cfg.NetNS, system.DefaultNetNS)
	cfg.Cgroup = cmp.Or(cfg.Cgroup, system.DefaultCgroup())
	cfg.EtcNetNS = filepath.Clean(cmp.Or(cfg.EtcNetNS, ordinaryEtcNetNS))
	cfg.Grace = cmp.Or(cfg.Grace, defaultGrace)
	cfg.PowerDown = cmp.Or(cfg.PowerDown, defaultPowerDown)
	return &Runner{cfg: cfg, finder: system.Finder{PIDs: cfg.PIDs, Cgroup: cfg.Cgroup}, lives: initLives}, nil
}

// Folders returns the configuration, with the defaults in it.
func (r *Runner) Folders() Config { return r.cfg }

// load reads the manifest of a VM.
func (r *Runner) load(id log.UUID) (system.Manifest, error) {
	_, m, err := r.read(id)
	if err == nil && m.UUID != id {
		err = fmt.Errorf("vminfo: %s: it is that of VM %s", r.manifestOf(id), m.UUID)
	}
	if err != nil {
		return system.Manifest{}, err
	}
	return m, nil
}

// find finds the init process of a VM. The caller closes it.
func (r *Runner) find(m system.Manifest) (system.Process, bool) {
	ns := system.OpenNamespace(r.cfg.NetNS, m.Zone)
	defer ns.Close()
	vm := system.VM{UUID: m.UUID, Zone: m.Zone, HasCgroup: system.Exists(r.finder.CgroupOf(m.UUID))}
	return r.finder.InitProcess(vm, ns)
}

// Prepare makes the namespace of a VM and its cgroup with the limit from the manifest;
// what exists stays. Then the agent can put NICs into the namespace. Of a machine of QEMU it
// waits until its taps are there, at most 30 s (tapsWithin). Errors: ErrNoKVM, ErrNoTap, and
// about fields.
func (r *Runner) Prepare(ctx context.Context, id log.UUID) error {
	m, err := r.load(id)
	if err != nil {
		return err
	}
	unlock, err := r.lock(ctx, id)
	if err != nil {
		return err
	}
	err = r.prepare(ctx, m)
	unlock()
	if err != nil {
		return err
	}
	return r.awaitTaps(ctx, m)
}

func (r *Runner) prepare(ctx context.Context, m system.Manifest) error {
	id := m.UUID
	p, err := programOf(m)
	if err == nil && p.machine != nil {
		err = p.machine.Check()
	}
	if err != nil {
		return fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	ns := system.OpenNamespace(r.cfg.NetNS, m.Zone)
	ns.Close()
	if ns.Fd < 0 && !r.ordinary() {
		return fmt.Errorf("vminfo: VM %s: %s/%s is no network namespace, and ip-netns(8) makes them in %s only: make it there", id, r.cfg.NetNS, m.Zone, ordinaryNetNS)
	}
	if err := r.CheckCgroup(); err != nil {
		return fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	if ns.Fd < 0 {
		if err := command(ctx, "ip", "netns", "add", m.Zone); err != nil {
			return fmt.Errorf("vminfo: VM %s: namespace: %w", id, err)
		}
		if err := command(ctx, "ip", "-n", m.Zone, "link", "set", "lo", "up"); err != nil {
			return fmt.Errorf("vminfo: VM %s: namespace: %w", id, err)
		}
	}
	if err := r.makeCgroups(id); err != nil {
		return fmt.Errorf("vminfo: VM %s: cgroup: %w", id, err)
	}
	return r.limit(m)
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (r *Runner) pidFile(id log.UUID) string {
	return filepath.Join(r.cfg.PIDs, id.String()+".pid")
}

// Stop ends a VM: its init process by SIGTERM, after the grace or with force by SIGKILL; a
// machine of QEMU by its power button, after Config.PowerDown by QMP's quit; then what is left in its cgroup. Then it removes the cgroup, the namespace
// and the pid file. ErrNotRunning if none of these existed.
func (r *Runner) Stop(ctx context.Context, id log.UUID, force bool) error {
	m, err := r.load(id)
	if err != nil {
		return err
	}
	unlock, err := r.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	p, ran := r.find(m)
	if ran {
		err = r.end(ctx, id, p, force)
		_ = unix.Close(p.Fd)
		if err != nil {
			return fmt.Errorf("vminfo: VM %s: %w", id, err)
		}
	}
	if err := r.clear(ctx, m); err != nil {
		return fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	if !ran {
		return fmt.Errorf("%w: %s", ErrNotRunning, id)
	}
	return nil
}

// end signals a process by its pidfd, so that no other process is hit, and waits.
func (r *Runner) end(ctx context.Context, id log.UUID, p system.Process, force bool) error {
	signals := []unix.Signal{unix.SIGTERM, unix.SIGKILL}
	if socket := r.controlOf(id); !force && system.Exists(socket) {
		if ended, err := r.powerDown(ctx, socket, p); ended || err != nil {
			return err
		}
		force = true
	}
	if force || endsUnasked(p.Pid) {
		signals = signals[1:]
	}
	for _, signal := range signals {
		if err := unix.PidfdSendSignal(p.Fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("process %d: %w", p.Pid, err)
		}
		ended, err := waitEnd(ctx, p.Fd, r.cfg.Grace)
		if ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d lives on after SIGKILL: %w", p.Pid, vmdoc.ErrTimeout)
}

// endSlice is how long a wait for a process lasts before the context is checked.
const endSlice = 50 * time.Millisecond

func waitEnd(ctx context.Context, fd int, within time.Duration) (bool, error) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(set, int(endSlice/time.Millisecond))
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, err
		case n > 0:
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
	}
	return false, nil
}

// clear removes what a VM leaves behind.
func (r *Runner) clear(ctx context.Context, m system.Manifest) error {
	folder := r.finder.CgroupOf(m.UUID)
	deadline := time.Now().Add(r.cfg.Grace)
	for {
		err := os.Remove(folder)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			break
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("cgroup: %w", err)
		}
		r.killAll(folder)
		select {
		case <-time.After(endSlice / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ns := system.OpenNamespace(r.cfg.NetNS, m.Zone)
	ns.Close()
	if ns.Fd >= 0 && r.ordinary() {
		if err := command(ctx, "ip", "netns", "del", m.Zone); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	if err := os.Remove(r.pidFile(m.UUID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(system.QEMUFolder(r.cfg.PIDs, m.UUID)), r.removeCgroups(m.UUID), r.freeUsers(m.UUID))
}

// killAll kills what is in a cgroup.
func (r *Runner) killAll(folder string) {
	text, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}
