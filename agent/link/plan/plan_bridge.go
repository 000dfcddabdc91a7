package plan

import (
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections/desired"
)

// Secure says whether the links of VMs are attached with port security: by bridges and
// veth pairs, with rules at the node's end of each pair.
type Secure struct {
	On bool
	// Required: a kernel that cannot hold the rules gets no links that are up.
	Required bool
	// Interfaces are the links by which packets of VXLAN devices come, by name. Default:
	// those that hold the underlay address.
	Interfaces []string
	// Others are the VXLAN devices of this node beside those that are wanted, in a plan of
	// a part.
	Others []desired.VXLAN
}

// MaxFlood is how many nodes of a vnet get its broadcasts: each frame is sent to each of
// them. A vnet with more sends none.
const MaxFlood = 128

// SegmentsOf returns the segments of a desired state, with one for each fabric, in order.
func SegmentsOf(want *desired.Links) []desired.Segment {
	segments := slices.Clone(want.Segments)
	for i := range want.Fabrics {
		f := &want.Fabrics[i]
		segments = append(segments, desired.Segment{VNet: f.VNet, VLAN: f.VLAN})
	}
	slices.SortStableFunc(segments, desired.CompareSegment)
	segments = slices.CompactFunc(segments, func(a, b desired.Segment) bool { return desired.CompareSegment(a, b) == 0 })
	for i := range segments {
		segments[i].MTU = deviceMTU(want, &segments[i])
	}
	return segments
}

// deviceMTU is the MTU of the device below a segment, or what the segment says if that
// device is not wanted.
func deviceMTU(want *desired.Links, s *desired.Segment) uint32 {
	if s.VLAN != 0 {
		if i := slices.IndexFunc(want.VLANs, func(v desired.VLAN) bool { return v.VNet == s.VNet && v.ID == s.VLAN }); i >= 0 {
			return want.VLANs[i].MTU
		}
		return s.MTU
	}
	if i := slices.IndexFunc(want.VXLANs, func(v desired.VXLAN) bool { return v.VNet == s.VNet }); i >= 0 {
		return want.VXLANs[i].MTU
	}
	return s.MTU
}

// leaveBridge plans that a device is no port of a bridge of ours, without port security:
// the kernel makes no macvlan on such a port.
func (p *planner) leaveBridge(o Object, name string) {
	device := p.existing[LinkKey{"", name}]
	if p.secure.On || device == nil || !device.Ours || device.Master == "" {
		return
	}
	if bridge := p.existing[LinkKey{"", device.Master}]; bridge != nil && bridge.Ours {
		p.remove(o, bridge)
	}
}

// bridges plans the bridges and the devices below them, with port security.
func (p *planner) bridges() {
	if !p.secure.On {
		return
	}
	for _, s := range SegmentsOf(&p.want) {
		o := Object{Kind: ObjectBridge, VNet: s.VNet, VLAN: s.VLAN}
		name, device := BridgeName(s.VNet, s.VLAN), ParentName(s.VNet, s.VLAN)
		below := p.state[LinkKey{"", device}]
		if below == nil {
			p.block(o, "%w: %s", ErrNotMade, device)
			continue
		}
		if below.have != nil && !p.clearDevice(o, device) {
			continue
		}
		spec := &Link{Name: name, Kind: KindBridge, MTU: s.MTU, QuietIPv6: true}
		state := p.link(o, spec, false)
		if state == nil {
			continue
		}
		port := &Link{Name: device, Master: name, Flags: PortFlags{Flood: true, Multicast: s.Broadcast, Broadcast: s.Broadcast}}
		change := ChangeMaster | ChangeFlags
		if have := below.have; have != nil && !p.gone[LinkKey{"", have.Master}] {
			change = Changes(port, have, true) & (ChangeMaster | ChangeFlags)
		}
		if change != 0 {
			p.links = append(p.links, Step{Op: OpSetLink, Object: o, Link: device, Spec: port, Change: change})
		}
		p.guarded.segments = append(p.guarded.segments, guardedLink{object: o, name: name, state: state})
	}
}

// clearDevice plans the removal of the macvlans of ours on a device, which keep it out of a
// bridge. It reports false, with the reason, if one must stay.
func (p *planner) clearDevice(o Object, device string) bool {
	for _, l := range p.children[device] {
		if l.Kind != KindMacvlan || p.gone[l.Key()] {
			continue
		}
		if !p.prune && !p.kept[l.Key()] {
			p.block(o, "%w: %s carries %s, which keeps it out of a bridge", ErrIncomplete, device, l.Place())
			return false
		}
		if !p.remove(o, l) {
			return false
		}
	}
	for at, l := range p.foreign {
		if at.parent == device {
			p.block(o, "%w: %s keeps %s out of a bridge: %s", ErrForeign, l.Place(), device, l.Stranger())
			return false
		}
	}
	return true
}

// pair plans a fabric link as one end of a veth pair, whose other end is a port of the
// bridge. spec is of the fabric link.
func (p *planner) pair(o Object, spec *Link, w *desired.Fabric) *linkState {
	n, _ := FabricNumber(spec.Name)
	port := &Link{
		Name: PortName(n), Kind: KindVeth, Host: true, Master: BridgeName(w.VNet, w.VLAN), MTU: p.segmentMTU(w), QuietIPv6: true,
		Flags: PortFlags{Flood: w.Security.Promiscuous}, Ours: true,
	}
	port.Flags.Multicast, port.Flags.Broadcast = p.broadcasts(w), p.broadcasts(w)
	port.Alias, port.Group = p.numbers.Mark(port, w.MAC)
	spec.Kind, spec.Bridge, spec.Parent, spec.Peer = KindVeth, false, port.Name, port

	host := p.existing[port.Key()]
	if host != nil && p.gone[port.Key()] {
		host = nil
	}
	if host != nil && !host.Ours {
		p.block(o, "%w: %s", ErrForeign, host.Stranger())
		return nil
	}
	if host != nil && !p.joined(host, spec) {
		if !p.remove(o, host) {
			return nil
		}
		host = nil
	}
	if host == nil && !p.clearName(o, port, nil) {
		return nil
	}
	state := p.link(o, spec, w.Hold)
	if state == nil {
		return nil
	}
	var static []log.MAC
	if state.have == nil {
		host = nil // a link that is rebuilt is rebuilt with its host end
	} else {
		static = host.Static
		if change := Changes(port, host, false); change != 0 {
			p.links = append(p.links, Step{Op: OpSetLink, Object: o, Link: port.Name, Spec: port, Change: change})
			if change&ChangeMaster != 0 {
				static = nil
			}
		}
	}
	p.static(o, port.Name, w.MAC, static)
	p.guarded.ports = append(p.guarded.ports, guardedPort{guardedLink{object: o, name: port.Name, state: &linkState{have: host}}, w})
	return state
}

// joined reports whether a host end has its VM's end where it is wanted, and is not a port
// of another bridge of ours.
func (p *planner) joined(host, spec *Link) bool {
	end := p.existing[spec.Key()]
	if end == nil || p.gone[spec.Key()] || !end.Ours || end.Kind != KindVeth || end.Parent != host.Name {
		return false
	}
	other := p.existing[LinkKey{"", host.Master}]
	return host.Master == spec.Peer.Master || other == nil || !other.Ours
}

func (p *planner) segmentMTU(w *desired.Fabric) uint32 {
	return deviceMTU(&p.want, &desired.Segment{VNet: w.VNet, VLAN: w.VLAN, MTU: w.MTU})
}

// broadcasts reports whether a network of the fabric's segment asks for broadcast.
func (p *planner) broadcasts(w *desired.Fabric) bool {
	return slices.ContainsFunc(p.want.Segments, func(s desired.Segment) bool { return s.VNet == w.VNet && s.VLAN == w.VLAN && s.Broadcast })
}

// static plans the bridge's entries for a port: the NIC's MAC, which no other port can
// take over.
func (p *planner) static(o Object, port string, mac log.MAC, have []log.MAC) {
	step := Step{Object: o, Link: port}
	diff([]log.MAC{mac}, have, log.MAC.Compare, func(mac log.MAC) {
		step.Op, step.MAC = OpSetStatic, mac
		p.addresses = append(p.addresses, step)
	}, func(_, _ log.MAC) {}, func(mac log.MAC) {
		step.Op, step.MAC = OpDelStatic, mac
		p.delAddresses = append(p.delAddresses, step)
	})
}

// flood plans the entries of a VXLAN device for all MACs that have none, one for each node
// of the vnet, and returns the other entries.
func (p *planner) flood(w desired.VXLAN, want []desired.FDB, have []Forward) (others []Forward) {
	n := 0
	for n < len(have) && have[n].MAC.IsZero() {
		n++
	}
	var to []netip.Addr
	if w.Flood {
		to = p.peersOf(w.VNet, want)
	}
	if len(to) > MaxFlood {
		p.block(Object{Kind: ObjectFlood, VNet: w.VNet}, "link: vnet %d has %d other nodes, and broadcasts go to at most %d: no network of it may ask for broadcast, or fewer nodes may have VMs on it", w.VNet, len(to), MaxFlood)
		to = nil
	}
	step := Step{Link: VXLANName(w.VNet), Object: Object{Kind: ObjectFlood, VNet: w.VNet}}
	diff(to, have[:n], func(a netip.Addr, b Forward) int { return a.Compare(b.Dst) }, func(a netip.Addr) {
		step.Op, step.Addr, step.Object.IP = OpAddFlood, a, a
		p.fdb = append(p.fdb, step)
	}, func(netip.Addr, Forward) {}, func(b Forward) {
		if p.prune || len(to) == 0 {
			step.Op, step.Addr, step.Object.IP = OpDelFlood, b.Dst, b.Dst
			p.delFDB = append(p.delFDB, step)
		}
	})
	return have[n:]
}

// peersOf returns the other nodes of a vnet, in order.
func (p *planner) peersOf(vnet uint32, fdb []desired.FDB) []netip.Addr {
	seen := map[netip.Addr]bool{}
	for i := range fdb {
		seen[fdb[i].Dst] = true
	}
	for _, peer := range p.want.Peers {
		if peer.VNet == vnet {
			seen[peer.Addr] = true
		}
	}
	list := make([]netip.Addr, 0, len(seen))
	for a := range seen {
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
