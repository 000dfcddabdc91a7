package link

import (
	"slices"
	"time"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// leftUndone has the objects that a pass left undone. The zero value is that of a Manager
// that has made no pass: everything is undone.
type leftUndone struct {
	objects map[plan.Object]bool
	// unmade are those of the objects that are links which do not exist, or whose
	// namespace could not be read: what is on them waits for the pass that makes or
	// reads them.
	unmade map[plan.Object]bool
}

// newLeftUndone takes the work that remains after a pass.
func newLeftUndone(work plan.Work) leftUndone {
	left := leftUndone{objects: map[plan.Object]bool{}, unmade: map[plan.Object]bool{}}
	for i := range work.Steps {
		s := &work.Steps[i]
		left.objects[s.Object] = true
		if s.Op == plan.OpAddLink {
			left.unmade[s.Object] = true
		}
	}
	for i := range work.Blocked {
		b := &work.Blocked[i]
		left.objects[b.Object], left.unmade[b.Object] = true, true
		if b.Namespace != "" {
			left.objects[plan.Object{Kind: plan.ObjectResolvers, Name: b.Namespace}] = true
		}
	}
	return left
}

// has reports whether an object was left undone, or the link that carries it.
func (l leftUndone) has(o plan.Object) bool {
	if l.objects == nil || l.objects[o] {
		return true
	}
	switch o.Kind {
	case plan.ObjectNeigh:
		return l.objects[plan.Object{Kind: plan.ObjectFabric, MAC: o.MAC}]
	case plan.ObjectFDB:
		return l.objects[plan.Object{Kind: plan.ObjectVXLAN, VNet: o.VNet}]
	}
	return false
}

// absence is about a VM namespace that does not exist.
type absence struct {
	pause time.Duration // before until
	until time.Time     // a pass is made then, if nothing else causes one
}

// miss records which VM namespaces do not exist. A pass is made for them after pauses that
// grow, because the watch of the kernel notices a new namespace at once, and a VM may be
// stopped for long.
func (m *Manager) miss(names []string, now time.Time) {
	before := m.absent
	m.absent = make(map[string]absence, len(names))
	for _, name := range names {
		m.absent[name] = before[name].again(now)
	}
}

// missIn is miss for some of the VM namespaces, of which names do not exist.
func (m *Manager) missIn(read, names []string, now time.Time) {
	for _, name := range read {
		if slices.Contains(names, name) {
			m.absent[name] = m.absent[name].again(now)
		} else {
			delete(m.absent, name)
		}
	}
}

func (a absence) again(now time.Time) absence {
	if !now.Before(a.until) {
		a.until, a.pause = nextTry(now, a.pause)
	}
	return a
}

// settle frees the numbers of those of the MACs that are gone from a complete view, and
// forgets the namespaces in which the links of the others, the fabrics, were before. It
// does so for each MAC by itself: its namespaces must have been read, and its link must
// be only where it is wanted.
func (m *Manager) settle(macs []log.MAC, fabrics []desired.Fabric, have *plan.Snapshot) error {
	changed := false
	at := map[log.MAC][]string{} // the namespaces in which each MAC has a link
	for i := range have.Links {
		l := &have.Links[i]
		n, is := plan.FabricNumber(l.Name)
		if !is {
			continue
		}
		at[l.MAC] = append(at[l.MAC], l.Namespace)
		if owner, ok := m.numbers.Owner(n); ok && owner != l.MAC {
			at[owner] = append(at[owner], l.Namespace)
		}
	}
	// A namespace is read again until it could be read, and its resolv.conf removed.
	unread := func(name string) bool {
		_, is := have.Unread[name]
		return is || m.left.objects[plan.Object{Kind: plan.ObjectResolvers, Name: name}]
	}
	wanted := make(map[log.MAC]bool, len(fabrics))
	for i := range fabrics {
		w := &fabrics[i]
		wanted[w.MAC] = true
		elsewhere := func(name string) bool { return name != w.Namespace }
		if !slices.ContainsFunc(at[w.MAC], elsewhere) && !slices.ContainsFunc(m.numbers.Places(w.MAC), func(name string) bool { return elsewhere(name) && unread(name) }) {
			changed = m.numbers.Settle(w.MAC, w.Namespace) || changed
		}
	}
	for _, mac := range macs {
		if !wanted[mac] && len(at[mac]) == 0 && !slices.ContainsFunc(m.numbers.Places(mac), unread) {
			changed = m.numbers.Release(mac) || changed
		}
	}
	if !changed {
		return nil
	}
	return m.saveNumbers()
}
