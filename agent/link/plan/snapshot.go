package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/agent/filter"
	"rutter/projections/desired"

	"rutter/log"
)

// Snapshot is the result of a dump: the links that may be ours (MayBeOurs), in our own
// namespace and in the VM namespaces that were read, with everything on them. All
// slices are sorted, so equal kernels give deeply equal snapshots.
type Snapshot struct {
	Links []Link // by (Namespace, Name)
	// Missing are the requested namespaces that do not exist, by name.
	Missing []string
	// Unread are the requested namespaces that exist, or seem to, and could not be read.
	// What is in them is unknown.
	Unread map[string]Unread
	// Resolvers is the content of resolv.conf of each requested namespace that has one.
	Resolvers map[string]string
	// Elsewhere is that of namespaces that were not requested, or do not exist. Only what
	// bears our mark is ours there.
	Elsewhere map[string]string
	// identified: Identify has decided which links are ours.
	identified bool
	// UnreadResolvers are the namespaces whose resolv.conf could not be read.
	UnreadResolvers map[string]error

	// Rules is what the node's filter holds, and RulesErr why that is unknown. Both are
	// of a kernel with a filter.
	Rules    filter.State
	RulesErr error
	// Interfaces are the links of our own namespace that may carry the underlay, of a
	// kernel with a filter.
	Interfaces []Interface
}

// Interface is a link of our own namespace, ours or not, with its addresses.
type Interface struct {
	Name  string
	Index int32
	// Virtual: no packet of another node comes by it (lo, a dummy).
	Virtual   bool
	Addresses []netip.Addr
}

// Unread says why a namespace was not read.
type Unread struct {
	Err     error     // of this dump, or of the last one that tried; it has the path
	RetryAt time.Time // a dump before this does not try; zero: the next one does
}

// Link is one link in the kernel, or as a step wants it. Fields that a kind does not
// have are zero.
type Link struct {
	Namespace string // "" is our own
	// Name is the name in the kernel. After Identify, the name of a link of ours is the
	// one that we gave it: all steps have that name, and the kernel's user knows the
	// ifindex. Now is then the name in the kernel, if that is another one.
	Name, Now string
	// As is the name in the kernel that a link of a NIC is to have; "": Name.
	As   string
	Kind string // IFLA_INFO_KIND: "vxlan", "vlan", "macvlan", or what a foreign link is
	// Parent is the name of the link below, in our own namespace; "" if there is none,
	// or if it cannot be one of ours.
	Parent string
	// Below is the ifindex of the link below, if that is in our own namespace, else 0.
	Below int32
	Index int32 // the ifindex in Namespace; differs from kernel to kernel, never compared
	MTU   uint32
	MAC   log.MAC
	Up    bool

	Alias string // IFLA_IFALIAS: our mark, see Mark
	Group uint32 // IFLA_GROUP, see GroupOf
	Known string // the Name of this link, if it was ours in the last dump, or was made since
	// Ours is set by Identify. RenameBack: the name in the kernel is not accepted, and
	// As, or Name, is free.
	Ours, RenameBack bool

	VNI       uint32     // vxlan
	Local     netip.Addr // vxlan; invalid: the kernel chooses, by its route
	Device    int32      // vxlan: ifindex of the link that it sends by; 0: any
	Port      uint16     // vxlan: UDP destination port
	Learning  bool       // vxlan: false on ours, because entries come from the log
	Proxy     bool       // vxlan
	L2Miss    bool       // vxlan
	L3Miss    bool       // vxlan
	VLAN      uint16     // vlan
	Bridge    bool       // macvlan: in bridge mode, spec/kernel.md section 1
	STP       bool       // bridge
	Snooping  bool       // bridge: of multicast
	Host      bool       // the node's end of the pair of a fabric link, or a tap
	User      uint32     // tap: who may open it; desired.NoUser: any user of the node
	QuietIPv6 bool       // vxlan, vlan: the kernel gives it no IPv6 address of its own

	ARP, ND Probes // macvlan: how neighbours are asked for, IPv4 and IPv6

	// Master is the name of the bridge that the link is a port of, in our own namespace;
	// "" if there is none. MasterIndex is its ifindex. Flags are those of the port.
	Master      string
	MasterIndex int32
	Flags       PortFlags

	Addresses []netip.Prefix  // fabric link; without IPv6 link-local ones
	Routes    []desired.Route // fabric link; ours only, by Dst
	Neighs    []Neighbour     // fabric link; permanent ones only, by IP
	FDB       []Forward       // vxlan, by MAC; those for all (the zero MAC) come first
	Static    []log.MAC       // veth, the node's end: the bridge's static entries for it
	// Peer is, of the VM's end of a veth pair that a step makes, the node's end.
	Peer *Link
	// Guests are foreign links on this one, by name.
	Guests []string
}

// PortFlags say which frames a bridge sends by a port, and whether it learns there.
type PortFlags struct {
	Learning  bool // who sends there
	Flood     bool // frames to one unknown MAC
	Multicast bool
	Broadcast bool
}

// IsFabric reports whether a link of ours is a fabric link.
func (l *Link) IsFabric() bool { return l.Kind == KindMacvlan || l.Kind == KindVeth && !l.Host }

// Needs returns the name of the link of our own namespace without which this one cannot
// be made; "" if there is none.
func (l *Link) Needs() string {
	if l.Peer != nil {
		return l.Peer.Master
	}
	if l.Kind == KindTap {
		return l.Master
	}
	return l.Parent
}

// Probes is how the kernel asks for an unknown neighbour of a link.
type Probes struct {
	Known bool   // false: the link has no such table (a kernel without IPv6)
	App   uint32 // RTM_GETNEIGH messages (NDTPA_APP_PROBES)
	Mcast uint32 // broadcast ARP or ND (NDTPA_MCAST_PROBES)
}

// WantedProbes: one message to us and no broadcast, which would not be answered
// (spec/kernel.md section 1, "Recommended").
var WantedProbes = Probes{Known: true, App: 1, Mcast: 0}

// BroadcastProbes are those of a link whose network carries broadcast: what the log does not
// know, such as an address that a pair of VMs shares, the VMs ask each other.
var BroadcastProbes = Probes{Known: true, App: 1, Mcast: 3}

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

// LinkKey identifies a link.
type LinkKey struct{ Namespace, Name string }

// Key returns the link's key.
func (l *Link) Key() LinkKey { return LinkKey{l.Namespace, l.Name} }

// NameNow returns the name of a link in the kernel.
func (l *Link) NameNow() string { return cmp.Or(l.Now, l.Name) }

// NameToBe returns the name that a link is to have in the kernel.
func (l *Link) NameToBe() string { return cmp.Or(l.As, l.Name) }

// Place returns the name of a link in the kernel, with its namespace, for messages.
func (l *Link) Place() string {
	if l.Namespace == "" {
		return l.NameNow()
	}
	return l.NameNow() + " in namespace " + l.Namespace
}

// CompareKey orders links by namespace, then name.
func CompareKey(a, b LinkKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func compareRoute(a, b desired.Route) int { return comparePrefix(a.Dst, b.Dst) }

func compareNeighbour(a, b Neighbour) int { return a.IP.Compare(b.IP) }

func compareForward(a, b Forward) int {
	return cmp.Or(a.MAC.Compare(b.MAC), a.Dst.Compare(b.Dst))
}

// Sort sorts all parts of a snapshot.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Links, func(a, b Link) int { return CompareKey(a.Key(), b.Key()) })
	slices.Sort(s.Missing)
	for i := range s.Links {
		l := &s.Links[i]
		slices.SortFunc(l.Addresses, comparePrefix)
		slices.SortFunc(l.Routes, compareRoute)
		slices.SortFunc(l.Neighs, compareNeighbour)
		slices.SortFunc(l.FDB, compareForward)
		slices.SortFunc(l.Static, log.MAC.Compare)
		slices.Sort(l.Guests)
	}
}

// ByKey returns the snapshot's links by key.
func (s *Snapshot) ByKey() map[LinkKey]*Link {
	byKey := make(map[LinkKey]*Link, len(s.Links))
	for i := range s.Links {
		byKey[s.Links[i].Key()] = &s.Links[i]
	}
	return byKey
}

// String prints a link and what is on it, like ip -d link, without its ifindex.
func (l *Link) String() string {
	var b strings.Builder
	name := l.Name
	if l.Parent != "" {
		name += "@" + l.Parent
	}
	state := "DOWN"
	if l.Up {
		state = "UP"
	}
	if l.Namespace != "" {
		fmt.Fprintf(&b, "[%s] ", l.Namespace)
	}
	fmt.Fprintf(&b, "%s: mtu %d state %s\n    %s", name, l.MTU, state, l.Kind)
	switch l.Kind {
	case KindVXLAN:
		fmt.Fprintf(&b, " id %d local %s dstport %d%s%s%s%s", l.VNI, l.Local, l.Port,
			flagText(" learning", l.Learning), flagText(" proxy", l.Proxy), flagText(" l2miss", l.L2Miss), flagText(" l3miss", l.L3Miss))
	case KindVLAN:
		fmt.Fprintf(&b, " protocol 802.1Q id %d", l.VLAN)
	case KindMacvlan:
		fmt.Fprintf(&b, "%s address %s app_probes %d/%d", flagText(" mode bridge", l.Bridge), l.MAC, l.ARP.App, l.ND.App)
	case KindBridge:
		fmt.Fprintf(&b, "%s%s", flagText(" stp", l.STP), flagText(" mcast_snooping", l.Snooping))
	case KindTap:
		fmt.Fprintf(&b, " address %s user %d master %s%s", l.MAC, l.User, l.Master, l.Flags)
	case KindVeth:
		if l.Host {
			fmt.Fprintf(&b, " master %s%s", l.Master, l.Flags)
		} else {
			fmt.Fprintf(&b, " address %s app_probes %d/%d", l.MAC, l.ARP.App, l.ND.App)
		}
	}
	b.WriteString(flagText(" addrgenmode none", l.QuietIPv6) + "\n")
	for _, a := range l.Addresses {
		fmt.Fprintf(&b, "    inet %s\n", a)
	}
	for _, r := range l.Routes {
		fmt.Fprintf(&b, "    route %s via %s\n", r.Dst, r.Gateway)
	}
	for _, n := range l.Neighs {
		fmt.Fprintf(&b, "    neigh %s lladdr %s PERMANENT\n", n.IP, n.MAC)
	}
	for _, mac := range l.Static {
		fmt.Fprintf(&b, "    fdb %s master static\n", mac)
	}
	for _, e := range l.FDB {
		fmt.Fprintf(&b, "    fdb %s dst %s port %d self%s\n", e.MAC, e.Dst, e.Port, flagText(" permanent", e.Permanent))
	}
	return b.String()
}

// String prints the flags that are set, as ip -d link does.
func (f PortFlags) String() string {
	return flagText(" learning", f.Learning) + flagText(" flood", f.Flood) + flagText(" mcast_flood", f.Multicast) + flagText(" bcast_flood", f.Broadcast)
}

func flagText(text string, set bool) string {
	if set {
		return text
	}
	return ""
}

// Apply changes a link as a step about its settings, addresses or routes does; other
// steps change nothing. Copies of the link may share its lists: Apply copies what it changes.
func (l *Link) Apply(s *Step) {
	switch s.Op {
	case OpSetLink:
		l.Up = (l.Up || s.Change&ChangeUp != 0) && s.Change&ChangeDown == 0
		l.QuietIPv6 = l.QuietIPv6 || s.Change&ChangeQuietIPv6 != 0
		if s.Change&ChangeMTU != 0 {
			l.MTU = s.Spec.MTU
		}
		if s.Change&ChangeMAC != 0 {
			l.MAC = s.Spec.MAC
		}
		if s.Change&ChangeUser != 0 {
			l.User = s.Spec.User
		}
		if s.Change&ChangeMark != 0 {
			l.Alias, l.Group = s.Spec.Alias, s.Spec.Group
		}
		if s.Change&ChangeName != 0 {
			l.As, l.Now, l.RenameBack = s.Spec.As, "", false
			if l.As != "" && l.As != l.Name {
				l.Now = l.As
			}
		}
		if s.Change&ChangeMaster != 0 {
			l.Master = s.Spec.Master
		}
		if s.Change&ChangeFlags != 0 {
			l.Flags = s.Spec.Flags
		}
		if s.Change&ChangeBridge != 0 {
			l.STP, l.Snooping = s.Spec.STP, s.Spec.Snooping
		}
	case OpSetStatic:
		l.Static = put(l.Static, s.MAC, log.MAC.Compare)
	case OpAddFlood:
		l.FDB = put(l.FDB, Forward{Dst: s.Addr, Permanent: true}, compareForward)
	case OpDelFlood:
		l.FDB = drop(l.FDB, Forward{Dst: s.Addr}, compareForward)
	case OpDelStatic:
		l.Static = drop(l.Static, s.MAC, log.MAC.Compare)
	case OpAddAddress:
		l.Addresses = put(l.Addresses, s.Prefix, comparePrefix)
	case OpDelAddress:
		l.Addresses = drop(l.Addresses, s.Prefix, comparePrefix)
	case OpSetRoute:
		l.Routes = put(l.Routes, desired.Route{Dst: s.Prefix, Gateway: s.Addr}, compareRoute)
	case OpDelRoute:
		l.Routes = drop(l.Routes, desired.Route{Dst: s.Prefix}, compareRoute)
	}
}

// drop returns a copy of list without the elements equal to e.
func drop[E any](list []E, e E, compare func(E, E) int) []E {
	return slices.DeleteFunc(slices.Clone(list), func(other E) bool { return compare(other, e) == 0 })
}

// put returns a sorted copy of list with e in place of the elements equal to it.
func put[E any](list []E, e E, compare func(E, E) int) []E {
	list = append(drop(list, e, compare), e)
	slices.SortFunc(list, compare)
	return list
}

// ReportMisses reports whether the kernel reports its misses: the effect of OpSetProbes.
func (p Probes) ReportMisses() bool { return p.Known && p.App == WantedProbes.App }

// Searched returns the namespaces that a dump must read: the wanted ones, and those
// where links were put before.
func Searched(wanted, before []string) []string {
	names := slices.Concat(wanted, before)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}
