package link

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/link/plan"
)

// maxReaders is how many VM namespaces are read at once. The kernel serves each reader
// on one processor, and most of the time is spent there.
const maxReaders = 4

// seenVM is the result of reading one VM namespace.
type seenVM struct {
	key       namespaceKey
	view      *view // of an earlier dump, still valid
	missing   bool
	observed  bool // its notifications are received
	links     []plan.Link
	high      []int32 // ifindexes from plan.FirstIndex on
	resolvers string
	hasFile   bool
	fileErr   error // resolv.conf could not be read

	err   error // the namespace could not be read
	wait  *plan.Unread
	pause time.Duration // after the last failure
}

// dumpVMs reads the VM namespaces, several at once, or uses the last dump of those for
// which it is still valid.
func (h *Netlink) dumpVMs(ctx context.Context, g *errgroup.Group, names map[int32]string, namespaces []string, seen []seenVM) {
	now := time.Now()
	for i, name := range namespaces {
		seen[i].view = h.viewOf(name)
		seen[i].wait, seen[i].pause = h.waiting(name, now)
	}
	var next atomic.Int64
	for range min(maxReaders, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(namespaces)); i = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if seen[i].wait == nil {
					h.dumpVM(names, namespaces[i], &seen[i])
				}
			}
			return nil
		})
	}
}

// takeVMs takes the results of the VM namespaces. One that could not be read is listed
// with the cause; the others are as if it did not exist.
func (h *Netlink) takeVMs(d *dumper, have *plan.Snapshot, namespaces []string, seen []seenVM) {
	now, before := time.Now(), h.unread
	h.unread = map[string]unread{}
	for i, name := range namespaces {
		if u, is := h.takeVM(d, have, name, &seen[i], before[name], now); is {
			h.unread[name] = u
		}
	}
}

// takeVM takes the result of one VM namespace. It reports whether the namespace is unread,
// and what to remember of that.
func (h *Netlink) takeVM(d *dumper, have *plan.Snapshot, name string, s *seenVM, before unread, now time.Time) (u unread, is bool) {
	if s.fileErr != nil {
		have.UnreadResolvers[name] = s.fileErr
	}
	if s.wait != nil {
		have.Unread[name] = *s.wait
		return before, true
	}
	if s.err != nil {
		u = unread{key: s.key, err: s.err}
		u.until, u.pause = nextTry(now, s.pause)
		have.Unread[name] = plan.Unread{Err: u.err, RetryAt: u.until}
		return u, true
	}
	if s.missing {
		have.Missing = append(have.Missing, name)
		return u, false
	}
	if s.hasFile {
		have.Resolvers[name] = s.resolvers
	}
	if s.view == nil && s.observed {
		h.keep(name, s.key, s.links, s.high)
	}
	d.links = append(d.links, s.links...)
	d.high = append(d.high, s.high...)
	return u, false
}

// dumpVM reads one VM namespace. Several may run at once. Its failures are in s.
func (h *Netlink) dumpVM(names map[int32]string, name string, s *seenVM) {
	s.resolvers, s.hasFile, s.fileErr = h.readResolvers(name)
	if s.view != nil {
		s.links, s.high = s.view.links, s.view.high
		return
	}
	s.key, _ = h.namespaceKey(name) // before the read: a namespace that replaces it meanwhile has another key
	if err := plan.CheckNamespace(name); err != nil {
		s.missing = true
		return
	}
	err := h.dumpLinks(names, name, s)
	switch {
	case errors.Is(err, plan.ErrNoNamespace):
		s.missing = true
	case errors.Is(err, plan.ErrBadNamespace):
		s.err = err
	case err != nil:
		s.err = badNamespace(filepath.Join(h.cfg.NetNSDir, name), "read", err)
	}
}

// dumpLinks reads the links of one VM namespace.
func (h *Netlink) dumpLinks(names map[int32]string, name string, s *seenVM) (err error) {
	sp := h.kept.take(name, s.key)
	if sp == nil {
		if sp, err = openNamespaceConn(name, filepath.Join(h.cfg.NetNSDir, name)); err != nil {
			return err
		}
		sp.key = s.key
		number, err := h.number(sp)
		if err != nil {
			return errors.Join(err, sp.close())
		}
		sp.observed = number >= 0
	}
	d := &dumper{names: names}
	if err := d.readVM(sp, h.own); err != nil {
		return errors.Join(err, sp.close())
	}
	s.links, s.high, s.observed = d.links, d.high, sp.observed
	if !h.expected.listens() {
		return sp.close() // it would stay open after the namespace is removed
	}
	h.kept.give(sp)
	return nil
}
