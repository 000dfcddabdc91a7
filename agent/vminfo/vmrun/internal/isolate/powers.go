package isolate

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// guestPowers are the capabilities that the users of a root folder have among
// themselves, in their user namespace: files of each other, users, and signals. None
// reaches the node: it mounts nothing, traces no other user, and changes no network.
var guestPowers = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT, unix.CAP_SETFCAP,
}

// giveUp takes from this thread, and from the program that it executes, all capabilities
// except keep and each way to get more: no_new_privs, the keys of the node's session,
// and a filter of system calls.
func giveUp(keep []uintptr) error {
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("session keyring: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	var left uint64
	for _, number := range keep {
		left |= 1 << number
	}
	for number := uintptr(0); ; number++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, number, 0, 0, 0); err != nil {
			break // the kernel has no capability with this number
		}
		if left&(1<<number) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0); err != nil {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: uint32(left), Permitted: uint32(left)}, {Effective: uint32(left >> 32), Permitted: uint32(left >> 32)}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return filter()
}
