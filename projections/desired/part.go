package desired

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// MaxPart is how many of a CN's own NICs a Part may have. It bounds the time for which
// one round keeps the kernel busy: a NIC costs a few milliseconds of reading its namespace
// twice. With more NICs at once a pass over everything is as quick.
const MaxPart = 128

// Part is what changes of a CN's own NICs make of its links: the NICs that changed, the
// other NICs of their VMs, because a VM's NICs share its resolvers and its default
// route, and the devices below them.
type Part struct {
	// Links is what Of has of them: their Fabrics and Neighs, the VXLANs, VLANs and Segments
	// below these, and the FDB or the Peers of the VXLANs in New; further those VXLANs and
	// Segments whose broadcast changed with them. It has no Problems.
	Links Links
	// NICs are sorted. One without a Fabric in Links has none any more.
	NICs []log.MAC
	// New are the vnets whose VXLANs did not exist before, sorted.
	New []uint32
	// NoVXLANs are the vnets, NoVLANs the VLANs and NoSegments the Segments (VNet and VLAN
	// only), whose devices exist no more; they are sorted. With a VXLAN its forwarding
	// entries and its peers go.
	NoVXLANs   []uint32
	NoVLANs    []VLAN
	NoSegments []Segment
}

// Merge makes links what they are after the changes of p. It changes the slices of
// links in place.
func (p *Part) Merge(links *Links) {
	touched := make(map[log.MAC]bool, len(p.NICs))
	for _, mac := range p.NICs {
		touched[mac] = true
	}
	goneVNet := func(vnet uint32) bool { _, gone := slices.BinarySearch(p.NoVXLANs, vnet); return gone }
	goneVLAN := func(v VLAN) bool { return slices.Contains(p.NoVLANs, VLAN{VNet: v.VNet, ID: v.ID}) }
	if len(p.NoVXLANs) > 0 {
		links.VXLANs = slices.DeleteFunc(links.VXLANs, func(v VXLAN) bool { return goneVNet(v.VNet) })
		links.FDB = slices.DeleteFunc(links.FDB, func(f FDB) bool { return goneVNet(f.VNet) })
		links.Peers = slices.DeleteFunc(links.Peers, func(r Peer) bool { return goneVNet(r.VNet) })
	}
	if len(p.NoSegments) > 0 {
		links.Segments = slices.DeleteFunc(links.Segments, func(s Segment) bool {
			_, gone := slices.BinarySearchFunc(p.NoSegments, s, CompareSegment)
			return gone
		})
	}
	if len(p.NoVLANs) > 0 {
		links.VLANs = slices.DeleteFunc(links.VLANs, goneVLAN)
	}
	links.VXLANs = replace(links.VXLANs, p.Links.VXLANs, compareVXLAN)
	links.VLANs = replace(links.VLANs, p.Links.VLANs, compareVLAN)
	links.Segments = replace(links.Segments, p.Links.Segments, CompareSegment)
	links.FDB = replace(links.FDB, p.Links.FDB, compareFDB)
	links.Peers = replace(links.Peers, p.Links.Peers, ComparePeer)
	links.Fabrics = replace(slices.DeleteFunc(links.Fabrics, func(f Fabric) bool { return touched[f.MAC] }), p.Links.Fabrics, compareFabric)
	for _, mac := range p.NICs {
		from, to := rangeOf(links.Neighs, mac)
		first, last := rangeOf(p.Links.Neighs, mac)
		links.Neighs = slices.Replace(links.Neighs, from, to, p.Links.Neighs[first:last]...)
	}
}

// rangeOf returns where the neighbours on the link of a NIC are in a sorted list.
func rangeOf(list []Neigh, link log.MAC) (from, to int) {
	from, _ = slices.BinarySearchFunc(list, link, func(n Neigh, link log.MAC) int { return n.Link.Compare(link) })
	for to = from; to < len(list) && list[to].Link == link; to++ {
	}
	return from, to
}

// replace puts the elements of another sorted list into a sorted list, in place of those
// with the same key.
func replace[E any](list, others []E, compare func(a, b E) int) []E {
	if len(others) > MaxPart {
		list = slices.DeleteFunc(list, func(e E) bool {
			_, found := slices.BinarySearchFunc(others, e, compare)
			return found
		})
		list = append(list, others...)
		slices.SortFunc(list, compare)
		return list
	}
	for _, other := range others {
		at, found := slices.BinarySearchFunc(list, other, compare)
		if found {
			list[at] = other
		} else {
			list = slices.Insert(list, at, other)
		}
	}
	return list
}

func compareVXLAN(a, b VXLAN) int { return cmp.Compare(a.VNet, b.VNet) }

func compareVLAN(a, b VLAN) int { return cmp.Or(cmp.Compare(a.VNet, b.VNet), cmp.Compare(a.ID, b.ID)) }

// CompareSegment orders segments by their key.
func CompareSegment(a, b Segment) int {
	return cmp.Or(cmp.Compare(a.VNet, b.VNet), cmp.Compare(a.VLAN, b.VLAN))
}

// ComparePeer orders peers: no two are equal.
func ComparePeer(a, b Peer) int { return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.Addr.Compare(b.Addr)) }

func compareFabric(a, b Fabric) int { return a.MAC.Compare(b.MAC) }

func compareNeigh(a, b Neigh) int { return cmp.Or(a.Link.Compare(b.Link), a.IP.Compare(b.IP)) }

func compareFDB(a, b FDB) int { return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC)) }

// own is what Touches gathers of the CN's own NICs.
type own struct {
	nics     map[log.MAC]struct{}
	vms      map[log.UUID]struct{} // whose NICs may have changed
	networks map[log.UUID]struct{} // whose NICs may have changed, also those of other CNs
	// given has the devices and problems of the links that the kernel's side has; nil:
	// unknown, so that changes of own NICs need the whole.
	given *given
}

type given struct {
	vnets    map[uint32]bool
	places   map[place]bool                 // of Segments; true: with broadcast
	peers    map[uint32]map[netip.Addr]bool // of vnets on demand
	problems map[Problem]bool
	needs    needs
}

// covers reports whether the problems that were given are still all. Others than p found
// may be of CNs that only the whole looks at, by what the CN's links need.
func (g *given) covers(p *planner) bool {
	for problem := range p.problems {
		if !g.problems[problem] {
			return false
		}
	}
	return g.needs == p.needs
}

func newOwn() own {
	return own{nics: map[log.MAC]struct{}{}, vms: map[log.UUID]struct{}{}, networks: map[log.UUID]struct{}{}}
}

func (o *own) len() int { return len(o.nics) + len(o.vms) + len(o.networks) }

// Given says which links, as of the last Reset, the kernel's side was given. From then on
// Delta covers changes of the CN's own NICs, and of the peers of vnets on demand, too.
func (t *Touches) Given(links *Links) {
	g := &given{vnets: map[uint32]bool{}, places: map[place]bool{}, peers: map[uint32]map[netip.Addr]bool{}, problems: map[Problem]bool{}}
	for _, v := range links.VXLANs {
		g.vnets[v.VNet] = true
	}
	for _, s := range links.Segments {
		g.places[place{s.VNet, s.VLAN}] = s.Broadcast
	}
	for _, r := range links.Peers {
		g.keepPeer(r)
	}
	for _, p := range links.Problems {
		g.problems[p] = true
	}
	if len(links.VXLANs) > 0 {
		is6 := links.VXLANs[0].Local.Is6()
		for i := range links.Fabrics {
			g.needs.add(links.Fabrics[i].MTU, is6, links.Fabrics[i].VLAN != 0)
		}
	}
	t.own.given = g
}

// NoteNICs notes that what the kernel has of some of the CN's NICs may be wrong.
func (t *Touches) NoteNICs(macs []log.MAC) {
	for _, mac := range macs {
		t.own.nics[mac] = struct{}{}
	}
}

// noteOwn notes a NIC of the CN, as it was or is.
func (t *Touches) noteOwn(nic *log.NIC) {
	if projections.IsUnderlay(nic) || t.own.given == nil {
		t.whole = true
		return
	}
	t.own.nics[nic.MAC] = struct{}{}
	t.noteVM(nic.BelongsToUUID)
}

func (t *Touches) noteVM(vm log.UUID) {
	if t.own.given == nil {
		t.whole = true
	} else if !vm.IsZero() {
		t.own.vms[vm] = struct{}{}
	}
}

// noteNetwork notes a network that changed. Only fabrics are covered: another network may
// be the underlay.
func (t *Touches) noteNetwork(before, after *log.Network) {
	for _, net := range []*log.Network{before, after} {
		if net != nil && !net.Fabric {
			t.whole = true
			return
		}
	}
	if t.own.given == nil || before != nil && after != nil && before.VNetID != after.VNetID {
		t.whole = true
		return
	}
	net := after
	if net == nil {
		net = before
	}
	t.own.networks[net.UUID] = struct{}{}
}

// spread extends what was noted to all NICs that depend on it.
func (t *Touches) spread(s *projections.State) {
	for network := range t.own.networks {
		for r := range projections.NICsOnNetwork(network).NICs(s) {
			t.nics[touched{r.MAC(), r.Network(), r.IP()}] = struct{}{}
			if r.CN() == t.cn {
				t.own.nics[r.MAC()] = struct{}{}
			}
		}
	}
	for mac := range t.own.nics {
		if r, ok := s.NICRow(mac); ok && r.CN() == t.cn {
			if vm := r.NIC().BelongsToUUID; !vm.IsZero() {
				t.own.vms[vm] = struct{}{}
			}
		}
	}
	for vm := range t.own.vms {
		for r := range projections.NICsOf(vm).NICs(s) {
			if r.CN() == t.cn {
				t.own.nics[r.MAC()] = struct{}{}
			}
		}
	}
}

// part computes the Part of what was noted, and forgets it. It returns nil if there is
// none, or if only the whole will do.
func (t *Touches) part(p *planner, nics []projections.NICRow) *Part {
	noted, g := t.own.nics, t.own.given
	t.own = newOwn()
	t.own.given = g
	switch {
	case len(noted) == 0:
		return nil
	case g == nil || len(noted) > MaxPart || len(nics) > 0 && !p.local.IsValid():
		t.whole = true
		return nil
	}
	part := &Part{NICs: slices.SortedFunc(maps.Keys(noted), log.MAC.Compare)}
	vnets := map[uint32]bool{}
	for _, r := range nics {
		vnets[r.Home().VNet] = true
		if _, is := noted[r.MAC()]; is {
			p.addFabric(r)
			p.addNeighs(r)
		}
	}
	p.known = g.vnets
	p.addDevices(g.altered(p)...)
	p.sort()
	part.Links = p.want
	part.Links.Problems = nil
	for vnet := range vnets {
		if !g.vnets[vnet] {
			part.New = append(part.New, vnet)
		}
	}
	for vnet := range g.vnets {
		if !vnets[vnet] {
			part.NoVXLANs = append(part.NoVXLANs, vnet)
		}
	}
	for at := range g.places {
		if _, is := p.asked[at]; is {
			continue
		}
		part.NoSegments = append(part.NoSegments, Segment{VNet: at.vnet, VLAN: at.vlan})
		if at.vlan != 0 {
			part.NoVLANs = append(part.NoVLANs, VLAN{VNet: at.vnet, ID: at.vlan})
		}
	}
	slices.Sort(part.New)
	slices.Sort(part.NoVXLANs)
	slices.SortFunc(part.NoVLANs, compareVLAN)
	slices.SortFunc(part.NoSegments, CompareSegment)
	g.vnets, g.places = vnets, p.asked
	for _, vnet := range part.NoVXLANs {
		delete(g.peers, vnet)
	}
	for _, r := range part.Links.Peers {
		g.keepPeer(r)
	}
	t.followDemand(p, part)
	return part
}

// altered returns places of the CN's links, as p has them now, where Segment or VXLAN have
// not the broadcast that was given, in any order.
func (g *given) altered(p *planner) (places []place) {
	floods := map[uint32]bool{}
	for at, broadcast := range g.places {
		floods[at.vnet] = floods[at.vnet] || broadcast
	}
	for at, broadcast := range p.asked {
		was, had := g.places[at]
		if had && was != broadcast || g.vnets[at.vnet] && floods[at.vnet] != p.floods[at.vnet] {
			places = append(places, at)
		}
	}
	return places
}

// followDemand makes the limits know the vnets that are new, and forget those that are
// gone: only a vnet that crosses its limit needs the whole.
func (t *Touches) followDemand(p *planner, part *Part) {
	for _, vnet := range part.NoVXLANs {
		delete(t.limit.OnDemand, vnet)
	}
	for _, vnet := range part.New {
		if p.demand[vnet] {
			if t.limit.OnDemand == nil {
				t.limit.OnDemand = map[uint32]bool{}
			}
			t.limit.OnDemand[vnet] = true
		}
	}
}
