// Package underlay says what the underlays of compute nodes (CNs) carry, and which
// networks of vnets do not fit, by a state.
//
// It owns the sum of headers that a packet of a vnet gets on its way (Need), what one CN
// carries (Of), and which CNs are too narrow for a network (TooNarrow, Binding). What follows from
// that is left to package rules, which refuses or clamps, to package desired, which
// gives links their MTU, and to the servers' warnings. How a CN finds out what its
// underlay carries is package agent/underlay's.
//
// The package is pure, and only reads the state.
package underlay

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Headers returns the bytes between the MTU of a network and the IP packet on the
// underlay: inner Ethernet (14), VXLAN (8), UDP (8) and outer IP (20 or 40), and 4 for a
// VLAN tag inside (docs/spec/kernel.md section 2).
func Headers(ipv6, vlan bool) uint32 {
	n := uint32(projections.Overhead4)
	if ipv6 {
		n = projections.Overhead6
	}
	if !vlan {
		n -= projections.VLANTag
	}
	return n
}

// Node is what the underlay of a CN carries.
type Node struct {
	CN   log.UUID
	Host string     // its hostname; "" on a CN that does not hold the server's object
	Addr netip.Addr // of its VTEP
	// MTU is the largest IP packet, in bytes, that goes from its VTEP to each other one.
	MTU uint32
	// Said: the CN itself has reported its interface. Else MTU is what the log says of
	// the underlay network.
	Said bool
	// Path is the path to another VTEP that makes MTU so small; zero if the interface, or
	// the underlay network, does.
	Path log.PathTo
}

// Carries returns the largest MTU of a network, in bytes, that fits.
func (n *Node) Carries(vlan bool) uint32 {
	headers := Headers(n.Addr.Is6(), vlan)
	return max(n.MTU, headers) - headers
}

// Name returns the node's name for people.
func (n *Node) Name() string {
	if n.Host != "" {
		return log.Quote(n.Host) + " (" + n.CN.String() + ")"
	}
	return n.CN.String()
}

// Why returns where the MTU is from, in words.
func (n *Node) Why() string {
	switch {
	case n.Path.Addr.IsValid():
		return fmt.Sprintf("its path to %s carries %d", n.Path.Addr, n.MTU)
	case n.Said:
		return fmt.Sprintf("its underlay interface has MTU %d", n.MTU)
	}
	return fmt.Sprintf("its underlay network has MTU %d", n.MTU)
}

// Of returns what the underlay of a CN carries; false if it has no underlay address. It
// is the least of what the log says of the underlay network, of the MTU that the CN
// reported of its interface, and of the paths that it reported.
func Of(s *projections.State, cn log.UUID) (Node, bool) {
	n, ok := Interface(s, cn)
	if r, known := s.Get(log.KindServer, cn.String()); known && ok {
		server := r.Object.(*log.Server)
		n.Host = server.Hostname
		n.narrowedBy(server, func(netip.Addr) bool { return true })
	}
	return n, ok
}

// narrowedBy counts the narrowest path that the CN reported to a VTEP that counts.
func (n *Node) narrowedBy(server *log.Server, counts func(to netip.Addr) bool) {
	for _, text := range server.UnderlayPaths {
		if path, err := log.ParsePathTo(text); err == nil && path.MTU < n.MTU && counts(path.Addr) {
			n.MTU, n.Path = path.MTU, path
		}
	}
}

// Interface is Of without the paths and the hostname, which only servers and the CN
// itself hold.
func Interface(s *projections.State, cn log.UUID) (n Node, ok bool) {
	if n, ok = written(s, cn); ok {
		n.report(s)
	}
	return n, ok
}

// report counts what the CN reported of its interface.
func (n *Node) report(s *projections.State) {
	if nic := s.UnderlayNIC(n.CN); nic.UnderlayMTU != 0 && nic.UnderlayMTU <= n.MTU {
		n.MTU, n.Said = nic.UnderlayMTU, true
	}
}

// written is Interface by what operators say of the underlay network only.
func written(s *projections.State, cn log.UUID) (n Node, ok bool) {
	nic := s.UnderlayNIC(cn)
	if nic == nil {
		return n, false
	}
	n = Node{CN: cn, Addr: nic.IP, MTU: projections.MinTagMTU}
	if net := s.Network(nic.NetworkUUID); net != nil {
		n.MTU = net.MTU
	} else if r, ok := s.Get(log.KindNICTag, nic.NICTag); ok {
		n.MTU = r.Object.(*log.NICTag).MTU
	}
	return n, true
}

// Nodes yields what each CN carries that has an underlay address and is not expunged, by
// UUID.
func Nodes(s *projections.State) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for r := range s.List(log.KindServer) {
			server := r.Object.(*log.Server)
			if n, ok := Of(s, server.UUID); ok && server.Status != "expunged" && !yield(n) {
				return
			}
		}
	}
}

// Narrow is what is too narrow for a network.
type Narrow struct {
	Nodes []Node // the narrowest first, then by UUID; at most maxNamed
	Count int    // of all
	Fits  uint32 // the largest MTU, in bytes, that fits all of them
}

// maxNamed bounds the CNs that are named; one is enough to begin with.
const maxNamed = 3

// TooNarrow returns the CNs whose underlay does not carry a network; Count is 0 if all do,
// and of a network that is not on a vnet. The cost is that of looking at each CN.
func TooNarrow(s *projections.State, net *log.Network) (found Narrow) {
	if !net.Fabric {
		return found
	}
	for n := range Nodes(s) {
		found.note(n, net.MTU, net.VLANID != 0)
	}
	return found
}

// Binding returns the CNs that a network must fit, of which TooNarrow is all: those that
// have NICs on its vnet, by what they report, and the others by what operators say of
// their underlay network. So a CN that reports less, or does not answer probes, narrows
// only vnets in which it has a part. The cost is that of TooNarrow.
func Binding(s *projections.State, net *log.Network) (found Narrow) {
	if !net.Fabric {
		return found
	}
	scope, vlan := log.VNetScope(net.VNetID), net.VLANID != 0
	part := make(map[log.UUID]bool)
	vteps := make(map[netip.Addr]bool)
	for _, cn := range s.CNs(scope) {
		part[cn] = true
		if at, ok := s.UnderlayOf(cn); ok {
			vteps[at.Addr] = true
		}
	}
	for r := range s.List(log.KindServer) {
		server := r.Object.(*log.Server)
		n, ok := written(s, server.UUID)
		if !ok || server.Status == "expunged" {
			continue
		}
		if n.Host = server.Hostname; part[server.UUID] {
			n.report(s)
			n.narrowedBy(server, func(to netip.Addr) bool { return vteps[to] })
		}
		found.note(n, net.MTU, vlan)
	}
	return found
}

// note counts a CN if it does not carry an MTU.
func (f *Narrow) note(n Node, mtu uint32, vlan bool) {
	carries := n.Carries(vlan)
	if carries >= mtu {
		return
	}
	if f.Count++; f.Count == 1 || carries < f.Fits {
		f.Fits = carries
	}
	f.add(n, vlan)
}

func (f *Narrow) add(n Node, vlan bool) {
	at := len(f.Nodes)
	for at > 0 && cmp.Less(n.Carries(vlan), f.Nodes[at-1].Carries(vlan)) {
		at--
	}
	if at == maxNamed {
		return
	}
	f.Nodes = append(f.Nodes[:at:at], append([]Node{n}, f.Nodes[at:]...)...)
	f.Nodes = f.Nodes[:min(len(f.Nodes), maxNamed)]
}

// Text names the CNs and what they carry of a network.
func (f *Narrow) Text(vlan bool) string {
	texts := make([]string, 0, maxNamed+1)
	for _, n := range f.Nodes {
		texts = append(texts, fmt.Sprintf("compute node %s carries %d (%s)", n.Name(), n.Carries(vlan), n.Why()))
	}
	if more := f.Count - len(f.Nodes); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// Warning says what writing an MTU to a network of a vnet came to, if it does not fit; "" if
// it does. n is the network as it stands, and asked the MTU that was sent, 0 if none was.
func Warning(s *projections.State, n *log.Network, asked uint32) string {
	wanted := *n
	wanted.MTU = max(n.MTU, asked)
	found := TooNarrow(s, &wanted)
	switch {
	case found.Count == 0:
		return ""
	case n.MTU < wanted.MTU:
		return fmt.Sprintf("network %s: mtu %d does not fit the underlay, so it is %d (setting fabric.mtu): %s", n.UUID, wanted.MTU, n.MTU, found.Text(n.VLANID != 0))
	}
	return fmt.Sprintf("network %s: mtu %d does not fit the underlay of %d compute nodes, whose links get less: %s", n.UUID, n.MTU, found.Count, found.Text(n.VLANID != 0))
}

// maxLines bounds the nodes that Warnings names.
const maxLines = 16

// Warnings names each CN on which a network has NICs that its underlay does not carry, with
// one such network; total is the number of these CNs. The cost is that of looking at each
// network, each CN, and the NICs of those CNs that may be too narrow.
func Warnings(s *projections.State) (lines []string, total int) {
	most := map[bool]uint32{} // the largest MTU of networks of vnets, with and without a VLAN
	for r := range s.List(log.KindNetwork) {
		if net := r.Object.(*log.Network); net.Fabric {
			most[net.VLANID != 0] = max(most[net.VLANID != 0], net.MTU)
		}
	}
	for n := range Nodes(s) {
		if n.Carries(true) >= most[true] && n.Carries(false) >= most[false] {
			continue
		}
		unfit := unfitOn(s, &n)
		if len(unfit) == 0 {
			continue
		}
		if total++; total <= maxLines {
			lines = append(lines, fmt.Sprintf("compute node %s: %s, which does not carry %d networks there, such as %s with mtu %d: at most %d fits (docs/deploy.md, MTU)",
				n.Name(), n.Why(), len(unfit), log.Quote(unfit[0].Name), unfit[0].MTU, n.Carries(unfit[0].VLANID != 0)))
		}
	}
	if total > maxLines {
		lines = append(lines, fmt.Sprintf("and %d more compute nodes whose underlay does not carry a network there", total-maxLines))
	}
	return lines, total
}

// unfitOn returns the networks with NICs on a CN that its underlay does not carry, in the
// order of their NICs.
func unfitOn(s *projections.State, n *Node) (unfit []*log.Network) {
	seen := map[log.UUID]bool{}
	for r := range projections.NICsOnCN(n.CN).NICs(s) {
		if r.Home().Type != log.ScopeVNet || seen[r.Network()] {
			continue
		}
		seen[r.Network()] = true
		if net := s.Network(r.Network()); net != nil && n.Carries(net.VLANID != 0) < net.MTU {
			unfit = append(unfit, net)
		}
	}
	return unfit
}
