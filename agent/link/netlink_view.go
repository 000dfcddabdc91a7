package link

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
)

const (
	// viewParts is the number of parts into which the VM namespaces are divided for
	// reading without a known change, and viewEvery is the time between two parts. A
	// dump of neighbours walks those of all namespaces, in any namespace, so the cost
	// of reading all of 500 namespaces grows with the square of their number.
	viewParts = 4
	viewEvery = 5 * time.Second
)

// view is what a dump saw in a VM namespace. It replaces another dump while no step was
// executed in the namespace and no notification came from it.
type view struct {
	id    namespaceKey
	links []plan.Link
	high  []int32 // ifindexes from plan.FirstIndex on
}

// namespaceKey identifies a namespace, also among those of the same name.
type namespaceKey struct{ device, inode uint64 }

// namespaceKey returns the key of a VM namespace, false if there is none.
func (h *Netlink) namespaceKey(name string) (namespaceKey, bool) {
	stat, err := statNow(unix.AT_FDCWD, filepath.Join(h.cfg.NetNSDir, name))
	if err != nil {
		return namespaceKey{}, false
	}
	return namespaceKey{device: deviceOf(&stat), inode: stat.Ino}, true
}

// choose removes invalid views: of sorted namespaces, those with notifications, those
// that are not requested, and the next part.
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

// viewOf returns the valid view of a namespace, or nil.
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

// keep makes a view of a dumped namespace, if its notifications are received from now
// on.
func (h *Netlink) keep(name string, id namespaceKey, links []plan.Link, high []int32) {
	if h.expected.listens() {
		h.views[name] = &view{id: id, links: slices.Clone(links), high: high}
	}
}

// touch removes the views that a step may make wrong.
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
	if s.Op != plan.OpSetLink && s.Op != plan.OpDelLink {
		return
	}
	switch plan.KindOfName(s.Link) {
	case plan.KindBridge:
	case plan.KindVeth: // it reaches the other end
		for name, v := range h.views {
			if slices.ContainsFunc(v.links, func(l plan.Link) bool { return l.Parent == s.Link }) {
				delete(h.views, name)
			}
		}
	default:
		clear(h.views) // it may reach the links stacked above
	}
}
