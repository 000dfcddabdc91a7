package link

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"rutter/agent/link/plan"
)

const (
	// viewParts is into how many parts the VM namespaces fall for reading them
	// although nothing is known to have changed, and viewEvery is the time
	// between two parts. A dump of neighbours walks those of all namespaces,
	// whichever it is asked for, so that reading each of 500 namespaces costs
	// the square of what one costs.
	viewParts = 4
	viewEvery = 5 * time.Second
)

// view is what a dump saw in a VM namespace. It stands for another dump while
// nothing was done to the namespace and nothing was heard of it.
type view struct {
	id      namespaceKey
	links   []plan.Link
	highest int32
}

// namespaceKey tells a namespace from another one of the same name.
type namespaceKey struct{ device, inode uint64 }

// namespaceKey returns the key of a VM namespace, false if there is none.
func (h *Netlink) namespaceKey(name string) (namespaceKey, bool) {
	info, err := os.Stat(filepath.Join(h.cfg.NetNSDir, name))
	if err != nil {
		return namespaceKey{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return namespaceKey{}, false
	}
	return namespaceKey{device: stat.Dev, inode: stat.Ino}, true
}

// choose forgets the views that do not stand any more: of sorted namespaces, what was heard of, what
// is not asked for, and the part whose turn it is.
func (h *Netlink) choose(namespaces []string) {
	heard, all := h.expected.takeChanged()
	if all {
		clear(h.views)
	}
	for _, name := range heard {
		delete(h.views, name)
	}
	for name := range h.views {
		if _, asked := slices.BinarySearch(namespaces, name); !asked {
			delete(h.views, name)
		}
	}
	now := time.Now()
	if now.Sub(h.partRead) < cmp.Or(h.cfg.viewEvery, viewEvery) {
		return
	}
	h.partRead, h.part = now, (h.part+1)%viewParts
	for i, name := range namespaces {
		if i%viewParts == h.part {
			delete(h.views, name)
		}
	}
}

// viewOf returns the view that stands for a dump of a namespace, or nil.
func (h *Netlink) viewOf(name string) *view {
	v := h.views[name]
	if v == nil {
		return nil
	}
	if id, ok := h.namespaceKey(name); !ok || id != v.id {
		delete(h.views, name)
		return nil
	}
	return v
}

// keep makes a view of what was dumped of a namespace, if what happens to it
// from now on is heard.
func (h *Netlink) keep(name string, id namespaceKey, links []plan.Link, highest int32) {
	if h.expected.listens() {
		h.views[name] = &view{id: id, links: slices.Clone(links), highest: highest}
	}
}

// touch forgets the views that a step may make wrong.
func (h *Netlink) touch(s *plan.Step) {
	if h.aside {
		if s.Namespace != "" {
			h.expected.touch(s.Namespace)
		}
		return
	}
	if s.Namespace != "" {
		if len(h.views) > 0 {
			delete(h.views, s.Namespace)
		}
		return
	}
	switch s.Op {
	case plan.OpSetLink, plan.OpDelLink:
		clear(h.views) // it may reach the links stacked above
	}
}
