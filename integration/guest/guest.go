package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Inside is the environment variable that Run sets to "1" in the guest, so that
// a test can tell where it runs.
const Inside = "RUTTER_GUEST"

// The defaults of Config.
const (
	// DefaultMemoryMiB is enough for three agents with their links; the host
	// pays only for what the guest touches.
	DefaultMemoryMiB = 1024
	// DefaultTimeout is ten times what the longest known test takes.
	DefaultTimeout = 2 * time.Minute
)

const (
	// tailBytes is how much of the guest's last output an error carries.
	tailBytes = 4 << 10
	// endDelay is how long Run waits, after the kernel has ended or was
	// killed, for the rest of its output.
	endDelay = 5 * time.Second
)

// Config says what to run in the guest. Binary is required.
type Config struct {
	// Binary is the host path of a static executable. The guest runs it from
	// /program under the same base name, in the folder /.
	Binary string
	// Args are its arguments, without its name.
	Args []string
	// Env are "KEY=value" pairs besides PATH, HOME, TMPDIR and Inside.
	Env []string
	// Files are regular files to have in the guest, as guest path (absolute,
	// outside of /dev /proc /sys /run /tmp) to host path. They are copied with
	// their permissions.
	Files map[string]string
	// MemoryMiB is the guest's memory; 0 means DefaultMemoryMiB.
	MemoryMiB int
	// Timeout bounds the whole run with boot and halt; 0 means DefaultTimeout.
	Timeout time.Duration
	// Output receives the guest's console: the program's standard output and
	// error, and what the kernel says when it halts or dies; nil discards it.
	// It is written to by one goroutine.
	Output io.Writer
}

func (c Config) withDefaults() Config {
	if c.MemoryMiB == 0 {
		c.MemoryMiB = DefaultMemoryMiB
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Output == nil {
		c.Output = io.Discard
	}
	return c
}

// Run boots a guest, runs cfg.Binary in it, halts it and returns the exit code
// of the program; an exit code other than 0 is no error. The error says why
// there is no exit code: no guest kernel here, a Config that cannot work, the
// end of ctx or of the timeout, or a guest that died; then it carries the end of
// the guest's output, and the code is -1.
func Run(ctx context.Context, cfg Config) (exitCode int, err error) {
	cfg = cfg.withDefaults()
	h, err := findHost(cfg.MemoryMiB)
	if err != nil {
		return -1, err
	}
	dir, err := os.MkdirTemp("", "rutter-guest-")
	if err != nil {
		return -1, fmt.Errorf("guest: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	root := filepath.Join(dir, "root")
	if err := buildRoot(root, h, cfg); err != nil {
		return -1, fmt.Errorf("guest: %w", err)
	}
	out := &console{to: cfg.Output}
	if err := boot(ctx, h, cfg, dir, root, out); err != nil {
		return -1, fmt.Errorf("guest: %w; its output ended with:\n%s", err, out.tail)
	}
	code, err := readExitCode(root)
	if err != nil {
		return -1, fmt.Errorf("guest: %w; its output ended with:\n%s", err, out.tail)
	}
	return code, nil
}

// boot runs the guest kernel until it halts. Its processes are a session of
// their own, which is also a process group, so that its end is the end of all.
func boot(ctx context.Context, h host, cfg Config, dir, root string, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("no end after %v", cfg.Timeout))
	defer cancel()

	cmd := exec.CommandContext(ctx, h.kernel,
		"mem="+strconv.Itoa(cfg.MemoryMiB)+"M",
		"root=/dev/root", "rootfstype=hostfs", "rootflags="+root, "rw",
		"con=null", "con0=null,fd:1", "quiet", "loglevel=1",
		"init=/init", "uml_dir="+dir, "umid=control")
	cmd.Env = []string{"TMPDIR=" + h.memoryDir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = endDelay
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup

	// Pdeathsig ends the guest with us. The kernel sends it at the end of the
	// starting thread (prctl(2)), which therefore must not end before.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && cmd.Process != nil {
		// The kernel died: what it left behind, if anything, is in its group.
		if killErr := killGroup(); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			return errors.Join(err, killErr)
		}
	}
	return err
}

func readExitCode(root string) (int, error) {
	text, err := os.ReadFile(filepath.Join(root, exitFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, errors.New("it halted before the program ended")
	}
	if err != nil {
		return 0, err
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the exit code: %w", err)
	}
	return code, nil
}

// console passes the guest's output on without the carriage returns of its
// terminal, and keeps the last tailBytes of it.
type console struct {
	to   io.Writer
	tail []byte
}

// Write implements io.Writer. An error of the writer below ends the guest.
func (c *console) Write(p []byte) (int, error) {
	clean := make([]byte, 0, len(p))
	for _, b := range p {
		if b != '\r' {
			clean = append(clean, b)
		}
	}
	c.tail = append(c.tail, clean...)
	if over := len(c.tail) - tailBytes; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	if _, err := c.to.Write(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}
