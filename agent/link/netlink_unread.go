package link

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
)

const (
	// firstPause and maxPause bound the pause before a namespace that is missing or
	// that could not be read is tried again. The pause doubles. Both are powers of two
	// of a second: see nextTry.
	firstPause = time.Second
	maxPause   = 32 * time.Second
)

// nextTry returns the time of the next try after a failure, and the pause that led to
// it, which doubles. The time is the next whole multiple of the pause. Because each
// pause divides the longer ones, any number of failing namespaces share their tries: at
// most one pass in maxPause when all have failed for long.
func nextTry(now time.Time, pause time.Duration) (time.Time, time.Duration) {
	pause = min(max(2*pause, firstPause), maxPause)
	return now.Add(pause).Truncate(pause), pause
}

// unread is a namespace that could not be read. It is not read again before the time in
// until, unless another file replaced it.
type unread struct {
	key   namespaceKey
	err   error
	pause time.Duration
	until time.Time
}

// waiting returns why a namespace is not read now, or nil. It also returns the pause
// after the last failure.
func (h *Netlink) waiting(name string, now time.Time) (*plan.Unread, time.Duration) {
	u, ok := h.unread[name]
	if !ok {
		return nil, 0
	}
	if key, _ := h.namespaceKey(name); key != u.key {
		return nil, 0
	}
	if now.Before(u.until) {
		return &plan.Unread{Err: u.err, RetryAt: u.until}, u.pause
	}
	return nil, u.pause
}

// openNamespaceFile opens the file of a namespace. Before that it asks what the file is,
// by a descriptor that opens nothing (O_PATH): the open of a FIFO would not return, and
// that of a device may have an effect. ErrNoNamespace: there is no file.
// ErrBadNamespace: it is not a network namespace, or may not be opened; the error has the
// path, the cause and what to do.
func openNamespaceFile(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: %s", plan.ErrNoNamespace, path)
	}
	if err != nil {
		return nil, badNamespace(path, "open", err)
	}
	defer unix.Close(fd)
	stat, err := statNow(fd, "")
	if err != nil {
		return nil, badNamespace(path, "statx", err)
	}
	if nsfs, err := namespaceDevice(); err != nil {
		return nil, badNamespace(path, "device of /proc/self/ns/net", err)
	} else if deviceOf(&stat) != nsfs {
		return nil, fmt.Errorf("%w: %s is %s of mode %04o, not a namespace: remove it and make the namespace again (ip-netns(8) leaves a plain file if its mount was made elsewhere or is gone)",
			plan.ErrBadNamespace, path, fileKind(uint32(stat.Mode)), stat.Mode&0o7777)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, badNamespace(path, "open", err)
	}
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, fmt.Errorf("%w: %s is a namespace of another kind: mount a network namespace there", plan.ErrBadNamespace, path)
	}
	return file, nil
}

// OpenNamespace opens the file of a named network namespace in a folder, with the same
// care and the same errors as the dumps.
func OpenNamespace(folder, name string) (*os.File, error) {
	if err := plan.CheckNamespace(name); err != nil {
		return nil, err
	}
	return openNamespaceFile(filepath.Join(folder, name))
}

// statNow returns what the kernel knows of a file without asking its file system: of one
// that a program serves (FUSE), or another machine, the answer may never come. path is
// relative to fd, or "" for fd itself.
func statNow(fd int, path string) (stat unix.Statx_t, err error) {
	flags := unix.AT_STATX_DONT_SYNC
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = unix.Statx(fd, path, flags, 0, &stat)
	return stat, err
}

func deviceOf(stat *unix.Statx_t) uint64 { return unix.Mkdev(stat.Dev_major, stat.Dev_minor) }

// namespaceDevice returns the device that all files of namespaces are on (nsfs, linux/nsfs.c).
var namespaceDevice = sync.OnceValues(func() (uint64, error) {
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	stat, err := statNow(fd, "")
	return deviceOf(&stat), err
})

// badNamespace says that a system call on a namespace's file failed.
func badNamespace(path, call string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("%w: %s: %s: %w (%s)", plan.ErrBadNamespace, path, call, errno, cmp.Or(unix.ErrnoName(errno), "no name"))
	}
	return fmt.Errorf("%w: %s: %s: %w", plan.ErrBadNamespace, path, call, err)
}

// fileKind names the kind of a file, by its st_mode.
func fileKind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a plain file"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "no namespace"
}

// readPlain reads at most limit bytes of a plain file. Other kinds of file are refused,
// because the open of a FIFO would not return.
func readPlain(path string, limit int64) (text string, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "read", Path: path, Err: errNotPlain}
	case info.Size() > limit:
		return "", errTooLarge
	}
	b := make([]byte, info.Size())
	n, err := file.ReadAt(b, 0)
	if n < len(b) && err != nil {
		return "", err // it was cut short just now
	}
	return string(b[:n]), nil
}

var (
	errNotPlain = errors.New("it is no plain file: remove it")
	errTooLarge = errors.New("too large")
)

// maxResolvConf bounds the bytes read of a resolv.conf; glibc reads three servers of
// it.
const maxResolvConf = 64 << 10

func (h *Netlink) resolvPath(namespace string) string {
	return filepath.Join(h.cfg.EtcNetNSDir, namespace, "resolv.conf")
}

// readResolvers reads resolv.conf of a namespace, if it has one.
func (h *Netlink) readResolvers(namespace string) (string, bool, error) {
	if plan.CheckNamespace(namespace) != nil {
		return "", false, nil
	}
	path := h.resolvPath(namespace)
	text, err := readPlain(path, maxResolvConf)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return "", false, nil
	case errors.Is(err, errTooLarge):
		return "", true, nil // not written by us
	}
	return text, err == nil, err
}

// ResolverFiles returns the content of each resolv.conf that can be read, by its namespace,
// also if that is gone. What cannot be read was not written by us. An error says that the
// folder cannot be listed.
func (h *Netlink) ResolverFiles() (map[string]string, error) {
	folders, err := os.ReadDir(h.cfg.EtcNetNSDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	files := map[string]string{}
	for _, folder := range folders {
		if text, is, err := h.readResolvers(folder.Name()); is && err == nil {
			files[folder.Name()] = text
		}
	}
	return files, nil
}

// resolvers writes or removes a resolv.conf. A reader sees the old or the new one,
// never a part. ip-netns(8) binds the file when it enters the namespace.
func (h *Netlink) resolvers(s *plan.Step) error {
	if err := plan.CheckNamespace(s.Namespace); err != nil {
		return err
	}
	path := h.resolvPath(s.Namespace)
	if s.Op == plan.OpRemoveResolvers {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".rutter"
	if err := os.WriteFile(next, []byte(s.Content), 0o644); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(fmt.Errorf("put resolv.conf in place: %w", err), os.Remove(next))
	}
	return nil
}
