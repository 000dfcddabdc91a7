package confine

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, as capabilities(7) numbers them.
type Set uint64

// Capabilities that daemons of this program may need.
const (
	NetAdmin     Set = 1 << unix.CAP_NET_ADMIN     // links
	NetBroadcast Set = 1 << unix.CAP_NET_BROADCAST // netlink of all namespaces: NETLINK_LISTEN_ALL_NSID of netlink(7)
	SysAdmin     Set = 1 << unix.CAP_SYS_ADMIN     // to enter the namespaces of VMs
	DACOverride  Set = 1 << unix.CAP_DAC_OVERRIDE  // files of other users
)

var names = []struct {
	set  Set
	name string
}{{NetAdmin, "CAP_NET_ADMIN"}, {NetBroadcast, "CAP_NET_BROADCAST"}, {SysAdmin, "CAP_SYS_ADMIN"}, {DACOverride, "CAP_DAC_OVERRIDE"}}

// String returns the names, "none" for the empty set.
func (s Set) String() string {
	var all []string
	for _, n := range names {
		if s&n.set != 0 {
			all = append(all, n.name)
			s &^= n.set
		}
	}
	if s != 0 {
		all = append(all, fmt.Sprintf("%#x", uint64(s)))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, " ")
}

// ErrKernel: the kernel, or how the program was built, does not allow it.
var ErrKernel = errors.New("confine: not possible here")

// Drop leaves the process, with all of its threads, those of its present
// capabilities that are in keep, and returns them. What it starts later can have
// no more either: no_new_privs is set. It cannot be undone.
//
// It works in programs without C only (CGO_ENABLED=0), as syscall.AllThreadsSyscall
// does; else it returns ErrKernel and nothing has changed.
func Drop(keep Set) (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // low and high half
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("%w: capget: %w", ErrKernel, err)
	}
	present := Set(data[0].Permitted) | Set(data[1].Permitted)<<32
	left := present & keep
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return present, fmt.Errorf("%w: no_new_privs: %w", ErrKernel, errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return present, fmt.Errorf("%w: ambient capabilities: %w", ErrKernel, errno)
	}
	data = [2]unix.CapUserData{
		{Effective: uint32(left), Permitted: uint32(left)},
		{Effective: uint32(left >> 32), Permitted: uint32(left >> 32)},
	}
	//nolint:gosec // capset(2) takes two structures by address
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return present, fmt.Errorf("%w: capset: %w", ErrKernel, errno)
	}
	return left, nil
}
