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
	NetRaw       Set = 1 << unix.CAP_NET_RAW       // packet sockets, at which requests of VMs are answered
	SysAdmin     Set = 1 << unix.CAP_SYS_ADMIN     // to enter the namespaces of VMs
	DACOverride  Set = 1 << unix.CAP_DAC_OVERRIDE  // files of other users
)

// Helper are the capabilities of the process that starts and stops VMs: those that make
// their namespaces, cgroups and mounts (CAP_SYS_ADMIN), open their taps and set loopback up
// in their networks (CAP_NET_ADMIN), open their disks and files (CAP_DAC_OVERRIDE), give
// them their users (CAP_SETUID, CAP_SETGID), read which namespaces they have
// (CAP_SYS_PTRACE), and end them (CAP_KILL). A VM's programs get none of them on the node:
// they are in a user namespace of their own. It has none that makes devices, or changes the
// kernel, the clock or the audit.
const Helper = NetAdmin | SysAdmin | DACOverride | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SYS_PTRACE

// Machines are the capabilities of an agent that starts VMs itself: those of the helper,
// those for links, and the one that gives the agent's socket to a group.
const Machines = Helper | NetBroadcast | NetRaw | 1<<unix.CAP_CHOWN | 1<<unix.CAP_NET_BIND_SERVICE

var names = []struct {
	set  Set
	name string
}{
	{1 << unix.CAP_CHOWN, "CAP_CHOWN"},
	{DACOverride, "CAP_DAC_OVERRIDE"},
	{1 << unix.CAP_FOWNER, "CAP_FOWNER"},
	{1 << unix.CAP_FSETID, "CAP_FSETID"},
	{1 << unix.CAP_KILL, "CAP_KILL"},
	{1 << unix.CAP_SETGID, "CAP_SETGID"},
	{1 << unix.CAP_SETUID, "CAP_SETUID"},
	{1 << unix.CAP_SETPCAP, "CAP_SETPCAP"},
	{1 << unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"},
	{NetBroadcast, "CAP_NET_BROADCAST"},
	{NetAdmin, "CAP_NET_ADMIN"},
	{NetRaw, "CAP_NET_RAW"},
	{1 << unix.CAP_IPC_LOCK, "CAP_IPC_LOCK"},
	{1 << unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT"},
	{1 << unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	{SysAdmin, "CAP_SYS_ADMIN"},
	{1 << unix.CAP_SYS_NICE, "CAP_SYS_NICE"},
	{1 << unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
	{1 << unix.CAP_MKNOD, "CAP_MKNOD"},
	{1 << unix.CAP_AUDIT_WRITE, "CAP_AUDIT_WRITE"},
	{1 << unix.CAP_SETFCAP, "CAP_SETFCAP"},
}

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

// ErrKernel: the kernel or the build of the program does not support it.
var ErrKernel = errors.New("confine: not possible here")

// Drop reduces the capabilities of the process and all of its threads to those in keep,
// and returns what remains. Programs that it starts later cannot get more, because
// no_new_privs is set. It cannot be undone.
//
// It works only in programs without C (CGO_ENABLED=0), because
// syscall.AllThreadsSyscall does. Else it returns ErrKernel and changes nothing.
func Drop(keep Set) (Set, error) {
	present, err := permitted()
	if err != nil {
		return 0, err
	}
	if err := onAllThreads(unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return present, fmt.Errorf("no_new_privs: %w", err)
	}
	return shrink(present, keep)
}

// Bound is Drop for a process that starts programs: they can have the capabilities in
// keep on this machine, and no others, by any program that they run (the bounding set).
func Bound(keep Set) (Set, error) {
	present, err := permitted()
	if err != nil {
		return 0, err
	}
	for number := uintptr(0); ; number++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, number, 0, 0, 0)
		if err != nil { // the kernel has no capability with this number
			break
		}
		if has == 0 || keep&(1<<number) != 0 {
			continue
		}
		if err := onAllThreads(unix.PR_CAPBSET_DROP, number, 0); err != nil {
			return present, fmt.Errorf("bounding set: %w", err)
		}
	}
	return Drop(keep)
}

// Permitted are the capabilities that this process has or may take.
func Permitted() (Set, error) { return permitted() }

func permitted() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // low and high half
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("%w: capget: %w", ErrKernel, err)
	}
	return Set(data[0].Permitted) | Set(data[1].Permitted)<<32, nil
}

// onAllThreads is prctl(2).
func onAllThreads(option, value, more uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, option, value, more, 0, 0, 0); errno != 0 {
		return fmt.Errorf("%w: %w", ErrKernel, errno)
	}
	return nil
}

// shrink reduces the capabilities of the process to those in keep.
func shrink(present, keep Set) (Set, error) {
	left := present & keep
	if err := onAllThreads(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return present, fmt.Errorf("ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(left), Permitted: uint32(left)},
		{Effective: uint32(left >> 32), Permitted: uint32(left >> 32)},
	}
	//nolint:gosec // capset(2) takes two structures by address
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return present, fmt.Errorf("%w: capset: %w", ErrKernel, errno)
	}
	return left, nil
}
