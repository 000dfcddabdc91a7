package serviceaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// endConnections ends this process's TCP connections whose local address is ip, and
// returns their number. Their clients notice at once if the kernel still has the address;
// else when they send again, because the next holder's kernel refuses it.
//
// It looks at the process's descriptors, so no listener needs to keep account of what it
// accepted, and works for each protocol. It holds a duplicate of each descriptor while it
// looks at it: the number cannot come to mean another connection meanwhile.
func endConnections(ip netip.Addr) (n int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("this process's connections: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if errors.Is(err, unix.EBADF) {
			continue // it was closed meanwhile
		}
		if err != nil {
			return n, fmt.Errorf("this process's connections: %w", err)
		}
		if connectedAt(own, ip) && unix.Shutdown(own, unix.SHUT_RDWR) == nil {
			n++
		}
		_ = unix.Close(own)
	}
	return n, nil
}

// connectedAt reports whether a descriptor is a TCP connection with this local address.
func connectedAt(fd int, ip netip.Addr) bool {
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	var local netip.Addr
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		local = netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		local = netip.AddrFrom16(a.Addr).Unmap()
	}
	if local != ip {
		return false
	}
	_, err = unix.Getpeername(fd) // a listener has none
	return err == nil
}
