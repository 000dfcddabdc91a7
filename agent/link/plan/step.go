package plan

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"rutter/agent/filter"
	"rutter/log"
)

// RouteProtocol marks our routes (rtm_protocol, linux/rtnetlink.h; the number is not
// assigned): a VM's own routes are not ours.
const RouteProtocol = 82

// RouteMetric + N is the metric of the routes of fabric<N>, so that a VM with two NICs
// may have two default routes; the older NIC's has priority.
const RouteMetric = 1000

// Op is what a step does.
type Op uint8

// The operations. Set and Add succeed if the object is already so, Del if it does not
// exist.
const (
	OpAddLink Op = iota + 1 // Spec
	OpSetLink               // Spec, the fields named by Change
	OpDelLink
	OpSetProbes  // Probes
	OpAddAddress // Prefix
	OpDelAddress // Prefix
	OpSetRoute   // Prefix, Addr, Onlink
	OpDelRoute   // Prefix
	OpSetFDB     // MAC, Addr, Port
	OpDelFDB     // MAC
	OpSetNeigh   // Addr, MAC
	OpDelNeigh   // Addr
	OpWriteResolvers
	OpRemoveResolvers
	OpSetStatic // MAC: a bridge's static entry for the port Link
	OpDelStatic // MAC
	OpAddFlood  // Addr: a VXLAN device's entry for all MACs that have none
	OpDelFlood  // Addr
	OpSetRules  // Rule
	OpDelRules  // Rule
)

// Change names the fields that an OpSetLink sets.
type Change uint16

// The changeable fields of a Link.
const (
	ChangeMTU Change = 1 << iota
	ChangeMAC
	ChangeUp
	ChangeQuietIPv6
	ChangeMark // Alias and Group
	ChangeName
	ChangeMaster
	ChangeFlags
	ChangeBridge // STP, Snooping
	ChangeDown
	ChangeUser // of a tap
)

// Step is one change of the kernel. It is idempotent, and prints itself as the command
// that would do the same.
type Step struct {
	Op        Op
	Object    Object // the object that it is for
	Namespace string
	Link      string // the Name of the link acted on
	MAC       log.MAC
	Port      uint16
	Onlink    bool // the gateway is in none of the link's prefixes
	Broadcast bool // of OpSetProbes: the link's network carries broadcast
	Change    Change
	Addr      netip.Addr
	Prefix    netip.Prefix
	Spec      *Link  // shared, never changed
	Content   string // of resolv.conf
	// Rule is a change of the node's filter, shared and never changed. If it sets a port
	// or a segment without an Index, that is the ifindex of Link. With ChangeDown in
	// Change the link is put down if the filter refuses the rule.
	Rule *filter.Change
}

// ObjectKind is what an Object is.
type ObjectKind uint8

// The kinds of object.
const (
	ObjectVXLAN ObjectKind = iota + 1
	ObjectVLAN
	ObjectFabric
	ObjectNeigh
	ObjectFDB
	ObjectResolvers
	ObjectBridge   // of one VLAN of a vnet
	ObjectPeer     // a node whose packets of a vnet are taken
	ObjectFlood    // what a vnet sends to all its nodes
	ObjectUnderlay // where packets of vnets are taken
	ObjectRules    // all rules of the filter
)

// Object names one thing of the desired state (or a left-over of an earlier one). It is
// comparable, and the key of failures and delays.
type Object struct {
	Kind ObjectKind
	VNet uint32     // vxlan, vlan, fdb, bridge, peer, flood
	VLAN uint16     // vlan, bridge
	MAC  log.MAC    // fabric; neigh: of the NIC whose link carries the entry; fdb
	IP   netip.Addr // neigh, peer, flood
	Name string     // resolvers: the namespace; left-overs: the link
}

// String names the object in a message.
func (o Object) String() string {
	switch o.Kind {
	case ObjectVXLAN, ObjectVLAN, ObjectBridge:
		if o.Name != "" {
			return "link " + o.Name
		}
	}
	switch o.Kind {
	case ObjectVXLAN:
		return "vxlan " + VXLANName(o.VNet)
	case ObjectVLAN:
		return "vlan " + VLANName(o.VNet, o.VLAN)
	case ObjectFabric:
		if o.Name != "" {
			return "fabric link " + o.Name
		}
		return "fabric link of " + o.MAC.String()
	case ObjectNeigh:
		return fmt.Sprintf("neighbour %s of %s", o.IP, o.MAC)
	case ObjectFDB:
		return fmt.Sprintf("forwarding entry %s on %s", o.MAC, VXLANName(o.VNet))
	case ObjectResolvers:
		return "resolv.conf of " + o.Name
	case ObjectBridge:
		return "bridge " + BridgeName(o.VNet, o.VLAN)
	case ObjectPeer:
		return fmt.Sprintf("peer %s of %s", o.IP, VXLANName(o.VNet))
	case ObjectFlood:
		if o.IP.IsValid() {
			return fmt.Sprintf("broadcast to %s by %s", o.IP, VXLANName(o.VNet))
		}
		return "broadcast by " + VXLANName(o.VNet)
	case ObjectUnderlay:
		return "rules of the underlay"
	case ObjectRules:
		return "rules of port security"
	}
	return fmt.Sprintf("object of kind %d", o.Kind)
}

// Kernel executes Plan's steps. One goroutine at a time may use it.
type Kernel interface {
	// Dump reads our own namespace and the named ones. A missing namespace is listed in
	// Missing, and one that cannot be read in Unread, without an error: what fails there
	// fails nothing else. An error means that our own namespace could not be read.
	Dump(ctx context.Context, namespaces []string) (Snapshot, error)
	// Do executes the steps in order. It continues after a failure, and returns nil if
	// all succeeded, otherwise one error (or nil) for each step.
	Do(ctx context.Context, steps []Step) []error
}

// String prints the step as an ip(8) or bridge(8) command.
func (s Step) String() string {
	ip := "ip"
	if s.Namespace != "" {
		ip = "ip -n " + s.Namespace
	}
	switch s.Op {
	case OpAddLink:
		return addLinkText(s.Spec)
	case OpSetLink:
		return ip + " link set " + s.Link + s.changeText()
	case OpDelLink:
		return ip + " link del " + s.Link
	case OpSetProbes:
		return fmt.Sprintf("%s ntable change name %s dev %s app_probes %d mcast_probes %d", ip, s.Table(), s.Link, s.Probes().App, s.Probes().Mcast)
	case OpAddAddress:
		return fmt.Sprintf("%s addr replace %s dev %s", ip, s.Prefix, s.Link)
	case OpDelAddress:
		return fmt.Sprintf("%s addr del %s dev %s", ip, s.Prefix, s.Link)
	case OpSetRoute, OpDelRoute:
		return s.routeText(ip)
	case OpSetFDB:
		port := ""
		if s.Port != 0 {
			port = fmt.Sprintf(" port %d", s.Port)
		}
		return fmt.Sprintf("bridge fdb replace %s dev %s dst %s%s self permanent", s.MAC, s.Link, s.Addr, port)
	case OpDelFDB:
		return fmt.Sprintf("bridge fdb del %s dev %s self", s.MAC, s.Link)
	case OpSetNeigh:
		return fmt.Sprintf("%s neigh replace %s lladdr %s dev %s nud permanent", ip, s.Addr, s.MAC, s.Link)
	case OpDelNeigh:
		return fmt.Sprintf("%s neigh del %s dev %s", ip, s.Addr, s.Link)
	case OpWriteResolvers:
		return fmt.Sprintf("write resolv.conf of %s: %q", s.Namespace, s.Content)
	case OpRemoveResolvers:
		return "remove resolv.conf of " + s.Namespace
	case OpSetStatic:
		return fmt.Sprintf("bridge fdb replace %s dev %s master static sticky", s.MAC, s.Link)
	case OpDelStatic:
		return fmt.Sprintf("bridge fdb del %s dev %s master", s.MAC, s.Link)
	case OpAddFlood:
		return fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev %s dst %s self permanent", s.Link, s.Addr)
	case OpDelFlood:
		return fmt.Sprintf("bridge fdb del 00:00:00:00:00:00 dev %s dst %s self", s.Link, s.Addr)
	case OpSetRules, OpDelRules:
		return s.ruleText()
	}
	return fmt.Sprintf("step of unknown kind %d", s.Op)
}

// Probes are what an OpSetProbes sets.
func (s Step) Probes() Probes {
	if s.Broadcast {
		return BroadcastProbes
	}
	return WantedProbes
}

// Table is the neighbour table of an OpSetProbes: the IPv6 one if Addr is IPv6.
func (s Step) Table() string {
	if s.Addr.Is6() {
		return "ndisc_cache"
	}
	return "arp_cache"
}

func (s Step) changeText() string {
	var b strings.Builder
	if s.Change&ChangeMAC != 0 {
		fmt.Fprintf(&b, " address %s", s.Spec.MAC)
	}
	if s.Change&ChangeMTU != 0 {
		fmt.Fprintf(&b, " mtu %d", s.Spec.MTU)
	}
	if s.Change&ChangeQuietIPv6 != 0 {
		b.WriteString(" addrgenmode none")
	}
	if s.Change&ChangeUp != 0 {
		b.WriteString(" up")
	}
	if s.Change&ChangeDown != 0 {
		b.WriteString(" down")
	}
	if s.Change&ChangeMaster != 0 {
		b.WriteString(" master " + s.Spec.Master)
	}
	if s.Change&ChangeFlags != 0 {
		b.WriteString(" type bridge_slave" + flagWords(s.Spec.Flags))
	}
	if s.Change&ChangeBridge != 0 {
		b.WriteString(" type bridge stp_state 0 mcast_snooping 0")
	}
	if s.Change&ChangeName != 0 {
		b.WriteString(" name " + s.Spec.NameToBe())
	}
	if s.Change&ChangeUser != 0 {
		fmt.Fprintf(&b, " user %d", s.Spec.User)
	}
	if s.Change&ChangeMark != 0 {
		fmt.Fprintf(&b, " alias %q group %d", s.Spec.Alias, s.Spec.Group)
	}
	return b.String()
}

func (s Step) routeText(ip string) string {
	dst := s.Prefix.String()
	if s.Prefix.Bits() == 0 {
		dst = "default"
		if s.Prefix.Addr().Is6() {
			ip += " -6"
		}
	}
	if s.Op == OpDelRoute {
		return fmt.Sprintf("%s route del %s dev %s proto %d", ip, dst, s.Link, RouteProtocol)
	}
	onlink := ""
	if s.Onlink {
		onlink = " onlink"
	}
	return fmt.Sprintf("%s route replace %s via %s dev %s%s proto %d", ip, dst, s.Addr, s.Link, onlink, RouteProtocol)
}

// ruleText prints a step of the filter. There is no command for it.
func (s Step) ruleText() string {
	switch c := s.Rule; {
	case c.SetPort != nil:
		return fmt.Sprintf("set rules of %s: %s, %v", s.Link, c.SetPort.MAC, c.SetPort.Addresses)
	case c.SetSegment != nil:
		return "set rules of " + s.Link
	case c.SetUnderlay != nil:
		return fmt.Sprintf("set rules of the underlay: UDP ports %v, interfaces %v", c.SetUnderlay.Ports, c.SetUnderlay.Interfaces)
	case c.AddPeer != nil:
		return fmt.Sprintf("add peer %s of %s", c.AddPeer.VTEP, VXLANName(c.AddPeer.VNI))
	case c.DelPeer != nil:
		return fmt.Sprintf("delete peer %s of %s", c.DelPeer.VTEP, VXLANName(c.DelPeer.VNI))
	}
	return "delete rules of " + s.Link
}

func flagWords(f PortFlags) string {
	word := func(on bool) string {
		if on {
			return "on"
		}
		return "off"
	}
	return fmt.Sprintf(" learning %s flood %s mcast_flood %s bcast_flood %s", word(f.Learning), word(f.Flood), word(f.Multicast), word(f.Broadcast))
}

func addLinkText(l *Link) string {
	switch l.Kind {
	case KindVXLAN:
		return fmt.Sprintf("ip link add %s mtu %d up alias %q group %d type vxlan id %d local %s dstport %d nolearning%s l2miss l3miss",
			l.Name, l.MTU, l.Alias, l.Group, l.VNI, l.Local, l.Port, flagText(" proxy", l.Proxy))
	case KindVLAN:
		return fmt.Sprintf("ip link add link %s name %s mtu %d up alias %q group %d type vlan protocol 802.1Q id %d", l.Parent, l.Name, l.MTU, l.Alias, l.Group, l.VLAN)
	case KindBridge:
		return fmt.Sprintf("ip link add %s mtu %d alias %q group %d type bridge stp_state 0 mcast_snooping 0", l.Name, l.MTU, l.Alias, l.Group)
	}
	if l.Kind == KindTap {
		return fmt.Sprintf("ip tuntap add %s mode tap user %d vnet_hdr && ip link set %s address %s mtu %d alias %q group %d master %s", l.NameToBe(), l.User, l.NameToBe(), l.MAC, l.MTU, l.Alias, l.Group, l.Master)
	}
	netns := ""
	if l.Namespace != "" {
		netns = " netns " + l.Namespace
	}
	if h := l.Peer; h != nil {
		return fmt.Sprintf("ip link add %s mtu %d alias %q group %d master %s type veth peer name %s%s address %s mtu %d group %d", h.Name, h.MTU, h.Alias, h.Group, h.Master, l.NameToBe(), netns, l.MAC, l.MTU, l.Group)
	}
	return fmt.Sprintf("ip link add link %s name %s%s address %s mtu %d up group %d type macvlan mode bridge", l.Parent, l.NameToBe(), netns, l.MAC, l.MTU, l.Group)
}
