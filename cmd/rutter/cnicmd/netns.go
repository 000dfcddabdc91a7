package cnicmd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// boundPrefix begins the names of the namespaces that this program mounts.
const boundPrefix = "rutter-cni-"

// zonenames are the names that the log accepts for a VM's namespace.
var zonenames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// boundName is the name of a container's namespace in the agent's folder, if it has none of
// its own there.
func boundName(containerID string) string {
	sum := sha256.Sum256([]byte(containerID))
	return boundPrefix + hex.EncodeToString(sum[:16])
}

// nameNamespace returns the name of a container's namespace in the folder that the agent
// looks in, and mounts it there if it is elsewhere. A repeated call finds what the first one
// mounted. Errors: types.Error, if path is no network namespace or is this process's own.
func nameNamespace(folder, path, containerID string) (string, error) {
	there, err := openNamespace(path)
	if err != nil {
		return "", err
	}
	defer there.Close()
	if name, is := nameIn(folder, path); is {
		return name, nil
	}
	name := boundName(containerID)
	if err := bindNamespace(there, filepath.Join(folder, name)); err != nil {
		return "", types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s cannot be mounted in %s, where the agent looks for namespaces", path, folder), err.Error())
	}
	return name, nil
}

// nameIn returns the name of path in folder, if it is a file there. /var/run is often a link
// to /run, so that the folders are compared and not their names.
func nameIn(folder, path string) (string, bool) {
	name := filepath.Base(path)
	if !zonenames.MatchString(name) {
		return "", false
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() == fs.ModeSymlink {
		return "", false
	}
	here, err := os.Stat(folder)
	if err != nil {
		return "", false
	}
	dir, err := os.Stat(filepath.Dir(path))
	return name, err == nil && os.SameFile(here, dir)
}

// openNamespace opens the network namespace of a container. Errors: types.Error.
func openNamespace(path string) (*os.File, error) {
	bad := func(why string) error {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s: %s", path, why), "")
	}
	// A file that is no namespace may be a pipe, which is not waited for.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, bad(err.Error())
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil || stat.Type != unix.NSFS_MAGIC {
		file.Close()
		return nil, bad("it is no namespace")
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, bad("it is no network namespace")
	}
	own, err := os.Stat("/proc/thread-self/ns/net") // /proc/self is the first thread
	info, err2 := file.Stat()
	if err := errors.Join(err, err2); err != nil {
		file.Close()
		return nil, bad(err.Error())
	}
	if os.SameFile(own, info) {
		file.Close()
		return nil, bad("it is the namespace of the node itself")
	}
	return file, nil
}

// bindNamespace mounts an open namespace at a path. What another container of the same id
// left there is unmounted.
func bindNamespace(there *os.File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	want, err := there.Stat()
	if err != nil {
		return err
	}
	is, err := os.Lstat(path)
	switch {
	case err == nil && os.SameFile(is, want):
		return nil
	case err == nil && is.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a link: remove it", path)
	case err == nil:
		// EINVAL: a file that was made, and nothing mounted on it yet.
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	case errors.Is(err, fs.ErrNotExist):
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o400)
		if err != nil {
			return err
		}
		file.Close()
	default:
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", there.Fd()), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// unbindNamespace takes away what bindNamespace made under a name; nothing, if it made
// nothing. The container's namespace need not be there any more.
func unbindNamespace(folder, name string) error {
	path := filepath.Join(folder, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// inNamespace calls fn on a thread that is in the network namespace at path. fn starts no
// goroutine.
func inNamespace(path string, fn func() error) error {
	there, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer there.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter %s: %w", path, err)
		} else {
			err = fn()
		}
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}
