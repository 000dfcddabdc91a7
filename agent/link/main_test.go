package link

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// insideEnv is set in the second start of the test binary, which lives in user,
// network and mount namespaces of its own: each user is root there.
const insideEnv = "RUTTER_LINK_TEST_INSIDE"

// noNamespaces says why the tests on the real kernel cannot run here.
var noNamespaces error

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" {
		code, err := again()
		if err == nil {
			os.Exit(code)
		}
		noNamespaces = err
	} else if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		noNamespaces = fmt.Errorf("make mounts private: %w", err)
	}
	goleak.VerifyTestMain(m)
}

// again runs this binary in namespaces of its own. It returns an error if the
// kernel does not let us. Where there are no user namespaces, root does without.
func again() (code int, err error) {
	try := func(flags uintptr) error {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), insideEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		if flags&unix.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		err := cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
			return nil
		}
		return err
	}
	const own = unix.CLONE_NEWNET | unix.CLONE_NEWNS
	err = try(own | unix.CLONE_NEWUSER)
	if err != nil && os.Getuid() == 0 {
		err = try(own)
	}
	return code, err
}

// needNamespaces skips a test that must be root in namespaces of its own.
func needNamespaces(t testing.TB) {
	t.Helper()
	if noNamespaces != nil {
		t.Skipf("no user or network namespaces here: %v", noNamespaces)
	}
}
