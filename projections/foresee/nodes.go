package foresee

import (
	"fmt"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// Ahead is how many entries of one vnet a kernel gets before they are asked for: the
// default of the agents (rutter agent --ahead). Of vnets with more no entries are compared.
const Ahead = 65536

// Node is what one compute node's kernel would have to change.
type Node struct {
	CN       log.UUID `json:"cn_uuid"`
	Hostname string   `json:"hostname,omitempty"`
	Links    []Link   `json:"links"`
}

// Link is one thing in the kernel that would come, change or go.
type Link struct {
	Action log.Action `json:"action"`
	// What is vxlan, vlan, segment, fabric, neigh, fdb, peer or problem, as
	// desired.LinkChange has it; or filter: what the port of a NIC lets through.
	What string `json:"what"`
	Key  string `json:"key"`
	// Name is that of the NIC in the key, for people.
	Name   string `json:"name,omitempty"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// compareNodes fills in the nodes. The state is the one before.
func (f *fold) compareNodes(out *Outcome, before, after *concern) {
	direct := union(before.direct, after.direct)
	named := make(map[log.UUID]bool, len(direct))
	for _, cn := range direct {
		named[cn] = true
	}
	nodes := direct
	for _, cn := range union(before.others, after.others) {
		if !named[cn] {
			nodes = append(nodes, cn)
		}
	}
	out.NodesConcerned = len(nodes)
	nodes = f.affordable(nodes)
	out.NodesLooked = len(nodes)
	if len(nodes) == 0 {
		return
	}
	was := f.linksOf(nodes)
	found := make([]Node, len(nodes))
	for i, cn := range nodes {
		found[i] = Node{CN: cn, Hostname: nameOfUUID(f.state, cn.String())}
	}
	f.forward()
	is := f.linksOf(nodes)
	for i := range found {
		found[i].Links = linksBetween(was[i], is[i])
		if found[i].Hostname == "" {
			found[i].Hostname = nameOfUUID(f.state, found[i].CN.String())
		}
		f.nameLinks(found[i].Links)
	}
	f.back()
	for i := range found {
		if f.nameLinks(found[i].Links); len(found[i].Links) > 0 {
			out.Nodes = append(out.Nodes, found[i])
		}
	}
}

// affordable returns the first of the nodes, within MaxNodes and MaxEntries.
func (f *fold) affordable(nodes []log.UUID) []log.UUID {
	cost := 0
	for i, cn := range nodes {
		if i == MaxNodes {
			return nodes[:i]
		}
		vnets := map[uint32]int{} // entries of each
		for r := range projections.NICsOnCN(cn).NICs(f.state) {
			scope := r.Home()
			if scope.Type != log.ScopeVNet {
				continue
			}
			if _, seen := vnets[scope.VNet]; !seen {
				vnets[scope.VNet] = projections.NICsOnVNet(scope.VNet).Len(f.state)
			}
			vnets[scope.VNet] += projections.NICsOnNetwork(r.Network()).Len(f.state)
		}
		for vnet, n := range vnets {
			if n > Ahead { // it is on demand: only the other nodes are listed
				n = f.state.CountCNs(log.VNetScope(vnet))
			}
			cost += n
		}
		if cost > MaxEntries && i > 0 {
			return nodes[:i]
		}
	}
	return nodes
}

// linksOf returns what the kernels of the nodes must hold in the state as it is.
func (f *fold) linksOf(nodes []log.UUID) []desired.Links {
	links := make([]desired.Links, len(nodes))
	for i, cn := range nodes {
		links[i] = desired.Within(f.state, cn, desired.Limits{Entries: Ahead})
	}
	return links
}

// linksBetween returns what makes after of before, with the filters of ports.
func linksBetween(before, after desired.Links) []Link {
	var links []Link
	for _, c := range desired.DiffLinks(before, after) {
		links = append(links, Link{Action: c.Action, What: c.What, Key: c.Key, Before: c.Before, After: c.After})
	}
	was := map[log.MAC]string{}
	for _, fabric := range before.Fabrics {
		was[fabric.MAC] = filterText(fabric)
	}
	for _, fabric := range after.Fabrics {
		old, had := was[fabric.MAC]
		delete(was, fabric.MAC)
		switch text := filterText(fabric); {
		case !had:
			links = append(links, Link{Action: log.Create, What: "filter", Key: fabric.MAC.String(), After: text})
		case old != text:
			links = append(links, Link{Action: log.Update, What: "filter", Key: fabric.MAC.String(), Before: old, After: text})
		}
	}
	for _, fabric := range before.Fabrics {
		if old, gone := was[fabric.MAC]; gone {
			links = append(links, Link{Action: log.Delete, What: "filter", Key: fabric.MAC.String(), Before: old})
		}
	}
	return links
}

// filterText says what a port lets a VM send, where port security is on.
func filterText(fabric desired.Fabric) string {
	var text strings.Builder
	text.WriteString("from")
	if fabric.Security.AnyMAC {
		text.WriteString(" any MAC")
	} else {
		text.WriteString(" " + fabric.MAC.String())
	}
	if fabric.Security.AnyIP {
		text.WriteString(", any address")
	} else {
		for _, p := range fabric.Addresses {
			fmt.Fprintf(&text, ", %s", p.Addr())
		}
		for _, a := range fabric.Allowed {
			fmt.Fprintf(&text, ", %s", a)
		}
	}
	for _, may := range []struct {
		is   bool
		text string
	}{
		{fabric.Security.DHCPServer, "answers of a DHCP server"},
		{fabric.Security.AnyTraffic, "any protocol"},
		{fabric.Security.Promiscuous, "receives frames for other MACs"},
	} {
		if may.is {
			text.WriteString("; " + may.text)
		}
	}
	return text.String()
}

// nameLinks adds the names of the NICs that keys of links begin with, or end with, as far
// as the state has them.
func (f *fold) nameLinks(links []Link) {
	for i := range links {
		l := &links[i]
		if l.Name != "" {
			continue
		}
		for _, word := range strings.Fields(l.Key) {
			mac, err := log.ParseMAC(word)
			if err != nil {
				continue
			}
			if r, ok := f.state.Get(log.KindNIC, mac.String()); ok {
				l.Name = nameOf(f.state, r.Object)
			}
		}
	}
}
