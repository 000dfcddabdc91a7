package link

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"

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
	highest   int32
	resolvers string
	hasFile   bool
}

// dumpVMs reads the VM namespaces, several at once, or uses the last dump of those for
// which it is still valid.
func (h *Netlink) dumpVMs(ctx context.Context, g *errgroup.Group, names map[int32]string, namespaces []string, seen []seenVM) {
	for i, name := range namespaces {
		seen[i].view = h.viewOf(name)
	}
	var next atomic.Int64
	for range min(maxReaders, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(namespaces)); i = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := h.dumpVM(names, namespaces[i], &seen[i]); err != nil {
					return fmt.Errorf("link: dump of %s: %w", namespaces[i], err)
				}
			}
			return nil
		})
	}
}

// takeVMs takes the results of the VM namespaces.
func (h *Netlink) takeVMs(d *dumper, have *plan.Snapshot, namespaces []string, seen []seenVM) {
	for i, name := range namespaces {
		s := &seen[i]
		if s.missing {
			have.Missing = append(have.Missing, name)
			continue
		}
		if s.hasFile {
			have.Resolvers[name] = s.resolvers
		}
		if s.view == nil && s.observed {
			h.keep(name, s.key, s.links, s.highest)
		}
		d.links = append(d.links, s.links...)
		d.highest = max(d.highest, s.highest)
	}
}

// dumpVM reads one VM namespace. Several may run at once.
func (h *Netlink) dumpVM(names map[int32]string, name string, s *seenVM) (err error) {
	if s.resolvers, s.hasFile, err = h.readResolvers(name); err != nil {
		return err
	}
	if s.view != nil {
		s.links, s.highest = s.view.links, s.view.highest
		return nil
	}
	s.key, _ = h.namespaceKey(name) // before the read: a namespace that replaces it meanwhile has another key
	if err := plan.CheckNamespace(name); err != nil {
		s.missing = true
		return nil
	}
	sp := h.kept.take(name, s.key)
	if sp == nil {
		if sp, err = openNamespaceConn(name, filepath.Join(h.cfg.NetNSDir, name)); err == nil {
			sp.key = s.key
			var number int32
			number, err = h.number(sp)
			sp.observed = number >= 0
		}
	}
	if errors.Is(err, plan.ErrNoNamespace) {
		s.missing = true
		return nil
	}
	if err != nil {
		return err
	}
	d := &dumper{names: names}
	if err := d.readVM(sp, h.own); err != nil {
		return errors.Join(err, sp.close())
	}
	s.links, s.highest, s.observed = d.links, d.highest, sp.observed
	if !h.expected.listens() {
		return sp.close() // it would stay open after the namespace is removed
	}
	h.kept.give(sp)
	return nil
}
