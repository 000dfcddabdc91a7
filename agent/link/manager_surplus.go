package link

import (
	"context"
	"net/netip"
	"slices"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// Surplus lists our links that would be removed if the kernel were made as wanted.
type Surplus struct {
	Links int      // that were compared
	Gone  []string // of these, those that are not wanted, as sorted text
}

// Compare returns which links of one view another view lacks.
func Compare(was, want desired.Links) Surplus {
	wanted := linkNames(&want)
	var s Surplus
	for name := range linkNames(&was) {
		s.note(name, wanted)
	}
	slices.Sort(s.Gone)
	return s
}

func (s *Surplus) note(name string, wanted map[string]struct{}) {
	s.Links++
	if _, ok := wanted[name]; !ok {
		s.Gone = append(s.Gone, name)
	}
}

// linkNames are the links of a view, by their Object text.
func linkNames(d *desired.Links) map[string]struct{} {
	names := make(map[string]struct{}, len(d.VXLANs)+len(d.VLANs)+len(d.Fabrics))
	for _, w := range d.VXLANs {
		names[plan.Object{Kind: plan.ObjectVXLAN, VNet: w.VNet}.String()] = struct{}{}
	}
	for _, w := range d.VLANs {
		names[plan.Object{Kind: plan.ObjectVLAN, VNet: w.VNet, VLAN: w.ID}.String()] = struct{}{}
	}
	for i := range d.Fabrics {
		names[plan.Object{Kind: plan.ObjectFabric, MAC: d.Fabrics[i].MAC}.String()] = struct{}{}
	}
	return names
}

// nameOf is the name that linkNames gives a link of ours: its name in the kernel, or
// the MAC of a fabric link.
func nameOf(l *plan.Link) string {
	if l.IsFabric() {
		return plan.Object{Kind: plan.ObjectFabric, MAC: l.MAC}.String()
	}
	if l.Kind == plan.KindTap {
		return plan.Object{Kind: plan.ObjectFabric, MAC: l.MarkedPort()}.String()
	}
	return l.Kind + " " + l.Name
}

// namespaceLister is a Kernel that knows the existing namespaces; *Netlink is one.
type namespaceLister interface{ Namespaces() []string }

// An interface that is asserted at run time stops matching without an error when a name
// changes.
var _ namespaceLister = (*Netlink)(nil)

// Surplus returns which links of ours in the kernel are not wanted. With was, only
// links that was wanted count. Without was, all of ours in all namespaces count,
// because where they were put is unknown.
func (m *Manager) Surplus(ctx context.Context, was *desired.Links, want desired.Links) (Surplus, error) {
	want.Attach(m.attachOf)
	namespaces := namespacesOf(&want, &m.numbers)
	var before map[string]struct{}
	if was != nil {
		before = linkNames(was)
		namespaces = plan.Searched(namespaces, namespacesOf(was, &m.numbers))
	} else if l, ok := m.cfg.Kernel.(namespaceLister); ok {
		namespaces = plan.Searched(namespaces, l.Namespaces())
	}
	have, err := m.dump(ctx, namespaces, &want)
	if err != nil {
		return Surplus{}, err
	}
	if was == nil {
		m.countOthers(&want, &have)
	}
	m.surplus = make(map[linkEntry]struct{})
	wanted := linkNames(&want)
	hosts := map[string]*plan.Link{}
	for i := range have.Links {
		if l := &have.Links[i]; l.Host {
			hosts[l.Name] = l
		}
	}
	var s Surplus
	for i := range have.Links {
		l := &have.Links[i]
		if !l.Ours || l.Host && l.Kind != plan.KindTap || l.Kind == plan.KindBridge { // they come and go with fabric links
			continue
		}
		name := nameOf(l)
		if _, counts := before[name]; before != nil && !counts {
			continue
		}
		if _, ok := wanted[name]; !ok {
			m.surplus[linkEntry{at: l.Key()}] = struct{}{}
			if l.Parent != "" {
				m.surplus[linkEntry{at: plan.LinkKey{Namespace: "", Name: l.Parent}}] = struct{}{}
			}
			if l.Kind == plan.KindTap && l.Master != "" {
				m.surplus[linkEntry{at: plan.LinkKey{Namespace: "", Name: l.Master}}] = struct{}{}
			}
			if host := hosts[l.Parent]; host != nil && l.IsFabric() {
				m.surplus[linkEntry{at: plan.LinkKey{Namespace: "", Name: host.Master}}] = struct{}{}
			}
		}
		if was == nil {
			m.noteHung(l)
		}
		s.note(name, wanted)
	}
	slices.Sort(s.Gone)
	return s, nil
}

// linkEntry is a link, or something on a link: the step that would remove it.
type linkEntry struct {
	at     plan.LinkKey
	op     plan.Op // 0: the link itself
	mac    log.MAC
	addr   netip.Addr
	prefix netip.Prefix
}

// noteHung records everything on a link of ours.
func (m *Manager) noteHung(l *plan.Link) {
	at := l.Key()
	for _, f := range l.FDB {
		m.surplus[linkEntry{at: at, op: plan.OpDelFDB, mac: f.MAC}] = struct{}{}
	}
	for _, n := range l.Neighs {
		m.surplus[linkEntry{at: at, op: plan.OpDelNeigh, addr: n.IP, mac: n.MAC}] = struct{}{}
	}
	for _, a := range l.Addresses {
		m.surplus[linkEntry{at: at, op: plan.OpDelAddress, prefix: a}] = struct{}{}
	}
	for _, r := range l.Routes {
		m.surplus[linkEntry{at: at, op: plan.OpDelRoute, prefix: r.Dst}] = struct{}{}
	}
}

// Keep makes passes leave alone what Surplus found last, until it is called with false:
// the links, and what was on all links of ours.
func (m *Manager) Keep(on bool) {
	if m.kept != nil && !on {
		m.acceptOthers()
	}
	m.kept = nil
	if on {
		m.kept = m.surplus
	}
}

// withheld leaves out the steps that remove what is kept.
func (m *Manager) withheld(steps []plan.Step) []plan.Step {
	if m.kept == nil {
		return steps
	}
	return slices.DeleteFunc(steps, func(s plan.Step) bool {
		at := linkEntry{at: plan.LinkKey{Namespace: s.Namespace, Name: s.Link}, op: s.Op}
		switch s.Op {
		case plan.OpDelLink:
			at.op = 0
		case plan.OpDelFDB:
			at.mac = s.MAC
		case plan.OpDelNeigh:
			at.addr, at.mac = s.Addr, s.MAC
		case plan.OpDelAddress, plan.OpDelRoute:
			at.prefix = s.Prefix
		default:
			return s.Op == plan.OpRemoveResolvers || s.Op == plan.OpDelRules || s.Op == plan.OpDelFlood
		}
		_, kept := m.kept[at]
		return kept
	})
}
