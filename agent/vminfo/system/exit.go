package system

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Errors of ExitStatus.
var (
	// ErrNotReaped: the process has ended, and its parent has not fetched its status yet.
	// Once it has, the pidfd has EPOLLHUP.
	ErrNotReaped = errors.New("the process is not reaped")
	// ErrNoExitStatus: this kernel tells only the parent; Linux 6.15 tells whoever has a
	// pidfd from before the end.
	ErrNoExitStatus = errors.New("the kernel does not tell exit statuses (Linux 6.15 does)")
)

// ExitStatus returns how the process of a pidfd ended, as vmadm has it: the exit status,
// or, of a process that a signal ended, the negative number of that signal, less 128 if
// there is a core of it. Errors: ErrNotReaped, ErrNoExitStatus.
func ExitStatus(fd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(fd, &info)
	switch {
	case err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0:
		return exitStatus(info.Exit_code), nil
	case err == nil:
		return 0, ErrNotReaped
	}
	return 0, ErrNoExitStatus
}

// exitStatus reads a status of wait(2).
func exitStatus(wait int32) int {
	const signalled = 0xff // and whether there is a core
	if by := wait & signalled; by != 0 {
		return -int(by)
	}
	return int(wait >> 8)
}
