package system

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

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

// ExitStatus returns how a process has ended, of which fd is a pidfd, as vmadm has it: the
// exit status, or, of a process that a signal ended, the negative number of that signal,
// less 128 if there is a core of it. Errors: ErrNotReaped, ErrNoExitStatus.
func ExitStatus(pid, fd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(fd, &info)
	if err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		return exitStatus(info.Exit_code), nil
	}
	// A parent may leave it a zombie for good.
	if status, ok := zombieStatus(pid); ok && unix.PidfdSendSignal(fd, 0, nil, 0) == nil {
		return status, nil
	}
	if err == nil {
		return 0, ErrNotReaped
	}
	return 0, ErrNoExitStatus
}

// zombieStatus reads the status of a process that is not reaped from /proc. The kernel
// shows 0 there of a process that we may not trace too, so 0 says nothing.
func zombieStatus(pid int) (int, bool) {
	text, err := readSmall(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// exit_code is field 52, state after the name in parentheses is field 3 (proc(5)).
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 50 || string(fields[0]) != "Z" {
		return 0, false
	}
	status, err := strconv.ParseInt(string(fields[49]), 10, 32)
	return exitStatus(int32(status)), err == nil && status != 0
}

// exitStatus reads a status of wait(2).
func exitStatus(wait int32) int {
	const signalled = 0xff // and whether there is a core
	if by := wait & signalled; by != 0 {
		return -int(by)
	}
	return int(wait >> 8)
}
