package localhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"time"
)

// ErrServer: a program of this machine that answers at an address belongs to neither root
// nor the user of this process. Any user may listen at a free port, and answer what is
// not so.
var ErrServer = errors.New("not served by root")

// serverPoll is the pause between two questions to the kernel who accepted a connection:
// before it is accepted it has no owner.
const serverPoll = time.Millisecond

// dialTrusted connects to a TCP address. A server on this machine must be Privileged; one
// on another machine is not checked. It sends nothing before. Errors: ErrServer,
// ErrUnknownPeer if the server does not accept within Limit, and those of net.Dialer.
func dialTrusted(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := checkServer(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", address, err), conn.Close())
	}
	return conn, nil
}

// checkServer refuses the server of a connection on this machine if it is not trusted.
func checkServer(ctx context.Context, conn net.Conn) error {
	there, err := addrPort(conn.RemoteAddr())
	if err != nil {
		return err
	}
	here, err := addrPort(conn.LocalAddr())
	if err != nil {
		return err
	}
	if !there.Addr().IsLoopback() && there.Addr() != here.Addr() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	for {
		server, err := tcpPeer(conn.RemoteAddr(), conn.LocalAddr())
		switch {
		case err == nil && server.Privileged():
			return nil
		case err == nil:
			return fmt.Errorf("%w: the program that answers there is of user %s: end it, or run this command as that user, or name another address", ErrServer, userName(server.UID))
		case !errors.Is(err, ErrUnknownPeer):
			return fmt.Errorf("who answers there is unknown: %w (it takes the kernel's module tcp_diag)", err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(serverPoll):
		}
	}
}

// userName is a user's name, or the number if it has none.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if found, err := user.LookupId(number); err == nil {
		return fmt.Sprintf("%s (%s)", found.Username, number)
	}
	return number
}
