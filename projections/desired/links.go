package desired

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

// Of returns what the kernel of cn must hold: for each vnet on which
// a VM of it has a NIC the VXLAN device and its VLANs, for each such NIC a
// fabric link, on each of these a neighbour for every other NIC of the same
// network, and on each VXLAN device the forwarding entries of the NICs on other
// CNs. The cost is that of sorting what it returns.
func Of(s *projections.State, cn log.UUID) Links { return Within(s, cn, Limits{}) }

// Within is Of, except that vnets with more entries than
// limits allow are on demand.
func Within(s *projections.State, cn log.UUID, limits Limits) Links {
	p := newPlanner(s, cn)
	nics := p.localNICs()
	if len(nics) > 0 && p.findUnderlay() {
		p.demand = onDemand(s, nics, limits)
		p.findNeeds(nics)
		for _, nic := range nics {
			p.addFabric(nic)
		}
		for _, nic := range nics {
			p.addNeighs(nic)
		}
		p.addDevices()
	}
	p.sort()
	return p.want
}

// planner gathers one CN's desired links.
type planner struct {
	s  *projections.State
	cn log.UUID

	local netip.Addr // the underlay address
	port  uint16     // where the CN receives VXLAN packets
	own   underlay.Node
	needs needs

	asked  map[place]bool  // where the CN's links are; true: a network there has broadcast
	floods map[uint32]bool // vnets on which there is such a network

	remote   map[log.UUID]projections.Underlay // of other CNs; no address if they cannot be reached
	demand   map[uint32]bool                   // vnets that are on demand
	known    map[uint32]bool                   // vnets of which no forwarding entries and peers are asked for
	made     map[uint32]bool                   // vnets whose VXLANs want has
	problems map[Problem]bool
	want     Links
}

// place is the key of a Segment.
type place struct {
	vnet uint32
	vlan uint16
}

func newPlanner(s *projections.State, cn log.UUID) planner {
	return planner{
		s: s, cn: cn, problems: map[Problem]bool{}, remote: map[log.UUID]projections.Underlay{},
		asked: map[place]bool{}, floods: map[uint32]bool{}, made: map[uint32]bool{},
	}
}

// needs is the largest MTU of the CN's links on fabrics, and what its packets take of the
// underlay, in bytes. Of MTUs that take as much it is the largest.
type needs struct{ mtu, bytes uint32 }

func (n *needs) add(mtu uint32, is6, vlan bool) {
	if bytes := mtu + underlay.Headers(is6, vlan); bytes > n.bytes || bytes == n.bytes && mtu > n.mtu {
		n.mtu, n.bytes = mtu, bytes
	}
}

func (p *planner) problem(kind log.Kind, id, format string, args ...any) {
	p.problems[Problem{kind, id, fmt.Sprintf(format, args...)}] = true
}

// localNICs returns the NICs of VMs on the CN that lie on a vnet, by MAC.
func (p *planner) localNICs() []projections.NICRow {
	var nics []projections.NICRow
	for r := range projections.NICsOnCN(p.cn).NICs(p.s) {
		nic := r.NIC()
		switch {
		case nic.BelongsToType != "zone":
		case r.Home().Type == log.ScopeVNet:
			nics = append(nics, r)
		case r.Home().Type == 0 && !nic.NetworkUUID.IsZero():
			p.problem(log.KindNIC, nic.ID(), "its network %s is not known", nic.NetworkUUID)
		}
	}
	return nics
}

// findUnderlay reports whether the CN has an underlay address, and notes it.
func (p *planner) findUnderlay() bool {
	nic := p.s.UnderlayNIC(p.cn)
	if nic == nil {
		p.problem(log.KindServer, p.cn.String(), "it has no underlay NIC with an address, so none of its fabrics can be made")
		return false
	}
	p.local, p.port = nic.IP, projections.PortOr(nic.VXLANPort)
	p.own, _ = underlay.Interface(p.s, p.cn)
	return true
}

// carries returns the largest MTU of a link, in bytes, that the CN's underlay carries.
func (p *planner) carries(vlan bool) uint32 { return p.own.Carries(vlan) }

// reach returns where another CN receives VXLAN packets; its address is not valid, and
// there is a problem, if we cannot send there.
func (p *planner) reach(cn log.UUID) (to projections.Underlay) {
	to, known := p.remote[cn]
	if known {
		return to
	}
	at, ok := p.s.UnderlayOf(cn)
	switch {
	case !ok:
		p.problem(log.KindServer, cn.String(), "it has no underlay NIC with an address, so its NICs cannot be reached")
	case at.Addr.Is4() != p.local.Is4():
		p.problem(log.KindServer, cn.String(), "its underlay address %s is not of the family of %s, so its NICs cannot be reached", at.Addr, p.local)
	default:
		to = at
		p.checkFar(cn)
	}
	p.remote[cn] = to
	return to
}

// checkFar notes that the underlay of another CN carries less than packets of links here
// may have: they arrive as fragments, or not at all.
func (p *planner) checkFar(cn log.UUID) {
	if far, ok := underlay.Interface(p.s, cn); ok && far.MTU < p.needs.bytes {
		p.problem(log.KindServer, cn.String(), "%s, and packets of links here with MTU %d take %d: large ones are cut or lost on the way there; raise its MTU, or lower that of the networks (docs/deploy.md, MTU)", far.Why(), p.needs.mtu, p.needs.bytes)
	}
}

// mtuOn returns the MTU of a link on a network, in bytes.
func (p *planner) mtuOn(net *log.Network) uint32 { return min(net.MTU, p.carries(net.VLANID != 0)) }

// findNeeds notes what the CN's links need of underlays and of the wire, before others are
// reached.
func (p *planner) findNeeds(nics []projections.NICRow) {
	seen := map[log.UUID]bool{}
	for _, r := range nics {
		if seen[r.Network()] {
			continue
		}
		seen[r.Network()] = true
		net := p.s.Network(r.Network())
		p.needs.add(p.mtuOn(net), p.local.Is6(), net.VLANID != 0)
		at, broadcast := place{net.VNetID, uint16(net.VLANID)}, p.broadcasts(net)
		p.asked[at] = p.asked[at] || broadcast
		if broadcast {
			p.floods[at.vnet] = true
		}
	}
}

// broadcasts reports whether a network has broadcast on the CN.
func (p *planner) broadcasts(net *log.Network) bool {
	if !net.Broadcast {
		return false
	}
	if others := p.s.CountCNs(log.VNetScope(net.VNetID)) - 1; others > MaxFlood {
		p.problem(log.KindNetwork, net.ID(), "it asks for broadcast, and its vnet %d has more than %d other nodes: no broadcast or multicast is carried on the vnet; have its VMs on fewer nodes, or send broadcast: false", net.VNetID, MaxFlood)
		return false
	}
	return true
}

func (p *planner) addFabric(r projections.NICRow) {
	p.want.Fabrics = append(p.want.Fabrics, p.fabric(r))
}

// fabric returns the link of a NIC of the CN, which lies on a vnet.
func (p *planner) fabric(r projections.NICRow) Fabric {
	nic := r.NIC()
	net := p.s.Network(nic.NetworkUUID)
	f := Fabric{
		MAC: nic.MAC, VNet: net.VNetID, VLAN: uint16(net.VLANID), MTU: p.mtuOn(net),
		VM: nic.BelongsToUUID, Allowed: allowedOf(nic),
		Security: Security{
			AnyMAC: nic.AllowMACSpoofing, AnyIP: nic.AllowIPSpoofing, DHCPServer: nic.AllowDHCPSpoofing,
			AnyTraffic: nic.AllowRestrictedTraffic, Promiscuous: nic.AllowUnfilteredPromisc,
		},
	}
	if f.MTU < net.MTU {
		p.problem(log.KindNetwork, net.ID(), "its MTU %d does not fit the underlay of this node, which carries %d (%s): its links here get that; lower the MTU of the network, or raise the underlay's (docs/deploy.md, MTU)", net.MTU, f.MTU, p.own.Why())
	}
	if nic.IP.IsValid() {
		f.Addresses = []netip.Prefix{netip.PrefixFrom(nic.IP, net.Subnet.Bits())}
	}
	if vm := p.s.VM(nic.BelongsToUUID); vm != nil && vm.ServerUUID == p.cn {
		f.Namespace, f.Hold, f.Idle = vm.Zonename, vm.State == "provisioning", !runs(vm)
	} else {
		// The VM is still, or already, another CN's, and not in this one's interest; or the log
		// has none. Its link never is in the node's own namespace, where the node would answer.
		f.Namespace, f.Idle = nic.BelongsToUUID.String(), true
	}
	f.Gateway, f.Resolvers = p.ofVM(nic, net)
	f.Routes = p.routes(nic, net)
	return f
}

// allowedOf returns the further addresses of a NIC, in one form: programs before
// log.FeatureWire took them as a field that they do not know.
func allowedOf(nic *log.NIC) []netip.Addr {
	if len(nic.AllowedIPs) == 0 {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone([]netip.Addr(nic.AllowedIPs)), func(ip netip.Addr) bool { return !ip.IsGlobalUnicast() || ip.Zone() != "" })
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	return list[:min(len(list), log.MaxAllowedIPs)]
}

// runs reports whether a VM is to run, as the log has it, so that it has a namespace.
func runs(vm *log.VM) bool {
	switch vm.State {
	case "running", "starting", "rebooting", "migrating":
		return true
	}
	return false
}

// ofVM returns what depends on all NICs that the VM has on the CN: the gateway, if the VM's
// default route of that family leads through nic; and every resolver, in the
// order of the NICs, the primary first and then by MAC.
func (p *planner) ofVM(nic *log.NIC, net *log.Network) (gateway netip.Addr, resolvers []netip.Addr) {
	nics := make([]*log.NIC, 0, 4)
	for r := range projections.NICsOf(nic.BelongsToUUID).NICs(p.s) {
		if other := r.NIC(); other.CNUUID == p.cn {
			nics = append(nics, other)
		}
	}
	slices.SortStableFunc(nics, func(a, b *log.NIC) int {
		switch {
		case a.Primary == b.Primary:
			return 0
		case a.Primary:
			return -1
		}
		return 1
	})
	seen := make(map[netip.Addr]bool)
	through := log.MAC{} // the NIC of the default route
	for _, other := range nics {
		on := p.s.Network(other.NetworkUUID)
		if on == nil {
			continue
		}
		if through.IsZero() && on.Family == net.Family && on.Gateway.IsValid() && on.Gateway != other.IP {
			through = other.MAC
		}
		for _, ip := range on.Resolvers {
			if !seen[ip] {
				seen[ip] = true
				resolvers = append(resolvers, ip)
			}
		}
	}
	if through == nic.MAC {
		gateway = net.Gateway
	}
	return gateway, resolvers
}

func (p *planner) routes(nic *log.NIC, net *log.Network) []Route {
	var routes []Route
	for _, route := range net.Routes {
		if route.Gateway == "linklocal" {
			p.problem(log.KindNetwork, net.ID(), "its route to %s is by linklocal, which a fabric link has no way to do", route.Dst)
			continue
		}
		dst, ok := projections.ParseRouteDst(route.Dst)
		gw, err := netip.ParseAddr(route.Gateway)
		if !ok || err != nil {
			p.problem(log.KindNetwork, net.ID(), "its route to %s by %s cannot be read", route.Dst, route.Gateway)
			continue
		}
		if gw != nic.IP && !p.direct(nic, dst) { // the router itself needs no route to itself
			routes = append(routes, Route{dst, gw})
		}
	}
	return routes
}

// direct reports whether dst is the subnet of another NIC that the VM has on the
// CN: it goes there straight, and a router's own VM to all that it joins.
func (p *planner) direct(nic *log.NIC, dst netip.Prefix) bool {
	for r := range projections.NICsOf(nic.BelongsToUUID).NICs(p.s) {
		if r.MAC() == nic.MAC || r.CN() != p.cn {
			continue
		}
		if net := p.s.Network(r.Network()); net != nil && net.Subnet == dst {
			return true
		}
	}
	return false
}

// addNeighs adds a neighbour on nic's link for each other NIC of its network
// that can be reached.
func (p *planner) addNeighs(r projections.NICRow) {
	if p.demand[r.Home().VNet] {
		return
	}
	nic := r.NIC()
	for other := range projections.NICsOnNetwork(nic.NetworkUUID).NICs(p.s) {
		mac, ip, cn := other.MAC(), other.IP(), other.CN()
		if mac == nic.MAC || !ip.IsValid() {
			continue
		}
		if cn == p.cn || p.reach(cn).Addr.IsValid() {
			p.want.Neighs = append(p.want.Neighs, Neigh{Link: nic.MAC, IP: ip, MAC: mac})
		}
	}
}

// addDevices adds what the fabric links stand on, the forwarding entries and the peers, and
// the devices of further places of the CN's links.
func (p *planner) addDevices(further ...place) {
	done := map[place]bool{}
	for _, at := range further {
		done[at] = true
		p.addSegment(at)
	}
	for _, f := range p.want.Fabrics {
		if at := (place{f.VNet, f.VLAN}); !done[at] {
			done[at] = true
			p.addSegment(at)
		}
	}
}

// addSegment adds the devices of one VLAN of a vnet.
func (p *planner) addSegment(at place) {
	mtu := p.carries(at.vlan != 0)
	p.want.Segments = append(p.want.Segments, Segment{VNet: at.vnet, VLAN: at.vlan, MTU: mtu, Broadcast: p.asked[at]})
	if at.vlan != 0 {
		p.want.VLANs = append(p.want.VLANs, VLAN{VNet: at.vnet, ID: at.vlan, MTU: mtu})
	}
	if p.made[at.vnet] {
		return
	}
	p.made[at.vnet] = true
	p.want.VXLANs = append(p.want.VXLANs, VXLAN{
		VNet: at.vnet, Local: p.local, Port: p.port, MTU: p.carries(false), OnDemand: p.demand[at.vnet], Flood: p.floods[at.vnet],
	})
	switch {
	case p.known[at.vnet]:
	case p.demand[at.vnet]:
		p.want.Peers = append(p.want.Peers, p.peers(at.vnet)...)
	default:
		p.addFDB(at.vnet)
	}
}

func (p *planner) addFDB(vnet uint32) {
	for r := range projections.NICsOnVNet(vnet).NICs(p.s) {
		cn := r.CN()
		if cn == p.cn {
			continue
		}
		if to := p.reach(cn); to.Addr.IsValid() {
			p.want.FDB = append(p.want.FDB, p.forward(vnet, r.MAC(), to))
		}
	}
}

// forward returns the forwarding entry of a MAC on another CN.
func (p *planner) forward(vnet uint32, mac log.MAC, to projections.Underlay) FDB {
	e := FDB{VNet: vnet, MAC: mac, Dst: to.Addr}
	if to.Port != p.port {
		e.Port = to.Port
	}
	return e
}

// sort orders every list by its key.
func (p *planner) sort() {
	w := &p.want
	for problem := range p.problems {
		w.Problems = append(w.Problems, problem)
	}
	slices.SortFunc(w.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(w.VXLANs, compareVXLAN)
	slices.SortFunc(w.VLANs, compareVLAN)
	slices.SortFunc(w.Segments, CompareSegment)
	slices.SortFunc(w.Peers, ComparePeer)
	slices.SortFunc(w.Fabrics, compareFabric)
	slices.SortFunc(w.Neighs, compareNeigh)
	slices.SortFunc(w.FDB, compareFDB)
}
