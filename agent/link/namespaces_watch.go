package link

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchNamespaces calls wake when a VM namespace appeared, went, or is another
// one under the same name, until ctx ends. ip-netns(8) first makes the file and
// then mounts the namespace on it, so it is the mount table that is listened to:
// a poll of mountinfo tells of its changes (proc_pid_mountinfo(5)).
func (h *Netlink) watchNamespaces(ctx context.Context, wake func()) error {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("link: watch of namespaces: %w", err)
	}
	defer table.Close()
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
	fds := []unix.PollFd{{Fd: int32(table.Fd()), Events: unix.POLLPRI}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}}
	for known := h.namespaceKeys(); ctx.Err() == nil; {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("link: watch of namespaces: %w", err)
		}
		now := h.namespaceKeys()
		if h.told.hearNamespaces(known, now) {
			wake()
		}
		known = now
	}
	return ctx.Err()
}

// namespaceKeys returns the namespaces that there are. A folder that is not there has none.
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

// hearNamespaces compares what namespaces there were and are, and reports
// whether they differ.
func (t *told) hearNamespaces(before, now map[string]namespaceKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := false
	for name, key := range now {
		if before[name] != key {
			t.spaces[name], changed = true, true
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			t.spaces[name], changed = true, true
		}
	}
	t.other = t.other || changed
	return changed
}
