package main

import (
	"syscall"
	"unsafe"
)

// setFlags sets the flags of a link (netdevice(7), SIOCSIFFLAGS).
func setFlags(fd int, name string, flags uint16) error {
	var request struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:15], name)
	request.flags = flags
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
