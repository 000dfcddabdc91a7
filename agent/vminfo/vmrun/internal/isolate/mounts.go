package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// newRoot is where the root is mounted before it becomes the root. Each node has this
// folder.
const newRoot = "/run"

// systemFolders are the node's folders that a program without a root folder sees.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"}

// devices are the names in /dev that each program has.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Sizes of file systems in memory, which count for the VM's memory limit.
const (
	devSize    = "size=64k,mode=755"
	shmSize    = "size=50%,mode=1777"
	systemSize = "size=1m,mode=755"
)

// harmless are the flags of mounts that hold no programs.
const harmless = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// enterRoot mounts the root with /proc and /dev, and makes it the only file system of
// this process.
func enterRoot(o *order, root int) error {
	if err := mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	var err error
	if o.HasRoot {
		if err = unix.MoveMount(root, "", unix.AT_FDCWD, newRoot, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("root: %w", err)
		}
		err = unix.Close(root)
	} else {
		err = mountSystem()
	}
	if err != nil {
		return err
	}
	if err := os.Chdir(newRoot); err != nil {
		return fmt.Errorf("root: %w (can its users enter it?)", err)
	}
	if err := errors.Join(mountProc(), mountDev(o.Devices)); err != nil {
		return err
	}
	if o.HasRoot {
		if err := mountResolver(o.Resolver); err != nil {
			return err
		}
	} else if err := mountSetattr(newRoot, unix.MOUNT_ATTR_RDONLY, 0); err != nil {
		return err
	}
	// The old root comes onto the new one, and goes: pivot_root(2), "pivot_root(".", ".")".
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the node's file system: %w", err)
	}
	return os.Chdir("/")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s %s: %w", kind, target, err)
	}
	return nil
}

func mountSetattr(path string, set uint64, flags uint) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: set}); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// mountSystem mounts the node's programs, which cannot be written.
func mountSystem() error {
	if err := mount("tmpfs", newRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, systemSize); err != nil {
		return err
	}
	for _, folder := range systemFolders {
		at := newRoot + folder
		info, err := os.Lstat(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0: // /bin is /usr/bin on most
			to, err := os.Readlink(folder)
			if err == nil {
				err = os.Symlink(to, at)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := mount(folder, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		if err := mountSetattr(at, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, unix.AT_RECURSIVE); err != nil {
			return err
		}
	}
	return nil
}

// folder makes a folder of the root unless it exists. A link is none: it could lead out
// of the root.
func folder(name string) error {
	if err := os.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("root: %w (make the folder in it)", err)
	}
	info, err := os.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("/%s is no folder", name)
	}
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return nil
}

// mountProc mounts the files of this process namespace. The kernel's settings cannot be
// written, and no more user namespaces be made.
func mountProc() error {
	if err := folder("proc"); err != nil {
		return err
	}
	if err := mount("proc", "proc", "proc", harmless, ""); err != nil {
		return fmt.Errorf("%w (does the unit hide parts of /proc? scripts/systemd/rutter-vms.service says what it must not)", err)
	}
	if err := os.WriteFile("proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	for _, part := range []string{"proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"} {
		err := mount(part, part, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = mountSetattr(part, unix.MOUNT_ATTR_RDONLY, unix.AT_RECURSIVE)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mountDev makes /dev, with the devices that harm no one and those that are given.
func mountDev(more []string) error {
	if err := folder("dev"); err != nil {
		return err
	}
	if err := mount("tmpfs", "dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, devSize); err != nil {
		return err
	}
	for i, name := range append(devices[:len(devices):len(devices)], more...) {
		at := filepath.Join("dev", name)
		if _, err := os.Stat("/dev/" + name); err != nil && i >= len(devices) {
			continue // the node has none
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, nil, 0o666); err != nil {
			return err
		}
		if err := mount("/dev/"+name, at, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, "dev/"+name); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		kind, name, data string
		flags            uintptr
	}{
		{"devpts", "pts", "newinstance,ptmxmode=0666,mode=620", harmless &^ unix.MS_NODEV}, // terminals are devices
		{"tmpfs", "shm", shmSize, harmless},
	} {
		if err := folder("dev/" + m.name); err != nil {
			return err
		}
		if err := mount(m.kind, "dev/"+m.name, m.kind, m.flags, m.data); err != nil {
			return err
		}
	}
	return nil
}

// mountResolver mounts the node's resolv.conf for the network namespace. It is nothing
// if there is none, or the root has no place for it.
func mountResolver(source string) error {
	if _, err := os.Stat(source); source == "" || err != nil {
		return nil
	}
	const at = "etc/resolv.conf"
	for _, part := range []string{"etc", at} {
		info, err := os.Lstat(part)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.IsDir() != !strings.Contains(part, "/") {
			return nil
		}
	}
	if err := mount(source, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return mountSetattr(at, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, 0)
}
