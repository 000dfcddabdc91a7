package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

const (
	// receiveBytes is how many bytes of a dump the kernel may send at once: it fills
	// the reader's buffer, up to 32 KiB (linux/af_netlink.c).
	receiveBytes = 32 << 10
	// receiveBytesVM is the same for the sockets in VM namespaces, of which a dump
	// opens hundreds, one after the other. The kernel's minimum is a page.
	receiveBytesVM = 8 << 10
	// socketBytes is the requested receive buffer in bytes; the kernel grants up to
	// net.core.rmem_max. The default holds 257 messages (spec/kernel.md section 4).
	socketBytes = 8 << 20
)

// namespaceConn is a network namespace with a socket in it. It keeps the namespace
// alive, so those of VMs are closed at the end of each dump and each batch.
type namespaceConn struct {
	name string
	key  namespaceKey
	file *os.File
	conn *netlink.Conn
	raw  syscall.RawConn // of conn
	// sequence is that of the last message of a batch. The library has sequences of its
	// own, which begin anywhere. Both are used on one socket, but never at the same
	// time.
	sequence uint32

	ownID    int32 // its number for our own namespace; unknown if negative
	observed bool  // our own namespace has a number for it
}

// openNamespaceConn opens a namespace by its file, and a socket in it. Its errors are those
// of openNamespaceFile, and ErrBadNamespace if the namespace cannot be entered.
func openNamespaceConn(name, path string) (*namespaceConn, error) {
	file, err := openNamespaceFile(path)
	if err != nil {
		return nil, err
	}
	buffer := receiveBytes
	if name != "" {
		buffer = receiveBytesVM
	}
	conn, err := dial(int(file.Fd()), buffer)
	if err != nil {
		file.Close()
		return nil, badNamespace(path, "enter", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(badNamespace(path, "socket", err), conn.Close(), file.Close())
	}
	return &namespaceConn{name: name, file: file, conn: conn, raw: raw, ownID: -1}, nil
}

// send sends a batch, which the kernel executes before this returns.
func (s *namespaceConn) send(batch []byte) error {
	var sent error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sent = unix.Write(int(fd), batch)
		return !errors.Is(sent, unix.EAGAIN) && !errors.Is(sent, unix.EINTR)
	})
	return errors.Join(err, sent)
}

func dial(netns, buffer int) (*netlink.Conn, error) {
	return netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: netns, Strict: true, MessageBufferSize: buffer})
}

func (s *namespaceConn) close() error { return errors.Join(s.conn.Close(), s.file.Close()) }

// open returns the namespace of that name, which stays open until the next closeSpaces.
// "" is our own.
func (h *Netlink) open(name string) (*namespaceConn, error) {
	if name == "" {
		return h.own, nil
	}
	if s := h.spaces[name]; s != nil && h.aside {
		return s, nil // see answerWaiting, which closes those of removed namespaces
	}
	key, _ := h.namespaceKey(name)
	if s := h.spaces[name]; s != nil {
		if s.key == key {
			return s, nil
		}
		h.closeSpace(name)
	}
	if err := plan.CheckNamespace(name); err != nil {
		return nil, err
	}
	s, err := openNamespaceConn(name, filepath.Join(h.cfg.NetNSDir, name))
	if err != nil {
		return nil, err
	}
	s.key = key
	h.spaces[name] = s
	return s, nil
}

func (h *Netlink) closeSpace(name string) {
	_ = h.spaces[name].close() // close has no unwritten data to lose
	delete(h.spaces, name)
}

func (h *Netlink) closeSpaces() {
	for name := range h.spaces {
		h.closeSpace(name)
	}
}

var (
	errOtherAnswer = errors.New("link: the kernel answered an earlier request: it is asked again with the next pass")
	errNoLinks     = errors.New("link: the kernel listed no link at all, not even lo: it is asked again with the next pass")
)

// discard reads away what a socket still has of answers that no caller waited for to the end:
// of a request that timed out on a busy kernel. As the beginning of the next answer they
// would end it at once, and a pass would take all links for missing.
func discard(conn *netlink.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var b [1]byte
	return raw.Control(func(fd uintptr) {
		for {
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				return // nothing is left; another error comes back with the next request
			}
		}
	})
}

// ownNamespace is the file of the calling thread's network namespace.
func ownNamespace() string {
	return fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
}

// openOwn opens our own namespace: the one at path, or the caller's.
func openOwn(path string) (*namespaceConn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if path == "" {
		path = ownNamespace()
	}
	s, err := openNamespaceConn("", path)
	if err != nil {
		return nil, err
	}
	// A smaller buffer also works: a full buffer is an error that causes another dump.
	_ = s.conn.SetReadBuffer(socketBytes)
	return s, nil
}

// maxKept bounds the VM namespaces in which a socket is kept for the next dump.
const maxKept = 1024

// connPool has sockets for dumps, by namespace. They are kept while Watch looks for
// removed namespaces, because a socket keeps its namespace alive.
type connPool struct {
	mu     sync.Mutex // protects what follows
	spaces map[string]*namespaceConn
}

// take returns the socket of a namespace, if there is one; the caller then owns it.
func (k *connPool) take(name string, key namespaceKey) *namespaceConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	sp := k.spaces[name]
	if sp == nil {
		return nil
	}
	delete(k.spaces, name)
	if sp.key != key {
		_ = sp.close()
		return nil
	}
	return sp
}

// give keeps a socket, or closes it if there are enough.
func (k *connPool) give(sp *namespaceConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spaces == nil {
		k.spaces = map[string]*namespaceConn{}
	}
	if len(k.spaces) >= maxKept || k.spaces[sp.name] != nil {
		_ = sp.close()
		return
	}
	k.spaces[sp.name] = sp
}

// hold closes the sockets of all namespaces except the existing ones.
func (k *connPool) hold(there map[string]namespaceKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, sp := range k.spaces {
		if there[name] != sp.key {
			_ = sp.close()
			delete(k.spaces, name)
		}
	}
}

// NamespaceNumber returns the number that our own namespace has for the named one
// (RTM_GETNSID), -1 for our own. If there is no number, it makes the kernel assign one,
// because a namespace without a number sends no notifications here. ErrNoNamespace:
// there is no namespace of that name.
func (h *Netlink) NamespaceNumber(name string) (int32, error) {
	if name == "" {
		return -1, nil
	}
	sp, err := h.open(name)
	if err != nil {
		return -1, err
	}
	defer h.closeSpaces()
	return h.number(sp)
}

// number returns the number that our own namespace has for another one. If there is
// none, it makes the kernel assign one (RTM_NEWNSID), because a namespace without a
// number sends no notifications here. Negative: the kernel assigned none.
func (h *Netlink) number(sp *namespaceConn) (int32, error) {
	number, err := namespaceID(h.own.conn, sp)
	if err != nil || number >= 0 {
		return number, err
	}
	var e wire.Encoder
	e.NamespaceID(int(sp.file.Fd()))
	give := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNSID, Flags: netlink.Request | netlink.Acknowledge}, Data: e.B}
	if _, err := h.own.conn.Execute(give); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("link: give namespace %s a number: %w", sp.name, err)
	}
	return namespaceID(h.own.conn, sp)
}

// nextIndex chooses the ifindex of a new link. It does not follow the ifindexes that it
// sees: a guest can choose those of its links, also the highest one.
func (h *Netlink) nextIndex() int32 {
	for {
		if h.lastIndex++; h.lastIndex < plan.FirstIndex {
			h.lastIndex = plan.FirstIndex // after the highest
		}
		if _, taken := h.taken[h.lastIndex]; !taken {
			return h.lastIndex
		}
	}
}
