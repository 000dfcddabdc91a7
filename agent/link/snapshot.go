package link

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Snapshot is what a dump found: the links that carry one of our names, in our
// own namespace and in the VM namespaces that were searched, with all that hangs
// on them. All slices are sorted, so equal kernels give deeply equal snapshots.
type Snapshot struct {
	Links []Link // by (Namespace, Name)
	// Missing are the searched namespaces that do not exist, by name.
	Missing []string
	// Resolvers is the content of resolv.conf of each searched namespace that
	// has one.
	Resolvers map[string]string
}

// Link is one link as the kernel has it, or as a step wants it. The fields that
// a kind does not have are zero.
type Link struct {
	Namespace string // "" is our own
	Name      string
	Kind      string // IFLA_INFO_KIND: "vxlan", "vlan", "macvlan", or what a foreign link is
	// Parent is the name of the link below, in our own namespace; "" if there is
	// none, or if it is not a link that carries one of our names.
	Parent string
	Index  int32 // the ifindex in Namespace; differs from kernel to kernel, never compared
	MTU    uint32
	MAC    log.MAC
	Up     bool

	VNI       uint32     // vxlan
	Local     netip.Addr // vxlan
	Port      uint16     // vxlan: UDP destination port
	Learning  bool       // vxlan: false on ours, the log is the teacher
	Proxy     bool       // vxlan
	L2Miss    bool       // vxlan
	L3Miss    bool       // vxlan
	VLAN      uint16     // vlan
	Bridge    bool       // macvlan: in bridge mode, spec/kernel.md section 1
	QuietIPv6 bool       // vxlan, vlan: the kernel gives it no IPv6 address of its own

	ARP, ND Probes // macvlan: how neighbours are asked for, IPv4 and IPv6

	Addresses []netip.Prefix      // macvlan; without IPv6 link-local ones
	Routes    []projections.Route // macvlan; ours only, by Dst
	Neighs    []Neighbour         // macvlan; permanent ones only, by IP
	FDB       []Forward           // vxlan, by MAC
	// Guests are foreign links that sit on this one, by name.
	Guests []string
}

// Probes says whom the kernel asks for an unknown neighbour of a link.
type Probes struct {
	Known bool   // false: the link has no such table (a kernel without IPv6)
	App   uint32 // RTM_GETNEIGH messages (NDTPA_APP_PROBES)
	Mcast uint32 // broadcast ARP or ND (NDTPA_MCAST_PROBES)
}

// wantProbes: one message to us and no broadcast, which nobody would answer
// (spec/kernel.md section 1, "Recommended").
var wantProbes = Probes{Known: true, App: 1, Mcast: 0}

// Neighbour is one permanent neighbour entry of a fabric link.
type Neighbour struct {
	IP  netip.Addr
	MAC log.MAC
}

// Forward is one forwarding entry of a VXLAN device.
type Forward struct {
	MAC       log.MAC
	Dst       netip.Addr
	Port      uint16 // 0: the device's own
	Permanent bool   // false: it would age
}

// place is where a link is found: no two links share one.
type place struct{ namespace, name string }

func (l *Link) place() place { return place{l.Namespace, l.Name} }

func comparePlace(a, b place) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

func compareMAC(a, b log.MAC) int { return bytes.Compare(a[:], b[:]) }

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func compareRoute(a, b projections.Route) int { return comparePrefix(a.Dst, b.Dst) }

func compareNeighbour(a, b Neighbour) int { return a.IP.Compare(b.IP) }

func compareForward(a, b Forward) int {
	return cmp.Or(compareMAC(a.MAC, b.MAC), a.Dst.Compare(b.Dst))
}

// sort puts a snapshot into its one order.
func (s *Snapshot) sort() {
	slices.SortFunc(s.Links, func(a, b Link) int { return comparePlace(a.place(), b.place()) })
	slices.Sort(s.Missing)
	for i := range s.Links {
		l := &s.Links[i]
		slices.SortFunc(l.Addresses, comparePrefix)
		slices.SortFunc(l.Routes, compareRoute)
		slices.SortFunc(l.Neighs, compareNeighbour)
		slices.SortFunc(l.FDB, compareForward)
		slices.Sort(l.Guests)
	}
}

// links returns the snapshot's links by place.
func (s *Snapshot) links() map[place]*Link {
	byPlace := make(map[place]*Link, len(s.Links))
	for i := range s.Links {
		byPlace[s.Links[i].place()] = &s.Links[i]
	}
	return byPlace
}

// owned reports whether a link is ours: name, kind and what it sits on.
func owned(l *Link, byPlace map[place]*Link) bool {
	if kindOfName(l.Name) != l.Kind {
		return false
	}
	switch l.Kind {
	case kindVXLAN:
		return l.Namespace == ""
	case kindVLAN:
		parent := byPlace[place{"", l.Parent}]
		return l.Namespace == "" && parent != nil && parent.Kind == kindVXLAN && owned(parent, byPlace)
	default:
		parent := byPlace[place{"", l.Parent}]
		return parent != nil && parent.Kind != kindMacvlan && owned(parent, byPlace)
	}
}
