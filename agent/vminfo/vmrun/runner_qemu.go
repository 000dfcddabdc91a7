package vmrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun/internal/isolate"
	"rutter/agent/vminfo/vmrun/internal/qemu"
	"rutter/agent/vminfo/vmrun/qmp"
	"rutter/log"
)

// Errors about machines of QEMU.
var (
	// ErrNoKVM: the node has no KVM, and the manifest does not ask for emulation.
	ErrNoKVM = qemu.ErrNoKVM
	// ErrNoTap: the tap of a NIC is not there.
	ErrNoTap = qemu.ErrNoTap
)

const (
	// tapsWithin is how long the start of a machine may wait until the agent has made the
	// taps of its NICs.
	tapsWithin = 30 * time.Second
	// tapsAgain is the pause between two checks.
	tapsAgain = 20 * time.Millisecond
	// qmpAgain is the pause between two attempts to reach a QEMU that begins.
	qmpAgain = 20 * time.Millisecond
	// powerAgain is the pause between two presses of a machine's power button: a guest that
	// boots does not see the first.
	powerAgain = 10 * time.Second
	// maxComplaint bounds the bytes of QEMU's standard error that an error carries.
	maxComplaint = 4 << 10
)

func (r *Runner) controlOf(id log.UUID) string {
	return filepath.Join(system.QEMUFolder(r.cfg.PIDs, id), system.QEMUControl)
}

// awaitTaps waits for the taps of a machine, without the VM's lock: a stop need not wait.
func (r *Runner) awaitTaps(ctx context.Context, m system.Manifest) error {
	p, err := programOf(m)
	if err != nil || p.machine == nil {
		return err
	}
	for deadline := time.Now().Add(tapsWithin); ; {
		err := p.machine.CheckTaps()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("vminfo: VM %s: %w", m.UUID, err)
		if !errors.Is(err, ErrNoTap) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w, after %s: is the NIC in the log, on this compute node, and the agent's port security on? `rutter agent status` says what it waits for", err, tapsWithin)
		}
		select {
		case <-time.After(tapsAgain):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// runMachine runs a VM by QEMU, and returns when QEMU answers.
func (r *Runner) runMachine(ctx context.Context, m system.Manifest, p program, cfg isolate.Config) error {
	opened, err := p.machine.Open(system.QEMUFolder(r.cfg.PIDs, m.UUID), isolate.FirstFile)
	if err != nil {
		return err
	}
	defer opened.Close()
	cfg.Line, cfg.Files = p.machine.Line(p.line[0], opened.Descriptors), opened.Files
	if cfg.Devices = p.machine.Devices(); p.machine.Accel == qemu.KVM {
		cfg.DeviceGroup = deviceGroup()
	}
	complaint, err := listenToComplaint()
	if err != nil {
		return err
	}
	defer complaint.close()
	cfg.Stderr = complaint.to
	child, err := r.begin(m.UUID, cfg)
	complaint.closeTo()
	if err != nil {
		return err
	}
	ended, err := r.become(ctx, m.UUID, child, p.line[0])
	if err != nil {
		return err
	}
	return r.awaitAnswer(ctx, m.UUID, ended, p.line[0], complaint)
}

// awaitAnswer returns when a QEMU that begins answers QMP, or has ended.
func (r *Runner) awaitAnswer(ctx context.Context, id log.UUID, ended <-chan error, program string, c *complaint) error {
	within, cancel := context.WithTimeout(ctx, initWithin)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		for {
			conn, err := qmp.Open(within, r.controlOf(id))
			if err == nil {
				_ = conn.Close()
			}
			if err == nil || within.Err() != nil {
				answered <- err
				return
			}
			select {
			case <-time.After(qmpAgain):
			case <-within.Done():
			}
		}
	}()
	select {
	case how := <-ended:
		cancel()
		<-answered
		return fmt.Errorf("%w%s", whyEnded(program, how), c.said())
	case err := <-answered:
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s does not answer within %s: %w", program, initWithin, err)
	}
}

// powerDown ends a machine by its power button, else by QMP's quit. It reports false if
// that did not help; then the process is to be killed.
func (r *Runner) powerDown(ctx context.Context, socket string, p system.Process) (ended bool, err error) {
	deadline := time.Now().Add(r.cfg.PowerDown)
	for left := r.cfg.PowerDown; left > 0; left = time.Until(deadline) {
		if r.tell(ctx, socket, "system_powerdown") != nil {
			break // it does not run, or does not answer
		}
		if ended, err = waitEnd(ctx, p.Fd, min(powerAgain, left)); ended || err != nil {
			return ended, err
		}
	}
	if !system.Lives(p.Fd) {
		return true, nil
	}
	if r.tell(ctx, socket, "quit") != nil && system.Lives(p.Fd) {
		return false, ctx.Err()
	}
	return waitEnd(ctx, p.Fd, r.cfg.Grace)
}

// errHalted: a machine whose processors do not run sees no power button.
var errHalted = errors.New("its processors are halted")

// tell gives a QEMU a command.
func (r *Runner) tell(ctx context.Context, socket, command string) error {
	conn, err := qmp.Open(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if command == "system_powerdown" {
		if state, err := conn.RunState(ctx); err != nil || state != "running" {
			return errors.Join(errHalted, err)
		}
	}
	_, err = conn.Execute(ctx, command)
	return err
}

// complaint is what QEMU writes to its standard error while it begins.
type complaint struct {
	from, to *os.File
	text     chan string
}

func listenToComplaint() (*complaint, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &complaint{from: from, to: to, text: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(from, maxComplaint)) // what came before an error counts
		c.text <- string(text)
	}()
	return c, nil
}

// closeTo closes this process's end for writing, so that the text ends with QEMU.
func (c *complaint) closeTo() { _ = c.to.Close() }

// close ends the reading: QEMU's later texts are lost, and do not stop it.
func (c *complaint) close() { _ = c.from.Close() }

// said returns the text of a QEMU that has ended.
func (c *complaint) said() string {
	_ = c.from.SetReadDeadline(time.Now().Add(time.Second)) // it has ended, so all of it is there
	if text := strings.TrimSpace(<-c.text); text != "" {
		return ": " + strings.ToValidUTF8(text, "?")
	}
	return ""
}

// deviceGroup is the group of this node's /dev/kvm, if only its members may use it.
func deviceGroup() uint32 {
	var st unix.Stat_t
	if unix.Stat("/dev/kvm", &st) != nil || st.Mode&0o006 == 0o006 || st.Mode&0o060 != 0o060 {
		return 0
	}
	return st.Gid
}
