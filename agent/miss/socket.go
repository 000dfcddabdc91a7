package miss

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

// socket opens a socket that receives what passes the filter.
func socket(namespace string, buffer int, filter []unix.SockFilter) (*os.File, error) {
	fd, err := open(namespace)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) { return nil, errors.Join(err, unix.Close(fd)) }
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // a smaller one causes calls of Lost
	}
	// The filter is set first, so that nothing else is in the buffer.
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fail(fmt.Errorf("attach filter: %w", err))
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.RTNLGRP_NEIGH); err != nil {
		return fail(fmt.Errorf("join RTNLGRP_NEIGH: %w", err))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// open opens a netlink socket in a namespace.
func open(namespace string) (fd int, err error) {
	openHere := func() (int, error) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return -1, err
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
		return fd, nil
	}
	if namespace == "" {
		return openHere()
	}
	there, err := os.OpenFile(namespace, os.O_RDONLY|unix.O_NONBLOCK, 0) // of a FIFO in its place the open returns too
	if err != nil {
		return -1, err
	}
	defer there.Close()
	fd = -1
	onThread(func() {
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter %s: %w", namespace, err)
			return
		}
		fd, err = openHere()
	})
	return fd, err
}

// onThread runs work, which may enter another network namespace, on a thread that no
// other goroutine uses meanwhile. The thread then returns to the namespace that it had.
// If it cannot, it ends with its goroutine, so that nothing else runs there. The first
// thread of a process cannot end: it would stay, and /proc/self/ns/net would be the
// other namespace. So work never runs on it.
func onThread(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(work) // on another one, because this one is held
			runtime.UnlockOSThread()
			return
		}
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			work() // the thread ends
			return
		}
		defer home.Close()
		work()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// Offsets in a message of the kernel, for the filters.
const (
	offsetType  = 4  // nlmsg_type
	offsetFlags = 6  // nlmsg_flags
	offsetAttr  = 30 // nla_type of the first attribute, after nlmsghdr, ndmsg and nla_len
)

// ordered converts a number to BPF's form: it loads in network order what is stored in
// the machine's order (linux/filter.h).
func ordered(n uint16) uint32 {
	var b [2]byte
	native.PutUint16(b[:], n)
	return uint32(b[0])<<8 | uint32(b[1])
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: offset}
}

// unless continues if the loaded value is n, and otherwise skips a number of
// instructions.
func unless(n uint16, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: ordered(n)}
}

var (
	take = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1}
	drop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
)

// neighbourFilter accepts GETNEIGH with NLM_F_REQUEST, and with proxy also those that
// begin with NDA_DST.
func neighbourFilter(proxy bool) []unix.SockFilter {
	if proxy {
		return []unix.SockFilter{
			load(offsetType), unless(unix.RTM_GETNEIGH, 3),
			load(offsetAttr), unless(unix.NDA_DST, 1), take, drop,
		}
	}
	return []unix.SockFilter{
		load(offsetType), unless(unix.RTM_GETNEIGH, 3),
		load(offsetFlags), unless(unix.NLM_F_REQUEST, 1), take, drop,
	}
}

// forwardFilter accepts GETNEIGH that begin with NDA_LLADDR.
func forwardFilter() []unix.SockFilter {
	return []unix.SockFilter{
		load(offsetType), unless(unix.RTM_GETNEIGH, 3),
		load(offsetAttr), unless(unix.NDA_LLADDR, 1), take, drop,
	}
}

// dumpTimeout bounds the wait for the kernel in Pending.
const dumpTimeout = 10 * time.Second

// Pending returns the neighbours that links of a namespace ask for now, including those
// whose question a Listener lost. namespace is its file, "" the calling thread's. The
// misses have OwnNamespace: the caller knows the namespace.
func Pending(namespace string) (misses []Miss, err error) {
	fd, err := open(namespace)
	if err != nil {
		return nil, fmt.Errorf("miss: pending neighbours: %w", err)
	}
	f := os.NewFile(uintptr(fd), "netlink")
	defer f.Close()
	if misses, err = pending(f); err != nil {
		return nil, fmt.Errorf("miss: pending neighbours: %w", err)
	}
	return misses, nil
}

func pending(f *os.File) (misses []Miss, err error) {
	if err := f.SetDeadline(time.Now().Add(dumpTimeout)); err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	request := make([]byte, sizeofNlMsghdr+sizeofNdMsg)
	native.PutUint32(request, uint32(len(request)))
	native.PutUint16(request[4:], unix.RTM_GETNEIGH)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), request) }); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	buffer, done := make([]byte, 32<<10), false
	for !done {
		var n int
		var failed error
		if err := raw.Read(func(fd uintptr) bool {
			n, _, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		}); err != nil {
			return nil, err
		}
		if failed != nil && !errors.Is(failed, unix.EINTR) {
			return nil, failed
		}
		if misses, done, err = unanswered(misses, buffer[:max(n, 0)]); err != nil {
			return nil, err
		}
	}
	return misses, nil
}

// unanswered appends the entries in a part of a dump that wait for an answer, and
// reports whether it is the last part.
func unanswered(misses []Miss, b []byte) ([]Miss, bool, error) {
	for h, body, rest, ok := nlmsg.Next(b); ok; h, body, rest, ok = nlmsg.Next(rest) {
		switch h.Type {
		case unix.NLMSG_DONE:
			return misses, true, nil
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				if errno := -int32(native.Uint32(body)); errno != 0 {
					return misses, true, unix.Errno(errno)
				}
			}
		case unix.RTM_NEWNEIGH:
			m, state, ok := parseNeigh(body)
			if ok && m.IP.IsValid() && state&(unix.NUD_INCOMPLETE|unix.NUD_PROBE) != 0 {
				m.Kind = Neighbour
				misses = append(misses, m)
			}
		}
	}
	return misses, false, nil
}
