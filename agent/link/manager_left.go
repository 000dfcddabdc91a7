package link

import (
	"errors"
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
	// pending and settled are those of the pass's Result.
	pending []Pending
	settled bool
}

// Concern says which changes of the log an object concerns.
type Concern uint8

// The concerns, from the widest.
const (
	ConcernNode  Concern = iota // any change of this node
	ConcernVNet                 // those of a vnet
	ConcernNIC                  // those of a NIC or its VM: the link, and what is on it
	ConcernEntry                // those of the NIC of a link, or of the one that an entry on it is about
)

// Pending is an object that is not as wanted, and what waits for it.
type Pending struct {
	Failure
	Concern Concern
	VNet    uint32   // of all but ConcernNode; 0 also if it is not known
	NIC     log.MAC  // of ConcernNIC and ConcernEntry
	Peer    log.MAC  // of ConcernEntry
	VM      log.UUID // of NIC; zero if it is not known
	// Idle: it has no namespace, and needs none, because the VM is not to run.
	Idle bool
}

// leave returns what a pass leaves undone, and fills in what of that waits in its Result,
// which has the failures and conflicts.
func (m *Manager) leave(result *Result, work *plan.Work, want *desired.Links) leftUndone {
	left := newLeftUndone(*work)
	listed := map[plan.Object]bool{}
	list := func(f Failure) {
		if !listed[f.Object] {
			listed[f.Object] = true
			left.pending = m.pend(left.pending, f, want)
		}
	}
	for _, f := range result.Failures {
		list(f)
	}
	for _, b := range result.Conflicts {
		list(Failure{Object: b.Object, Err: b.Err})
	}
	left.settled = true
	for i := range work.Steps {
		o := work.Steps[i].Object
		on := plan.Object{Kind: plan.ObjectFabric, MAC: o.MAC} // the link that carries it, with which it is made
		if o.Kind == plan.ObjectFDB {
			on = plan.Object{Kind: plan.ObjectVXLAN, VNet: o.VNet}
		}
		carried := (o.Kind == plan.ObjectNeigh || o.Kind == plan.ObjectFDB) && listed[on] && left.unmade[on]
		left.settled = left.settled && (listed[o] || carried)
	}
	result.Pending, result.Settled = left.pending, left.settled
	return left
}

// pend appends a failed object with what it concerns, as wide as what is not known of it.
func (m *Manager) pend(list []Pending, f Failure, want *desired.Links) []Pending {
	p, o := Pending{Failure: f}, f.Object
	switch o.Kind {
	case plan.ObjectFabric:
		p.Concern = ConcernNIC
		p.of(o.MAC, want)
		p.Idle = p.Idle && errors.Is(f.Err, plan.ErrNoNamespace)
	case plan.ObjectNeigh:
		p.of(o.MAC, want)
		p.Concern, p.Peer, p.Idle = ConcernEntry, wantedIn(want, o).MAC, false
		if p.Peer.IsZero() { // one that should not be there: of which NIC it was is not known
			p.Concern = ConcernVNet
		}
	case plan.ObjectFDB:
		p.Concern, p.VNet = ConcernVNet, o.VNet // a NIC that comes to the vnet needs it
	case plan.ObjectPeer, plan.ObjectFlood:
		p.Concern, p.VNet = ConcernVNet, o.VNet
	case plan.ObjectVXLAN, plan.ObjectVLAN, plan.ObjectBridge:
		p.Concern, p.VNet = ConcernVNet, o.VNet
		if o.Name != "" {
			if vnet, ok := plan.VNetOfName(o.Name); ok {
				p.VNet = vnet
			} else {
				p.Concern = ConcernNode
			}
		}
	case plan.ObjectResolvers:
		return m.pendResolvers(list, p, want)
	}
	return append(list, p)
}

// of fills in what is known of the NIC of a link.
func (p *Pending) of(mac log.MAC, want *desired.Links) {
	p.NIC = mac
	if i, ok := findFabric(want.Fabrics, mac); ok {
		w := &want.Fabrics[i]
		p.VNet, p.VM, p.Idle = w.VNet, w.VM, w.Idle
	}
}

// pendResolvers appends resolv.conf of a namespace: it concerns the NICs that are or were
// there.
func (m *Manager) pendResolvers(list []Pending, p Pending, want *desired.Links) []Pending {
	n := len(list)
	add := func(mac log.MAC) {
		one := p
		one.Concern = ConcernNIC
		one.of(mac, want)
		one.Idle = false
		list = append(list, one)
	}
	for i := range want.Fabrics {
		if w := &want.Fabrics[i]; w.Namespace == p.Object.Name {
			add(w.MAC)
		}
	}
	if len(list) == n {
		for _, mac := range m.numbers.MACs() {
			if slices.Contains(m.numbers.Places(mac), p.Object.Name) {
				add(mac)
			}
		}
	}
	if len(list) == n {
		list = append(list, p)
	}
	return list
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
	changed := m.marks.unsaved
	at := map[log.MAC][]string{} // the namespaces in which each MAC has a link
	paired := map[log.MAC]bool{} // that have the node's end of a pair
	for i := range have.Links {
		l := &have.Links[i]
		n, is := plan.FabricNumber(l.Name)
		if !is || !l.Ours {
			if n, is = plan.PortNumber(l.Name); is && l.Ours {
				owner, _ := m.numbers.Owner(n)
				paired[owner] = true
			}
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
		if !wanted[mac] && len(at[mac]) == 0 && !paired[mac] && !slices.ContainsFunc(m.numbers.Places(mac), unread) {
			waiting := m.numbers.SameName(m.numbers.Attach(mac), mac)
			changed = m.numbers.Release(mac) || changed
			for _, other := range waiting {
				m.stirred[other] = true // the name of its tap is free now
			}
		}
	}
	if !changed {
		return nil
	}
	return m.saveNumbers()
}
