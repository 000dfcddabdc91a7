package localhttp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// DefaultSocket is the Unix socket of a compute node's agent.
const DefaultSocket = "/run/rutter/agent.sock"

// maxSocketPath is how many bytes the path of a Unix socket may have (unix(7)).
const maxSocketPath = 107

// Errors of a Socket.
var (
	// ErrSocketInUse: another process serves the socket.
	ErrSocketInUse = errors.New("another process serves it")
	// ErrSocketPath: the path cannot be that of a socket.
	ErrSocketPath = fmt.Errorf("want an absolute path of at most %d bytes, or off", maxSocketPath)
	// ErrSocketFolder: other users may make files beside the socket.
	ErrSocketFolder = errors.New("every user may make files in that folder, also one that passes for the socket: name a path in a folder of root's")
	// ErrGroup: this machine has no such group.
	ErrGroup = errors.New("this machine has no such group")
)

// Socket is a Unix socket for what may be done by root, by the user of this process, and
// by the members of one group.
type Socket struct {
	Path  string
	Group string // name or number; "": no group
}

// Check refuses a socket that Listen cannot open, whatever the file system has. Errors:
// ErrSocketPath, ErrGroup.
func (s Socket) Check() error {
	if !filepath.IsAbs(s.Path) || len(s.Path) > maxSocketPath {
		return fmt.Errorf("%q: %w", s.Path, ErrSocketPath)
	}
	_, _, err := s.group()
	return err
}

// group returns the number of the group, and whether there is one.
func (s Socket) group() (id uint32, named bool, err error) {
	if s.Group == "" {
		return 0, false, nil
	}
	number := s.Group
	if found, err := user.LookupGroup(s.Group); err == nil {
		number = found.Gid
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, false, fmt.Errorf("group %q: %w", s.Group, ErrGroup)
	}
	return uint32(n), true, nil
}

// Listen opens the socket: mode 0600, or 0660 with a group. It makes the folder, with
// mode 0755, and replaces a socket that no process serves any more. A file beside it,
// with the suffix .lock, belongs to the process that serves it, as long as that runs.
// Errors: those of Check, ErrSocketInUse, ErrSocketFolder, and those of the file system.
func (s Socket) Listen(ctx context.Context) (net.Listener, error) {
	gid, grouped, err := s.group()
	if err = errors.Join(s.Check(), err); err != nil {
		return nil, err
	}
	if err := s.folder(); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(s.Path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.Path, ErrSocketInUse), lock.Close())
	}
	listener, err := s.bind(ctx, gid, grouped)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &lockedListener{Listener: listener, path: s.Path, lock: lock}, nil
}

// folder makes the folder of the socket, and refuses one in which every user may make
// files: while the agent does not run, another program would have its place, and get what
// root's commands send.
func (s Socket) folder() error {
	dir := filepath.Dir(s.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("%s: %w", s.Path, ErrSocketFolder)
	}
	return err
}

// bind makes the socket at a temporary name, sets its owner and mode, and renames it, so
// that no client meets it with another mode.
func (s Socket) bind(ctx context.Context, gid uint32, grouped bool) (_ net.Listener, err error) {
	fresh := s.Path + ".new"
	if len(fresh) > maxSocketPath {
		fresh = s.Path // Guarded refuses others until the mode is set
	}
	for _, path := range []string{fresh, s.Path} {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s: there is a file of that name that is no socket: remove it, or name another path", path)
		}
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close(), os.Remove(fresh))
		}
	}()
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // it does not know the last name
	mode := fs.FileMode(0o600)
	if grouped {
		mode = 0o660
		if err := os.Chown(fresh, -1, int(gid)); err != nil {
			return nil, fmt.Errorf("%w (to give the socket to group %s takes CAP_CHOWN)", err, s.Group)
		}
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return nil, err
	}
	if fresh == s.Path {
		return listener, nil
	}
	return listener, os.Rename(fresh, s.Path)
}

// lockedListener keeps the lock of a socket as long as it listens.
type lockedListener struct {
	net.Listener
	path string
	lock *os.File
	once sync.Once
	err  error // of the first Close
}

// Close implements net.Listener. It removes the socket while the lock is still held.
func (l *lockedListener) Close() error {
	l.once.Do(func() { l.err = errors.Join(l.Listener.Close(), os.Remove(l.path), l.lock.Close()) })
	return l.err
}

// Guarded serves a handler to those whom the socket is for, as the kernel knows them;
// others are refused with 403. The mode of the file keeps them away already; this holds
// also if the mode is changed.
func (s Socket) Guarded(next http.Handler) (http.Handler, error) {
	gid, grouped, err := s.group()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := PeerOf(r)
		if err != nil || !peer.Privileged() && !(grouped && slices.Contains(peer.Groups, gid)) {
			Refuse(w, http.StatusForbidden, "only root, and the group of the agent's --socket-group, may ask this")
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// Reach returns how an HTTP client reaches an address: the URL without a path, and a
// transport. An address that begins with / is that of a Unix socket, any other is
// HOST:PORT, and a server there that is on this machine must belong to root or to the user
// of this process (ErrServer). The caller closes the transport's idle connections.
func Reach(address string) (base string, transport *http.Transport) {
	if !IsSocket(address) {
		return "http://" + address, &http.Transport{DisableKeepAlives: true, DialContext: dialTrusted}
	}
	return "http://localhost", &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", address)
	}}
}

// IsSocket reports whether an address is the path of a Unix socket.
func IsSocket(address string) bool { return strings.HasPrefix(address, "/") }
