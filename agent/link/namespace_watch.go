package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// namespaceLook is how often the folder is read without a notification of the mount
// table, because not every mount was seen to be reported (Linux 6.18). Reading 500
// namespaces takes about 1 ms.
const namespaceLook = 250 * time.Millisecond

// namespaceWatch notices VM namespaces that appear, go, or are replaced under the same
// name. ip-netns(8) first makes the file and then mounts the namespace on it, so the
// mount table is watched: a poll of mountinfo reports its changes since it was opened
// (proc_pid_mountinfo(5)).
type namespaceWatch struct {
	*Netlink
	table *os.File
	known map[string]namespaceKey
}

// watchNamespaces begins the watch.
func (h *Netlink) watchNamespaces() (*namespaceWatch, error) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("link: watch of namespaces: %w", err)
	}
	return &namespaceWatch{Netlink: h, table: table, known: h.namespaceKeys()}, nil
}

// run calls wake for each change, until ctx ends.
func (n *namespaceWatch) run(ctx context.Context, wake func()) error {
	defer n.table.Close()
	defer n.kept.hold(nil)
	ended, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("link: watch of namespaces: %w", err)
	}
	defer ended.Close()
	stop := context.AfterFunc(ctx, func() { end.Close() })
	defer func() {
		if stop() {
			end.Close()
		}
	}()
	fds := []unix.PollFd{{Fd: int32(n.table.Fd()), Events: unix.POLLPRI}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if _, err := unix.Poll(fds, int(namespaceLook.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("link: watch of namespaces: %w", err)
		}
		now := n.namespaceKeys()
		n.kept.hold(now)
		if n.expected.observeNamespaces(n.known, now) {
			wake()
		}
		n.known = now
	}
	return ctx.Err()
}

// namespaceKeys returns the existing namespaces. A missing folder has none.
func (h *Netlink) namespaceKeys() map[string]namespaceKey {
	keys := map[string]namespaceKey{}
	entries, err := os.ReadDir(h.cfg.NetNSDir)
	if err != nil {
		return keys
	}
	for _, entry := range entries {
		if key, ok := h.namespaceKey(entry.Name()); ok {
			keys[entry.Name()] = key
		}
	}
	return keys
}

// observeNamespaces compares the earlier and the current namespaces, and reports
// whether they differ.
func (t *expected) observeNamespaces(before, now map[string]namespaceKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := false
	for name, key := range now {
		if before[name] != key {
			t.changed[name], t.stirred.namespaces[name], changed = true, true, true
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			t.changed[name], t.stirred.namespaces[name], changed = true, true, true
		}
	}
	return changed
}

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
