package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace with a name: a bind mount Dir/Name, as
// ip-netns(8) keeps them. It is safe for concurrent use.
type Namespace struct {
	Dir, Name string
}

// Path is the file that stands for the namespace.
func (n Namespace) Path() string { return filepath.Join(n.Dir, n.Name) }

// Create makes a namespace with its loopback device up. The folder dir must exist.
func Create(dir, name string) (Namespace, error) {
	n := Namespace{dir, name}
	file, err := os.OpenFile(n.Path(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return n, fmt.Errorf("namespace %s: %w", name, err)
	}
	file.Close()
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", n.Path(), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		return SetUp("lo", true)
	})
	if err != nil {
		return n, errors.Join(fmt.Errorf("namespace %s: %w", name, err), os.Remove(n.Path()))
	}
	return n, nil
}

// Delete removes the name. The kernel ends the namespace, and all links in it,
// when no process and no socket is left in it.
func (n Namespace) Delete() error {
	if err := unix.Unmount(n.Path(), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("namespace %s: unmount: %w", n.Name, err)
	}
	return os.Remove(n.Path())
}

// Do calls fn on a thread that is inside the namespace. What fn starts there,
// a process or a socket, stays there; goroutines that it starts do not.
func (n Namespace) Do(fn func() error) error {
	return onThread(func() error {
		fd, err := unix.Open(n.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("namespace %s: open: %w", n.Name, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("namespace %s: setns: %w", n.Name, err)
		}
		return fn()
	})
}

// onThread runs fn on a locked thread, and brings the thread back to the
// namespace that it came from. A thread that cannot be brought back is left to
// end with its goroutine, so that no other goroutine ever runs on it.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- fmt.Errorf("open own namespace: %w", err)
			return
		}
		err = fn()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		unix.Close(home)
		done <- err
	}()
	return <-done
}
