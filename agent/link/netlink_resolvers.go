package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
)

// maxResolvConf bounds the bytes read of a resolv.conf; glibc reads three servers of
// it.
const maxResolvConf = 64 << 10

func (h *Netlink) resolvPath(namespace string) string {
	return filepath.Join(h.cfg.EtcNetNSDir, namespace, "resolv.conf")
}

// readResolvers reads resolv.conf of a namespace, if it has one.
func (h *Netlink) readResolvers(namespace string) (string, bool, error) {
	if plan.CheckNamespace(namespace) != nil {
		return "", false, nil
	}
	path := h.resolvPath(namespace)
	text, err := readPlain(path, maxResolvConf)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return "", false, nil
	case errors.Is(err, errTooLarge):
		return "", true, nil // not written by us
	}
	return text, err == nil, err
}

// resolvers writes or removes a resolv.conf. A reader sees the old or the new one,
// never a part. ip-netns(8) binds the file when it enters the namespace.
func (h *Netlink) resolvers(s *plan.Step) error {
	if err := plan.CheckNamespace(s.Namespace); err != nil {
		return err
	}
	path := h.resolvPath(s.Namespace)
	if s.Op == plan.OpRemoveResolvers {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".rutter"
	if err := os.WriteFile(next, []byte(s.Content), 0o644); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(fmt.Errorf("put resolv.conf in place: %w", err), os.Remove(next))
	}
	return nil
}
