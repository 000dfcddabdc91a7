package vmrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/vmrun/internal/isolate"
	"rutter/log"
)

// User IDs of VMs: each VM has a range of isolate.UserCount of the node's, from
// firstUser on. Its users are no others on the node, so one VM's programs can neither
// signal another's nor open their files. The ranges are the upper part of those that
// systemd-nspawn(1) keeps for containers, above what LXD takes by default.
const (
	firstUser  = 0x40000000
	lastUser   = 0x6fffffff
	userRanges = (lastUser - firstUser + 1) / isolate.UserCount // 12288
	// maxRangeProbes bounds the ranges that are tried for one VM, from one on that
	// follows from its UUID.
	maxRangeProbes = 1024
)

// usersName is the folder, in that of the pid files, of the ranges that are taken: links
// with the number of the range, to the UUID of the VM. It goes when the machine restarts.
const usersName = "users"

// errNoUsers: maxRangeProbes ranges are taken.
var errNoUsers = errors.New("no range of user IDs is free: stop VMs, or remove the links of VMs that are gone")

func (r *Runner) userRange(n int) string {
	return filepath.Join(r.cfg.PIDs, usersName, strconv.Itoa(n))
}

// rangeOf finds the range of a VM: its own, or free, one that it may take, -1 if there
// is none.
func (r *Runner) rangeOf(id log.UUID) (own, free int) {
	own, free = -1, -1
	first := int(binary.BigEndian.Uint64(id[8:]) % userRanges)
	for i := range maxRangeProbes {
		n := (first + i) % userRanges
		holder, err := os.Readlink(r.userRange(n))
		if err == nil && holder == id.String() {
			return n, free
		}
		if errors.Is(err, fs.ErrNotExist) && free < 0 {
			free = n
		}
	}
	return own, free
}

// takeUsers returns the first of a VM's user IDs. The VM keeps them until it is stopped.
func (r *Runner) takeUsers(id log.UUID) (uint32, error) {
	if err := os.MkdirAll(filepath.Join(r.cfg.PIDs, usersName), 0o755); err != nil {
		return 0, err
	}
	for {
		n, free := r.rangeOf(id)
		if n < 0 && free < 0 {
			return 0, fmt.Errorf("%w in %s", errNoUsers, filepath.Join(r.cfg.PIDs, usersName))
		}
		if n < 0 {
			err := os.Symlink(id.String(), r.userRange(free))
			if errors.Is(err, fs.ErrExist) {
				continue // another VM has just taken it
			}
			if err != nil {
				return 0, err
			}
			n = free
		}
		return uint32(firstUser + n*isolate.UserCount), nil
	}
}

// freeUsers gives a VM's user IDs back, if it has some.
func (r *Runner) freeUsers(id log.UUID) error {
	n, _ := r.rangeOf(id)
	if n < 0 {
		return nil
	}
	if err := os.Remove(r.userRange(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Errors about the root folder of a VM.
var (
	// ErrNoRoot: the manifest has an init, and no root.
	ErrNoRoot = errors.New("vminfo: init has no file system")
	// ErrRoot: the folder cannot be the root of a VM.
	ErrRoot = errors.New("vminfo: not a folder for a VM's root")
)

// openRoot opens the folder that a manifest names as its root. The users of the VM own
// what is there, user 0 what is root's on disk. So other users of the node must not
// reach it: a program of root's with the setuid bit, made in the VM, would be the node's
// root's. A folder above it must be closed to them.
func openRoot(path string) (*os.File, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fmt.Errorf("%w: root %q: want a path from / on, without . and .. in it", ErrRoot, path)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: root %s: a part of it is a link: name the folder itself", ErrRoot, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: root %s: %w", ErrRoot, path, err)
	}
	for above := path; above != "/"; {
		above = filepath.Dir(above)
		var st unix.Stat_t
		if err := unix.Lstat(above, &st); err == nil && st.Uid == 0 && st.Mode&0o077 == 0 {
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	_ = unix.Close(fd)
	return nil, fmt.Errorf("%w: root %s: other users of this node can enter every folder above it, and could run what the VM's root leaves in it: put it below one that only root can enter (chown root %s; chmod 0700 %s)",
		ErrRoot, path, filepath.Dir(path), filepath.Dir(path))
}
