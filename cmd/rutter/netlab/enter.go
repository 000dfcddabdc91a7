package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is set in the environment of a process that Enter started.
const inside = "RUTTER_NETLAB_INSIDE"

// Inside reports whether this process was started by Enter.
func Inside() bool { return os.Getenv(inside) != "" }

// ErrForbidden: the kernel or its configuration does not let this user make
// namespaces of their own.
var ErrForbidden = errors.New("be root, or have a kernel that lets ordinary users make user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces)")

// Enter returns a command that runs this program again, with args, inside
// network, mount and process namespaces of its own (and, for an ordinary user,
// a user namespace in which it is root). When that process ends, however it
// does, the kernel ends every process, namespace and mount that it made.
func Enter(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// Forbidden reports whether err, from starting what Enter returned, says that
// this user may not make namespaces.
func Forbidden(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL)
}

// Settle finishes Enter from the inside: mounts are made private, /proc shows
// the new process namespace, and the loopback device is up.
func Settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Where the old /proc has parts covered, as in a container, the kernel
	// forbids a new one to an ordinary user; the old one serves as well.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return SetUp("lo", true)
}

// Run runs the tests of a package inside namespaces of their own, by starting the test's
// program again, and returns its exit code. Where namespaces are forbidden it runs them
// here, and each one that asks Inside skips. It panics if they cannot be started.
func Run(tests interface{ Run() int }) int {
	if Inside() {
		if err := Settle(); err != nil {
			panic(err)
		}
		return tests.Run()
	}
	err := Enter(os.Args[1:]...).Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case Forbidden(err):
		return tests.Run()
	case err != nil:
		panic(err)
	}
	return 0
}
