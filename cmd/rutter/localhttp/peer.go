package localhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Peer is the user of this machine who made a connection.
type Peer struct {
	UID    uint32
	Groups []uint32 // by a Unix socket only: its own, and the supplementary ones
}

// ErrUnknownPeer: the kernel does not say whose connection it is, because the client is
// on another machine or has gone.
var ErrUnknownPeer = errors.New("localhttp: it is unknown whose connection it is")

// Privileged reports whether the peer is root or the user of this process, who can do
// what this process can.
func (p Peer) Privileged() bool { return p.UID == 0 || int64(p.UID) == int64(os.Geteuid()) }

// peerKey is the key in a request's context of the connPeer of its connection.
type peerKey struct{}

// connPeer asks the kernel for the peer of a connection, until it answers.
type connPeer struct {
	conn net.Conn

	mu   sync.Mutex // protects peer
	peer *Peer      // nil: not known yet
}

// withPeer is http.Server's ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &connPeer{conn: conn})
}

// PeerOf returns who made the connection of a request. The server must have Protect. The
// kernel answers once for each connection. Errors: ErrUnknownPeer, and those of the
// kernel.
func PeerOf(r *http.Request) (Peer, error) {
	c, ok := r.Context().Value(peerKey{}).(*connPeer)
	if !ok {
		return Peer{}, ErrUnknownPeer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer == nil {
		peer, err := peerOf(c.conn)
		if err != nil {
			return Peer{}, err
		}
		c.peer = &peer
	}
	return *c.peer, nil
}

func peerOf(conn net.Conn) (Peer, error) {
	switch c := conn.(type) {
	case *net.UnixConn:
		return unixPeer(c)
	case *net.TCPConn:
		return tcpPeer(c.RemoteAddr(), c.LocalAddr())
	case *boundedConn:
		if c.err == nil {
			return c.peer, nil
		}
		return peerOf(c.Conn)
	}
	return Peer{}, fmt.Errorf("%w: %T", ErrUnknownPeer, conn)
}

// unixPeer returns the credentials that the client had when it connected.
func unixPeer(conn *net.UnixConn) (peer Peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer, err
	}
	failed := raw.Control(func(fd uintptr) {
		var own *unix.Ucred
		if own, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		peer.UID = own.Uid
		peer.Groups, err = peerGroups(int(fd))
		if !slices.Contains(peer.Groups, own.Gid) {
			peer.Groups = append(peer.Groups, own.Gid)
		}
	})
	return peer, errors.Join(failed, err)
}
