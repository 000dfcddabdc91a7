package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// WatchLinks calls wake when any link or namespace appears, changes or goes, in our own
// namespace and in those that it has a number for, and when the kernel lost
// notifications. It is for users whose links another program makes: unlike Watch, it
// does not know what should be there, and ignores entries. wake must not block. It ends
// with ctx, and returns its error.
func (h *Netlink) WatchLinks(ctx context.Context, wake func()) error {
	namespaces, err := h.watchNamespaces()
	if err != nil {
		return err
	}
	conn, err := dial(int(h.own.file.Fd()), receiveBytes)
	if err != nil {
		return errors.Join(fmt.Errorf("link: watch: %w", err), namespaces.table.Close())
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(socketBytes)
	_ = conn.SetOption(netlink.ListenAllNSID, true) // optional: users also check from time to time
	for _, group := range []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_NSID} {
		if err := conn.JoinGroup(group); err != nil {
			return errors.Join(fmt.Errorf("link: watch: %w", err), namespaces.table.Close())
		}
	}
	wake() // earlier changes are unknown
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return namespaces.run(ctx, wake) })
	g.Go(func() error {
		stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		for {
			_, err := conn.Receive()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("link: watch: %w", err)
			}
			wake()
		}
	})
	return g.Wait()
}

// Namespaces returns the names of the existing VM namespaces.
func (h *Netlink) Namespaces() []string {
	keys := h.namespaceKeys()
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	return names
}
