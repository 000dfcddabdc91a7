package vmhelper

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// hasEnded reports whether the other end of a connection is closed, and nothing is left to
// read.
func hasEnded(conn net.Conn) (ended bool) {
	unixConn, is := conn.(*net.UnixConn)
	if !is {
		return false
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return true // it was closed here
	}
	_ = raw.Control(func(fd uintptr) { // its error is that of a closed connection
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err == nil && n == 0
	})
	return ended
}

// peerOf is the process at the other end of a connection, as the kernel knows it
// (SO_PEERCRED, unix(7)): of an accepted connection the one that made it, otherwise the one
// that listens. Error: ErrPeer, if it is neither root's nor of this process's user.
func peerOf(conn net.Conn) (pid int32, err error) {
	unixConn, is := conn.(*net.UnixConn)
	if !is {
		return 0, fmt.Errorf("%w: %T is no Unix socket", ErrPeer, conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(failed, err); err != nil {
		return 0, err
	}
	if peer.Uid != 0 && int64(peer.Uid) != int64(os.Geteuid()) {
		return peer.Pid, fmt.Errorf("%w: process %d is of user %d", ErrPeer, peer.Pid, peer.Uid)
	}
	return peer.Pid, nil
}
