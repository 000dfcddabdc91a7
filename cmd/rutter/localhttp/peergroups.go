package localhttp

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxPeerGroups is how many groups a process can have (NGROUPS_MAX of the kernel).
const maxPeerGroups = 65536

// peerGroups returns the supplementary groups of the client of a Unix socket
// (SO_PEERGROUPS, Linux 4.13). Package unix has no function for it.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(4 * len(groups))
		//nolint:gosec // getsockopt(2) takes the buffer and its size by address
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errors.Is(errno, unix.ERANGE) && size > uint32(4*len(groups)) && size <= 4*maxPeerGroups:
			groups = make([]uint32, size/4)
		default:
			return nil, fmt.Errorf("SO_PEERGROUPS: %w", errno)
		}
	}
}
