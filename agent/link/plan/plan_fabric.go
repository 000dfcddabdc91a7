package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"rutter/projections/desired"
)

// fabrics plans the fabric links and what is on them, except neighbours. A link with a
// wanted MAC on the wrong parent is removed first, because the kernel refuses the same
// MAC twice on one parent.
func (p *planner) fabrics() {
	p.fabric = make([]fabricState, len(p.want.Fabrics))
	blocked := make([]bool, len(p.want.Fabrics))
	for i := range p.want.Fabrics {
		blocked[i] = !p.clearConflict(i)
	}
	for i := range p.want.Fabrics {
		if blocked[i] {
			continue
		}
		w := &p.want.Fabrics[i]
		o := Object{Kind: ObjectFabric, MAC: w.MAC}
		if w.Attach.Tap {
			p.tap(o, w)
			continue
		}
		at := p.fabric[i].key
		spec := &Link{
			Namespace: at.Namespace, Name: at.Name, Kind: KindMacvlan, Parent: ParentName(w.VNet, w.VLAN),
			MTU: w.MTU, MAC: w.MAC, Up: true, Bridge: true, As: w.Attach.Name,
		}
		var state *linkState
		if p.secure.On {
			state = p.pair(o, spec, w)
		} else {
			state = p.link(o, spec, w.Hold)
		}
		p.fabric[i].linkState = state
		if state == nil {
			continue
		}
		if state.have == nil {
			// The kernel takes no alias from the message that makes a link, and this one is
			// for another namespace than that message. It puts no end of a pair up.
			change := ChangeMark
			if spec.Peer != nil {
				change |= ChangeUp
			}
			p.addresses = append(p.addresses, Step{Op: OpSetLink, Object: o, Namespace: at.Namespace, Link: at.Name, Spec: spec, Change: change})
		}
		p.probes(o, at, state, p.secure.On && p.broadcasts(w))
		p.addrs(o, at, state, w)
		p.wantRoutes(o, at, state, w)
	}
}

// clearConflict checks that fabric i can be made, and plans the removal of what is in
// its way. It reports false if the fabric is blocked.
func (p *planner) clearConflict(i int) bool {
	w := &p.want.Fabrics[i]
	o := Object{Kind: ObjectFabric, MAC: w.MAC}
	n, ok := p.numbers.Lookup(w.MAC)
	if !ok {
		p.block(o, "link: %s has no fabric number yet", w.MAC)
		return false
	}
	at := LinkKey{w.Namespace, FabricName(n)}
	p.fabric[i].key = at
	if !p.checkAttach(o, w) {
		return false
	}
	if err := CheckNamespace(w.Namespace); w.Namespace != "" && err != nil {
		p.block(o, "%w", err)
		return false
	}
	if p.missing[w.Namespace] {
		p.blocked = append(p.blocked, Blocked{Object: o, Err: fmt.Errorf("VM %s: %w: %s", w.VM, ErrNoNamespace, w.Namespace), Namespace: w.Namespace})
		return false
	}
	if unread, is := p.unread[w.Namespace]; is {
		p.blocked = append(p.blocked, Blocked{Object: o, Err: fmt.Errorf("VM %s: %w", w.VM, unread.Err), Namespace: w.Namespace, RetryAt: unread.RetryAt})
		return false
	}
	parent := ParentName(w.VNet, w.VLAN)
	if p.secure.On {
		parent = BridgeName(w.VNet, w.VLAN)
	}
	if p.state[LinkKey{"", parent}] == nil {
		p.block(o, "%w: %s", ErrNotMade, parent)
		return false
	}
	for _, l := range p.byMAC[w.MAC] {
		if l.Key() != at && !p.remove(o, l) {
			return false
		}
	}
	return true
}

func (p *planner) probes(o Object, at LinkKey, state *linkState, broadcast bool) {
	step := Step{Op: OpSetProbes, Object: o, Namespace: at.Namespace, Link: at.Name, Broadcast: broadcast}
	want := step.Probes()
	if state.have == nil || state.have.ARP.Known && state.have.ARP != want {
		step.Addr = netip.IPv4Unspecified()
		p.addresses = append(p.addresses, step)
	}
	if state.have == nil || state.have.ND.Known && state.have.ND != want {
		step.Addr = netip.IPv6Unspecified()
		p.addresses = append(p.addresses, step)
	}
}

// addrs plans a fabric link's addresses. A VM on hold gets missing addresses and keeps
// its others. Allowed addresses are the VM's to add and to remove, as keepalived does.
func (p *planner) addrs(o Object, at LinkKey, state *linkState, w *desired.Fabric) {
	want := slices.Clone(w.Addresses)
	slices.SortFunc(want, comparePrefix)
	var have []netip.Prefix
	if state.have != nil {
		have = state.have.Addresses
	}
	step := Step{Object: o, Namespace: at.Namespace, Link: at.Name}
	diff(slices.Compact(want), have, comparePrefix, func(a netip.Prefix) {
		step.Op, step.Prefix = OpAddAddress, a
		p.addresses = append(p.addresses, step)
	}, func(_, _ netip.Prefix) {}, func(b netip.Prefix) {
		if p.prune && !w.Hold && !IsLinkLocal(b.Addr()) && !slices.Contains(w.Allowed, b.Addr()) {
			step.Op, step.Prefix = OpDelAddress, b
			p.delAddresses = append(p.delAddresses, step)
		}
	})
}

// wantRoutes plans a fabric link's routes, in a VM's namespace only: the node's own
// routing is not ours. A VM on hold gets them with its new link, and no later ones.
func (p *planner) wantRoutes(o Object, at LinkKey, state *linkState, w *desired.Fabric) {
	if at.Namespace == "" || w.Hold && state.have != nil {
		return
	}
	var have []desired.Route
	if state.have != nil {
		have = state.have.Routes
	}
	step := Step{Object: o, Namespace: at.Namespace, Link: at.Name}
	set := func(a desired.Route) {
		step.Op, step.Prefix, step.Addr = OpSetRoute, a.Dst, a.Gateway
		step.Onlink = !slices.ContainsFunc(w.Addresses, func(own netip.Prefix) bool { return own.Contains(a.Gateway) })
		p.routes = append(p.routes, step)
	}
	diff(routesOf(w), have, compareRoute, set, func(a, b desired.Route) {
		if a.Gateway != b.Gateway {
			set(a)
		}
	}, func(b desired.Route) {
		if p.prune {
			step.Op, step.Prefix, step.Addr = OpDelRoute, b.Dst, b.Gateway
			p.delRoutes = append(p.delRoutes, step)
		}
	})
}

// routesOf returns the routes of a fabric, including the default route, one for each
// destination.
func routesOf(w *desired.Fabric) []desired.Route {
	routes := make([]desired.Route, 0, len(w.Routes)+1)
	if w.Gateway.IsValid() {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if w.Gateway.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		routes = append(routes, desired.Route{Dst: all, Gateway: w.Gateway})
	}
	for _, r := range w.Routes {
		if r.Dst.IsValid() && r.Gateway.IsValid() {
			routes = append(routes, desired.Route{Dst: r.Dst.Masked(), Gateway: r.Gateway})
		}
	}
	slices.SortStableFunc(routes, compareRoute)
	return slices.CompactFunc(routes, func(a, b desired.Route) bool { return a.Dst == b.Dst })
}

// forwards plans the entries of the VXLAN devices.
func (p *planner) forwards() {
	entries := sorted(p.want.FDB, func(a, b desired.FDB) int {
		return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC))
	})
	for _, w := range p.want.VXLANs {
		mine := group(&entries, func(e desired.FDB) int { return cmp.Compare(e.VNet, w.VNet) })
		name := VXLANName(w.VNet)
		state := p.state[LinkKey{"", name}]
		if state == nil {
			continue
		}
		var have []Forward
		if state.have != nil {
			have = state.have.FDB
		}
		p.forward(w, mine, have)
	}
}

func (p *planner) forward(w desired.VXLAN, want []desired.FDB, have []Forward) {
	if p.secure.On {
		have = p.flood(w, want, have)
	}
	step := Step{Link: VXLANName(w.VNet)}
	set := func(e desired.FDB) {
		step.Op, step.MAC, step.Addr, step.Port = OpSetFDB, e.MAC, e.Dst, OtherPort(e.Port, w.Port)
		step.Object = Object{Kind: ObjectFDB, VNet: w.VNet, MAC: e.MAC}
		p.fdb = append(p.fdb, step)
	}
	diff(want, have, func(a desired.FDB, b Forward) int { return a.MAC.Compare(b.MAC) }, set,
		func(a desired.FDB, b Forward) {
			if !b.Permanent || a.Dst != b.Dst || OtherPort(a.Port, w.Port) != OtherPort(b.Port, w.Port) {
				set(a)
			}
		}, func(b Forward) {
			if p.prune {
				step.Op, step.MAC = OpDelFDB, b.MAC
				step.Object = Object{Kind: ObjectFDB, VNet: w.VNet, MAC: b.MAC}
				p.delFDB = append(p.delFDB, step)
			}
		})
}

// OtherPort returns the port of a forwarding entry in the kernel's form: 0 for own, the
// device's.
func OtherPort(port, own uint16) uint16 {
	if port == own {
		return 0
	}
	return port
}

// neighs plans the neighbours of the fabric links.
func (p *planner) neighs() {
	entries := sorted(p.want.Neighs, func(a, b desired.Neigh) int {
		return cmp.Or(a.Link.Compare(b.Link), a.IP.Compare(b.IP))
	})
	for i := range p.want.Fabrics {
		mac := p.want.Fabrics[i].MAC
		mine := group(&entries, func(e desired.Neigh) int { return e.Link.Compare(mac) })
		state := p.fabric[i]
		if state.linkState == nil {
			continue
		}
		var have []Neighbour
		if state.have != nil && state.have.MAC == mac {
			have = state.have.Neighs // a change of the MAC empties the table
		}
		step := Step{Namespace: state.key.Namespace, Link: state.key.Name}
		set := func(e desired.Neigh) {
			step.Op, step.Addr, step.MAC = OpSetNeigh, e.IP, e.MAC
			step.Object = Object{Kind: ObjectNeigh, MAC: mac, IP: e.IP}
			p.neigh = append(p.neigh, step)
		}
		diff(mine, have, func(a desired.Neigh, b Neighbour) int { return a.IP.Compare(b.IP) }, set,
			func(a desired.Neigh, b Neighbour) {
				if a.MAC != b.MAC {
					set(a)
				}
			}, func(b Neighbour) {
				if p.prune {
					step.Op, step.Addr, step.MAC = OpDelNeigh, b.IP, b.MAC
					step.Object = Object{Kind: ObjectNeigh, MAC: mac, IP: b.IP}
					p.delNeigh = append(p.delNeigh, step)
				}
			})
	}
}

// pruneLinks deletes our links that are not wanted. A deleted link takes the links on
// it along, so only the lowest ones are listed.
func (p *planner) pruneLinks(links []Link) {
	for _, kind := range []string{KindVXLAN, KindVLAN, KindVeth, KindTap, KindBridge, KindMacvlan} {
		for i := range links {
			l := &links[i]
			if l.Kind != kind || p.kept[l.Key()] || p.gone[l.Key()] || !l.Ours {
				continue
			}
			o := leftOver(l)
			if l = p.whole(l); p.gone[l.Key()] {
				continue
			}
			if err := p.checkRemovable(l, true); err != nil {
				p.block(o, "cannot be deleted: %w", err)
				continue
			}
			p.delLinks = append(p.delLinks, Step{Op: OpDelLink, Object: o, Namespace: l.Namespace, Link: l.Name})
			p.markGone(l)
		}
	}
}

// leftOver names a link of ours that belongs to no wanted object.
func leftOver(l *Link) Object {
	switch l.Kind {
	case KindVXLAN:
		return Object{Kind: ObjectVXLAN, Name: l.Name}
	case KindVLAN:
		return Object{Kind: ObjectVLAN, Name: l.Name}
	case KindBridge:
		return Object{Kind: ObjectBridge, Name: l.Name}
	}
	if l.Host {
		return Object{Kind: ObjectFabric, MAC: l.MarkedPort(), Name: l.Name}
	}
	return Object{Kind: ObjectFabric, MAC: l.MAC, Name: l.Name}
}
