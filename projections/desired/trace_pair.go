package desired

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

// tracePair looks at the way from one NIC to another, and back.
func tracePair(s *projections.State, from, to TraceEnd) Trace {
	t := Trace{From: from, To: to}
	for _, end := range []*TraceEnd{&t.From, &t.To} {
		traceEnd(s, &t, end)
	}
	if from.nic == nil || to.nic == nil || from.net == nil || to.net == nil {
		return t
	}
	traceNetworks(s, &t)
	traceUnderlay(s, &t)
	if from.net.Fabric && to.net.Fabric && from.Network == to.Network && from.CN != (log.UUID{}) && to.CN != (log.UUID{}) {
		traceEntries(s, &t, from, to)
		traceEntries(s, &t, to, from)
		t.unwanted()
	}
	return t
}

// traceEnd looks at one end alone.
func traceEnd(s *projections.State, t *Trace, end *TraceEnd) {
	name := end.Asked
	switch {
	case end.VM.IsZero() || end.State == "running":
	case end.State == "provisioning":
		t.find(Doubt, "vm-provisioning", end.CN, "wait until it runs: rutter log history vm "+end.VM.String(), "the VM %s is %s", name, end.State)
	default:
		t.find(Fault, "vm-not-running", end.CN, "rutter vm list on its CN says more; start it", "the VM %s is %s", name, end.State)
	}
	if end.nic == nil {
		t.find(Fault, "no-nic", end.CN, "rutter nic create --network … --owner …", "the VM %s has no NIC", name)
		return
	}
	switch {
	case end.nic.NetworkUUID.IsZero():
		t.find(Fault, "nic-no-network", end.CN, "rutter nic update "+end.NIC.String()+" --set network_uuid=…", "NIC %s of %s is on no network", end.NIC, name)
	case end.net == nil:
		t.find(Fault, "network-unknown", end.CN, "", "NIC %s of %s is on network %s, which the log does not have", end.NIC, name, end.Network)
	case !end.nic.IP.IsValid():
		t.find(Fault, "nic-no-address", end.CN, "rutter nic update "+end.NIC.String()+" --set ip=…", "NIC %s of %s has no address, so no CN has a neighbour entry for it", end.NIC, name)
	}
	if end.nic.BelongsToType != "zone" {
		t.find(Doubt, "not-a-vm", end.CN, "look at its links on the machine itself", "NIC %s belongs to a %s: Rutter does not make its links, and the log does not say whether they are there", end.NIC, end.nic.BelongsToType)
	}
	if end.CN.IsZero() || end.nic.CNUUID.IsZero() {
		t.find(Fault, "no-cn", end.CN, "rutter nic update "+end.NIC.String()+" --set cn_uuid=…", "NIC %s of %s is on no CN", end.NIC, name)
		return
	}
	if vm, ok := s.Get(log.KindVM, end.VM.String()); ok {
		tracePlace(s, t, end, vm.Object.(*log.VM))
	}
	switch r, ok := s.Get(log.KindServer, end.CN.String()); {
	case !ok:
		t.find(Doubt, "cn-not-in-log", end.CN, "rutter cn create --uuid "+end.CN.String(), "CN %s is not in the log", end.CN)
	case r.Object.(*log.Server).Status == "unknown":
		t.find(Doubt, "cn-unknown", end.CN, "look at the machine; its kernel keeps what it had", "the status of %s is unknown: it sends no server anything", hostOf(*end))
	}
}

// traceNetworks compares the networks of both ends.
func traceNetworks(s *projections.State, t *Trace) {
	from, to := t.From.net, t.To.net
	switch {
	case from.UUID == to.UUID:
	case from.Fabric != to.Fabric || from.Fabric && from.VNetID != to.VNetID:
		t.find(Fault, "other-vnet", log.UUID{}, "give one of them a NIC on the other's vnet, or a router between them",
			"%s is on %s and %s on %s: nothing of Rutter's joins them", t.From.Asked, placeName(from), t.To.Asked, placeName(to))
		return
	case traceRouter(s, t, from, to):
	case !from.Gateway.IsValid() || !to.Gateway.IsValid():
		t.find(Fault, "no-gateway", log.UUID{}, "rutter network update … --set gateway=…", "they are on two networks, %s and %s, and not both have a gateway", from.Name, to.Name)
	default:
		t.find(Doubt, "routed", log.UUID{}, "look at the routers, then trace from each end to its own gateway",
			"they are on two networks: %s sends to its gateway %s, and %s answers by %s", from.Name, from.Gateway, to.Name, to.Gateway)
		traceGateway(s, t, from)
		traceGateway(s, t, to)
	}
	if !from.Fabric {
		t.find(Note, "not-a-fabric", log.UUID{}, "look at the switches: VLAN, trunk and spanning tree", "%s is no fabric: no vnet carries it, the physical network does", placeName(from))
	}
	if from.MTU != to.MTU {
		t.find(Doubt, "mtu-differs", log.UUID{}, "try ping -M do -s SIZE; set one MTU on both networks", "the MTU of %s is %d, and of %s %d: large packets may be lost", from.Name, from.MTU, to.Name, to.MTU)
	}
}

// traceGateway looks for what has the address of a fabric's gateway.
func traceGateway(s *projections.State, t *Trace, net *log.Network) {
	if _, ok := s.NICAt(net.UUID, net.Gateway); ok || !net.Fabric {
		return
	}
	for r := range s.NICsOn(net.UUID) {
		if nic := r.Object.(*log.NIC); slices.Contains(nic.AllowedIPs, net.Gateway) {
			t.find(Doubt, "gateway-shared", nic.CNUUID, "trace to the NIC that has it now", "the address %s, the gateway of %s, is no NIC's own: NIC %s may have it among others", net.Gateway, net.Name, nic.MAC)
			return
		}
	}
	t.find(Fault, "gateway-nobody", log.UUID{}, "give the router a NIC with that address", "no NIC has the address %s, the gateway of %s: packets to it do not arrive", net.Gateway, net.Name)
}

// traceRouter looks for a router of the log that joins two networks, and reports whether
// there is one.
func traceRouter(s *projections.State, t *Trace, from, to *log.Network) bool {
	for r := range s.List(log.KindRouter) { // there are few
		router := r.Object.(*log.Router)
		if !slices.Contains(router.Networks, from.UUID) || !slices.Contains(router.Networks, to.UUID) {
			continue
		}
		t.find(Doubt, "routed", router.CNUUID, "trace from each end to the router's address on its network",
			"they are on two networks, %s and %s, which the router %s joins: the log does not say whether it passes packets on", from.Name, to.Name, router.Name)
		for i, uuid := range router.Networks {
			if uuid != from.UUID && uuid != to.UUID || i >= len(router.Addresses) {
				continue
			}
			if _, ok := s.NICAt(uuid, router.Addresses[i]); !ok {
				t.find(Fault, "router-nobody", router.CNUUID, "give the VM of the router a NIC with that address", "no NIC has the address %s, that of the router %s: packets to it do not arrive", router.Addresses[i], router.Name)
			}
		}
		return true
	}
	return false
}

func placeName(n *log.Network) string {
	if n.Fabric {
		return fmt.Sprintf("network %s of vnet %d", n.Name, n.VNetID)
	}
	return fmt.Sprintf("network %s (tag %s, VLAN %d)", n.Name, n.NICTag, n.VLANID)
}

// traceUnderlay looks at what carries the packets between the CNs.
func traceUnderlay(s *projections.State, t *Trace) {
	if !t.From.net.Fabric || !t.To.net.Fabric {
		return
	}
	for _, end := range []TraceEnd{t.From, t.To} {
		if !end.CN.IsZero() && !end.Under.IsValid() {
			t.find(Fault, "no-underlay", end.CN, "give the CN a NIC with underlay=true and an address", "%s has no underlay NIC with an address, so none of its fabrics is made", hostOf(end))
		}
	}
	if t.From.CN == t.To.CN || !t.From.Under.IsValid() || !t.To.Under.IsValid() {
		return
	}
	if t.From.Under.Is4() != t.To.Under.Is4() {
		t.find(Fault, "underlay-family", log.UUID{}, "give both CNs an underlay address of one family", "the underlay addresses %s and %s are of two families: neither CN can send to the other", t.From.Under, t.To.Under)
	}
	traceMTU(s, t)
}

// traceMTU looks at what the underlays of both CNs carry. The links of each end get what
// its own underlay carries, so packets from a wider end to a narrower one are too large.
func traceMTU(s *projections.State, t *Trace) {
	var ends [2]underlay.Node
	var links [2]uint32
	for i, end := range []TraceEnd{t.From, t.To} {
		n, ok := underlay.Interface(s, end.CN)
		if !ok {
			return
		}
		n.Host = end.Host
		carries := n.Carries(end.VLAN != 0)
		ends[i], links[i] = n, min(end.MTU, carries)
		if carries < end.MTU {
			t.find(Doubt, "underlay-mtu", end.CN, fmt.Sprintf("raise the underlay's MTU by %d, or lower the network's: the setting fabric.mtu says what writes do about it", end.MTU-carries),
				"the underlay of %s carries packets of %d bytes of the vnet at most (%s), and %s has MTU %d: its links get less", hostOf(end), carries, n.Why(), end.Name, end.MTU)
		}
	}
	for i, from := range []TraceEnd{t.From, t.To} {
		to := []TraceEnd{t.To, t.From}[i]
		far, whole := ends[1-i], links[i]+underlay.Headers(ends[i].Addr.Is6(), from.VLAN != 0)
		if far.MTU < whole {
			t.find(Doubt, "underlay-differs", to.CN, "set one MTU on the underlay of both CNs, or lower that of the network",
				"large packets from %s to %s are lost, or arrive in fragments: links of %s have MTU %d, which takes %d on the underlay, and of %s %s", hostOf(from), hostOf(to), hostOf(from), links[i], whole, hostOf(to), far.Why())
		}
		if path, ok := pathTo(s, from.CN, to.Under); ok && path.MTU < min(whole, far.MTU, ends[i].MTU) {
			t.find(Doubt, "underlay-path", from.CN, "look at what routes between both underlay addresses, or lower the MTU of the network",
				"large packets from %s to %s are lost, or arrive in fragments: links of %s have MTU %d, which takes %d on the underlay, and the path to %s carries %d", hostOf(from), hostOf(to), hostOf(from), links[i], whole, path.Addr, path.MTU)
		}
	}
}

// pathTo returns the path from a CN to an underlay address, if the CN reported it as
// narrower than its interface.
func pathTo(s *projections.State, cn log.UUID, to netip.Addr) (log.PathTo, bool) {
	r, ok := s.Get(log.KindServer, cn.String())
	if !ok {
		return log.PathTo{}, false
	}
	for _, text := range r.Object.(*log.Server).UnderlayPaths {
		if path, err := log.ParsePathTo(text); err == nil && path.Addr == to {
			return path, true
		}
	}
	return log.PathTo{}, false
}

// traceEntries lists what the kernel of from's CN needs to send to to.
func traceEntries(s *projections.State, t *Trace, from, to TraceEnd) {
	seq := max(from.seq, to.seq)
	entries := NewEntries(s, from.CN)
	link := fmt.Sprintf("fabric link %s on sdcvxl%d", from.NIC, from.VNet)
	if from.VLAN != 0 {
		link = fmt.Sprintf("fabric link %s on vx%dv%d", from.NIC, from.VNet, from.VLAN)
	}
	t.Entries = append(t.Entries, TraceEntry{CN: from.CN, What: link, Seq: from.seq, Wanted: entries.reachable && from.nic.BelongsToType == "zone"})
	if to.IP.IsValid() {
		_, wanted := entries.Neigh(from.NIC, to.IP)
		t.Entries = append(t.Entries, TraceEntry{CN: from.CN, What: fmt.Sprintf("neighbour %s is %s", to.IP, to.NIC), Seq: seq, Wanted: wanted})
	}
	if from.CN != to.CN {
		e, wanted := entries.FDB(from.VNet, to.NIC)
		at := to.Under.String()
		if e.Port != 0 {
			at = fmt.Sprintf("%s port %d", at, e.Port)
		}
		t.Entries = append(t.Entries, TraceEntry{CN: from.CN, What: fmt.Sprintf("forwarding entry of sdcvxl%d: %s at %s", from.VNet, to.NIC, at), Seq: seq, Wanted: wanted})
	}
}
