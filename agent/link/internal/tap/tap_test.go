package tap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace makes a network namespace of the test's own, and returns its descriptor.
func namespace(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace, and other users")
	}
	if _, err := os.Stat(device); err != nil {
		t.Skip(err)
	}
	fd := -1
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// there reports the ifindex of a link of a namespace, 0 if there is none of that name.
func there(t *testing.T, netns int, name string) (index int) {
	t.Helper()
	err := within(netns, func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if l.Name == name {
				index = l.Index
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// openAs opens a tap as a user of the node, who has no capability.
func openAs(netns int, name string, user int) error {
	return within(netns, func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 { // of this thread alone
			return errno
		}
		fd, err := open()
		if err != nil {
			return err
		}
		return errors.Join(attach(fd, name, flags), unix.Close(fd))
	})
}

// TestTapIsKeptWhenComplete: a process that dies before the tap is complete leaves none, and
// one that was kept has its name and ifindex, and is its user's.
func TestTapIsKeptWhenComplete(t *testing.T) {
	netns := namespace(t)
	const index = 1<<20 + 7
	for _, keep := range []bool{false, true} {
		made, err := Make(netns, "rt1", index, 4242)
		if err != nil {
			t.Fatal(err)
		}
		if got := there(t, netns, "rt1"); got != index {
			t.Errorf("ifindex %d, want %d", got, index)
		}
		if keep {
			err = made.Keep()
		}
		if err := errors.Join(err, made.Close()); err != nil {
			t.Fatal(err)
		}
		if is := there(t, netns, "rt1") != 0; is != keep {
			t.Errorf("kept %v: it is there: %v", keep, is)
		}
	}
	if err := openAs(netns, "rt1", 4243); !errors.Is(err, unix.EPERM) {
		t.Errorf("another user opens it: %v", err)
	}
	if err := openAs(netns, "rt1", 4242); err != nil {
		t.Errorf("its user: %v", err)
	}
	if err := SetUser(netns, "rt1", index, 4243); err != nil {
		t.Fatal(err)
	}
	if err := openAs(netns, "rt1", 4243); err != nil {
		t.Errorf("its new user: %v", err)
	}
	if err := openAs(netns, "rt1", 4242); !errors.Is(err, unix.EPERM) {
		t.Errorf("its user before opens it: %v", err)
	}
	if err := SetUser(netns, "rt1", index+1, 4242); !errors.Is(err, ErrTaken) {
		t.Errorf("another link of that name: %v", err)
	}
}

// TestTapOfOthersIsNotTaken: a link that has the name, a tap of another program too, is not
// joined, and one that is open keeps its user.
func TestTapOfOthersIsNotTaken(t *testing.T) {
	netns := namespace(t)
	if _, err := Make(netns, "lo", 1<<20, 0); !errors.Is(err, ErrTaken) {
		t.Errorf("a link: %v", err)
	}
	open, err := Make(netns, "rt1", 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Make(netns, "rt1", 1<<20+1, 0); !errors.Is(err, ErrTaken) {
		t.Errorf("a tap: %v", err)
	}
	if err := SetUser(netns, "rt1", 1<<20, 4242); !errors.Is(err, ErrOpen) {
		t.Errorf("a tap that is open: %v", err)
	}
	if err := errors.Join(open.Keep(), open.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(netns, "rt1", 1<<20+1, 0); !errors.Is(err, ErrTaken) {
		t.Errorf("a persistent tap: %v", err)
	}
}
