package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// nicsPerVM: a VM rarely has more than two, and the node has its own.
const nicsPerVM = 4

var nicRules = hooks[*log.NIC]{
	fill:   fillNIC,
	settle: settleNIC,
	check: func(d *draft, before, n *log.NIC, op *log.Op) {
		if checkNIC(d, before, n, op); before != nil {
			keepAggregated(d, before, n)
			n.Modified = d.time
		}
	},
	unchanged: followNIC, // what its options ask for
	remove:    func(d *draft, n *log.NIC) { keepAggregated(d, n, nil) },
	precede: func(d *draft, _, n *log.NIC) {
		if n != nil {
			clearPrimary(d, n)
		}
	},
	follow: func(d *draft, before, n *log.NIC, op *log.Op) {
		if n != nil {
			followNIC(d, n, op)
		}
		followGateway(d, before, n)
	},
	owns: func(d *draft, cn log.UUID, n *log.NIC) bool {
		if d.confined() {
			return projections.CNOf(n) == cn || comes(d, cn, n)
		}
		return projections.CNOf(n) == cn || hosts(d, cn, d.vm(n.BelongsToUUID))
	},
	within:  nicWithin,
	mayTake: mayTakeNIC,
	ownFields: func(cn log.UUID, before *log.NIC) []string {
		if !isHostNIC(cn, before) || before.Underlay {
			return nil
		}
		return hostNICFields
	},
	limit: func(d *draft, cn log.UUID, _ *log.NIC) ownedLimit {
		// Its own may name no CN.
		return ownedLimit{name: "cn_nics", most: nicsPerVM * cnMaxVMs(d), sets: []projections.Index{projections.NICsOnCN(cn), projections.SeveralNICsOf(cn)}}
	},
	comesTo: func(cn log.UUID, before, after *log.NIC) bool {
		return projections.CNOf(after) == cn && projections.CNOf(before) != cn
	},
}

func fillNIC(d *draft, n *log.NIC, _ *log.Op) {
	if n.MAC.IsZero() {
		n.MAC = drawMAC(d)
	}
	if n.State == "" {
		n.State = "provisioning"
	}
	if n.Created == 0 {
		n.Created = d.time
	}
	if n.Modified == 0 {
		n.Modified = d.time
	}
	if vm := vmOfNIC(d, n); vm != nil && n.CNUUID.IsZero() {
		n.CNUUID = vm.ServerUUID
	}
}

func drawMAC(d *draft) log.MAC {
	for try := range uint64(maxDraws) {
		sum := d.draw("mac", d.change.Seed, try)
		mac := log.MAC{macPrefix[0], macPrefix[1], macPrefix[2], sum[0], sum[1], sum[2]}
		if _, taken := d.NIC(mac); !taken {
			return mac
		}
	}
	d.bad("mac", fmt.Sprintf("no free MAC was found in %d tries", maxDraws), "choose one")
	return log.MAC{}
}

// macPrefix is the OUI of drawn MACs: Joyent's, as NAPI draws them.
var macPrefix = [3]byte{0x90, 0xb8, 0xd0}

// vmOfNIC returns the VM that a NIC belongs to, or nil.
func vmOfNIC(d *draft, n *log.NIC) *log.VM {
	if n.BelongsToType != "zone" {
		return nil
	}
	if r, ok := d.ByUUID(log.KindVM, n.BelongsToUUID); ok {
		return r.Object.(*log.VM)
	}
	return nil
}

// settleNIC works out where a NIC lies: its CN, its network, and whether an
// address is to be taken from the network's range. before is nil on create.
func settleNIC(d *draft, before, n *log.NIC, op *log.Op) {
	n.IP = n.IP.Unmap()
	settleAllowed(d, n, op)
	if perNode(d) {
		settleUnderlay(d, n)
	}
	choose(d, before, n, op)
	if n.BelongsToType == "server" && !given(op, "cn_uuid") && n.CNUUID.IsZero() || serverMoved(d, before, n, op) {
		n.CNUUID = n.BelongsToUUID
	}
	moved := before != nil && before.NetworkUUID != n.NetworkUUID
	if moved && !given(op, "ip") {
		n.IP = netip.Addr{} // the old network's
	}
	if n.NetworkUUID.IsZero() {
		if n.IP.IsValid() {
			findNetwork(d, n, op)
		}
	} else {
		matchNetwork(d, n, op)
	}
	if before != nil && !moved && given(op, "ip") && !n.IP.IsValid() && !n.NetworkUUID.IsZero() && before.IP.IsValid() {
		d.bad("ip", "a NIC on a network has an address", "send another address, or take the NIC off the network with network_uuid: null")
	}
}

// serverMoved reports whether a server's NIC goes to another server without
// its cn_uuid being named.
func serverMoved(d *draft, before, n *log.NIC, op *log.Op) bool {
	return before != nil && n.BelongsToType == "server" && before.BelongsToUUID != n.BelongsToUUID && !given(op, "cn_uuid")
}

// findNetwork puts a NIC that names an address, a tag and a VLAN on the one
// network that has them.
func findNetwork(d *draft, n *log.NIC, op *log.Op) {
	for _, needed := range []struct {
		field string
		has   bool
	}{{"nic_tag", n.NICTag != ""}, {"vlan_id", given(op, "vlan_id") || n.VLANID != 0 || op.Action == log.Update}} {
		if !needed.has {
			d.problem(log.FieldError{
				Field: needed.field, Code: log.ElementMissing, Message: "required if IP specified but not network_uuid", Remedy: "send nic_tag and vlan_id, or network_uuid",
			})
		}
	}
	if d.refused() {
		return
	}
	found := networksAt(d, n, n.IP)
	switch len(found) {
	case 0:
		d.bad("ip", fmt.Sprintf("No networks matching this nic_tag (\"%s\") and vlan_id (%d) contained the IP address %s", d.show(n.NICTag), n.VLANID, n.IP), "send network_uuid")
		return
	case 1:
	default:
		uuids := make([]string, len(found))
		for i, net := range found {
			uuids[i] = net.ID()
		}
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementInvalid, Remedy: "send network_uuid", Invalid: uuids,
			Message: fmt.Sprintf("Multiple (overlapping) networks (%s) matching this nic_tag and vlan_id contain the IP address %s", strings.Join(uuids, ", "), n.IP),
		})
		return
	}
	n.NetworkUUID, n.NICTag, n.VLANID = found[0].UUID, "", 0
}

// networksAt are the networks on a NIC's tag and VLAN that contain an address.
func networksAt(d *draft, n *log.NIC, ip netip.Addr) (found []*log.Network) {
	tag, vnet := splitTag(n.NICTag)
	for o := range d.Objects(projections.NetworksOnTag(tag)) {
		net := o.(*log.Network)
		if net.Fabric == (vnet != 0) && net.VNetID == vnet && net.VLANID == n.VLANID && net.Subnet.Contains(ip) {
			found = append(found, net)
		}
	}
	return found
}

// splitTag reads a NIC's tag as NAPI shows it: on fabrics it is tag/vnet.
func splitTag(text string) (tag string, vnet uint32) {
	tag, number, fabric := strings.Cut(text, "/")
	v, err := strconv.ParseUint(number, 10, 24)
	if !fabric || err != nil {
		return text, 0
	}
	return tag, uint32(v)
}

// matchNetwork compares a tag and VLAN that a NIC on a network names with the
// network's, and takes them out: a NIC on a network does not keep its own.
func matchNetwork(d *draft, n *log.NIC, op *log.Op) {
	if net := d.Network(n.NetworkUUID); net != nil {
		tag, vnet := splitTag(n.NICTag)
		if given(op, "nic_tag") && n.NICTag != "" && (tag != net.NICTag || vnet != 0 && vnet != net.VNetID) {
			d.bad("nic_tag", fmt.Sprintf("the network is on nic tag \"%s\"", net.NICTag), "leave it out, or update the network")
		}
		if given(op, "vlan_id") && n.VLANID != net.VLANID {
			d.bad("vlan_id", fmt.Sprintf("the network is on VLAN %d", net.VLANID), "leave it out, or update the network")
		}
	}
	n.NICTag, n.VLANID = "", 0
}

// checkNIC checks a NIC as it would stand, and last, if all is well, takes an
// address for it where it needs one.
func checkNIC(d *draft, before, n *log.NIC, op *log.Op) {
	checkMAC(d, n)
	switch n.BelongsToType {
	case "zone", "server", "other":
	case "":
		d.missing("belongs_to_type", "send zone, server or other")
	default:
		d.bad("belongs_to_type", fmt.Sprintf("\"%s\" is not known", d.show(n.BelongsToType)), "send zone, server or other")
	}
	if n.BelongsToUUID.IsZero() {
		d.missing("belongs_to_uuid", "send the UUID of the VM, server or other thing")
	}
	if n.OwnerUUID.IsZero() {
		d.missing("owner_uuid", "send the UUID of the owner")
	}
	switch n.State {
	case "provisioning", "stopped", "running":
	default:
		d.bad("state", fmt.Sprintf("\"%s\" is not known", d.show(n.State)), "send provisioning, stopped or running")
	}
	if len(n.Model) > projections.MaxNameBytes {
		d.bad("model", fmt.Sprintf("must not be longer than %d bytes", projections.MaxNameBytes), "shorten it")
	}
	checkServerNIC(d, n)
	checkAllowed(d, before, n)
	checkNICTags(d, n)
	if !n.NetworkUUID.IsZero() {
		checkPlace(d, before, n, op)
	} else if n.VLANID == 1 || n.VLANID > 4094 {
		d.bad("vlan_id", "VLAN ID must be a number between 0 and 4094, and not 1", "send 0 for untagged")
	}
}

// checkMAC refuses a multicast address as a NIC's. NAPI takes it, and so do servers from
// log.FeatureTriton on, except where it would harm others: on a fabric, where frames for a
// group would go to the NIC's node alone, and by a compute node's word.
func checkMAC(d *draft, n *log.NIC) {
	if n.MAC.IsZero() || n.MAC.IsUnicast() {
		return
	}
	if net := d.Network(n.NetworkUUID); triton(d) && d.change.By.Role != log.RoleCN && (net == nil || !net.Fabric) {
		return
	}
	d.bad("mac", "it is a multicast address", "choose one with an even first octet, or leave it out to have one drawn")
}

// checkServerNIC checks what only NICs of servers may have.
func checkServerNIC(d *draft, n *log.NIC) {
	if n.BelongsToType == "server" {
		if n.CNUUID != n.BelongsToUUID {
			d.bad("cn_uuid", "a server's NIC is on the server that it belongs to", "leave it out")
		}
		return
	}
	if n.Underlay {
		d.bad("underlay", "underlay can only be set on server NICs", "leave it out")
	}
	if len(n.NICTagsProvided) > 0 && (!triton(d) || d.change.By.Role == log.RoleCN) { // NAPI takes them of any NIC
		d.bad("nic_tags_provided", "nic_tags_provided can only be set on server NICs", "leave it out")
	}
}

func checkNICTags(d *draft, n *log.NIC) {
	if n.NICTag != "" && d.tag(n.NICTag) == nil {
		d.bad("nic_tag", fmt.Sprintf("nic tag \"%s\" does not exist", d.show(n.NICTag)), "create the tag first")
	}
	checkTagList(d, n.NICTagsProvided)
}

// checkPlace checks a NIC against its network.
func checkPlace(d *draft, before, n *log.NIC, op *log.Op) {
	net := d.Network(n.NetworkUUID)
	if net == nil {
		if !d.refused() || d.pool(n.NetworkUUID) == nil { // what is wrong with a pool has been said
			d.bad("network_uuid", fmt.Sprintf("network \"%s\" does not exist", n.NetworkUUID), "create the network first")
		}
		return
	}
	asked := before == nil || before.OwnerUUID != n.OwnerUUID || before.NetworkUUID != n.NetworkUUID || before.BelongsToType != n.BelongsToType
	if asked && !mayUse(n, net, op) {
		d.bad("owner_uuid", "network owner_uuids do not match", "send the network's owner, or choose another network")
	}
	if net.Fabric {
		if n.CNUUID.IsZero() {
			d.missing("cn_uuid", "a NIC on a fabric needs the CN that it is on")
		}
		if n.Underlay {
			d.bad("underlay", "an underlay NIC cannot be on a fabric", "choose a network that is not a fabric")
		}
	}
	if n.IP.IsValid() {
		checkIP(d, before, n, net)
		return
	}
	if d.refused() {
		return // what an address would be taken for is not sure
	}
	if n.IP = allocate(d, net); !n.IP.IsValid() {
		d.refuse(log.CodeSubnetFull, "no more free IPs", log.FieldError{
			Field: "network_uuid", Code: log.ElementInvalid,
			Message: fmt.Sprintf("every address from %s to %s of network \"%s\" is in use", net.ProvisionStart, net.ProvisionEnd, net.UUID),
			Remedy:  "widen the network's provision range, delete NICs that are not needed, or name an address outside the range",
		})
	}
}

func checkIP(d *draft, before, n *log.NIC, net *log.Network) {
	if before != nil && before.IP == n.IP && before.NetworkUUID == n.NetworkUUID && before.BelongsToUUID == n.BelongsToUUID {
		return
	}
	if !place(d, "ip", net.Subnet, n.IP) {
		return
	}
	if h := d.NICAt(net.UUID, n.IP); h != nil && h.MAC != n.MAC {
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementUsedBy, Message: fmt.Sprintf("IP in use by %s \"%s\"", h.BelongsToType, h.BelongsToUUID),
			Remedy: "choose another, or leave it out to have one chosen", Type: h.BelongsToType, ID: h.BelongsToUUID.String(),
		})
	} else if o := claims(d, n, net); o != nil {
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementUsedBy, Message: fmt.Sprintf("IP in use by %s \"%s\"", o.BelongsToType, o.BelongsToUUID),
			Remedy: "choose another, or free the address first", Type: o.BelongsToType, ID: o.BelongsToUUID.String(),
		})
	}
}

// clearPrimary takes the mark from the other NICs of what a primary NIC belongs
// to, before the NIC itself gets it: at no point of the log are there two.
func clearPrimary(d *draft, n *log.NIC) {
	if !n.Primary {
		return
	}
	var others []*log.NIC
	for o := range d.Objects(projections.NICsOf(n.BelongsToUUID)) {
		if other := o.(*log.NIC); other.Primary && other.MAC != n.MAC {
			others = append(others, other)
		}
	}
	for _, other := range others {
		before, _ := d.NIC(other.MAC)
		after := log.Clone(other).(*log.NIC)
		after.Primary, after.Modified = false, d.time
		d.emit(before, after)
	}
}

// followNIC brings what is kept of a NIC's address in line: a reserved address
// gets the NIC's owner, and keeps it when the NIC goes.
func followNIC(d *draft, n *log.NIC, op *log.Op) {
	if !n.IP.IsValid() || n.NetworkUUID.IsZero() {
		return
	}
	var before projections.Record
	after := &log.IP{NetworkUUID: n.NetworkUUID, IP: n.IP}
	if ipObject(d, n.NetworkUUID, n.IP) != nil {
		before, _ = d.IP(n.NetworkUUID, n.IP)
		if routerAt(d, before.Object.(*log.IP)) != nil {
			return
		}
		after.Reserved = before.Object.(*log.IP).Reserved
		keepLabels(d, before, after)
	}
	if asks(op, log.OptionReserveIP) {
		after.Reserved = true
	} else if asks(op, log.OptionReleaseIP) {
		after.Reserved = false
	}
	if after.Reserved {
		after.OwnerUUID = n.OwnerUUID
	}
	putIP(d, before, after)
}

// hostNICFields are what a CN may update of a NIC of its own, besides those of its
// VMs' NICs: where its links are is found there. One that carries VXLAN is the
// operators', since every other CN's kernel has its address.
var hostNICFields = []string{"ip", "nic_tag", "nic_tags_provided", "vlan_id"}

// isHostNIC reports whether a NIC is of the CN itself.
func isHostNIC(cn log.UUID, nic *log.NIC) bool {
	return nic.BelongsToType == "server" && nic.BelongsToUUID == cn
}

// mayTakeNIC: a CN's NIC is on it, its own or of a VM on it, and brings it onto no
// network that it has no part in: else it could read any. The admin network is
// every CN's.
func mayTakeNIC(d *draft, cn log.UUID, before, after *log.NIC) bool {
	if projections.CNOf(after) != cn {
		return false
	}
	if d.confined() {
		return true // see nicWithin
	}
	if before == nil && !isHostNIC(cn, after) {
		vm := d.vm(after.BelongsToUUID)
		if vm == nil || after.BelongsToType != "zone" || vm.ServerUUID != cn {
			return false
		}
	}
	if before != nil && before.NetworkUUID == after.NetworkUUID {
		return true
	}
	scope := d.ScopeOn(after.NetworkUUID)
	return scope.Type == 0 || d.State().Interested(cn, []log.Scope{scope}) || isHostNIC(cn, after) && isAdmin(d, after.NetworkUUID)
}

// mayUse reports whether the owner of a VM's NIC may have it on a network.
func mayUse(n *log.NIC, net *log.Network, op *log.Op) bool {
	return n.BelongsToType != "zone" || len(net.OwnerUUIDs) == 0 || slices.Contains(net.OwnerUUIDs, n.OwnerUUID) ||
		n.OwnerUUID.IsZero() || asks(op, log.OptionAnyOwner)
}

// choose puts a NIC whose network_uuid is a pool's on the first of the pool's
// networks that has room: that is, of the NIC's tag and VLAN if it names them.
// One that is on a network of the pool stays there.
func choose(d *draft, before, n *log.NIC, op *log.Op) {
	p := d.pool(n.NetworkUUID)
	if p == nil {
		return
	}
	if before != nil && slices.Contains(p.Networks, before.NetworkUUID) {
		n.NetworkUUID = before.NetworkUUID
		return
	}
	if given(op, "ip") && n.IP.IsValid() {
		d.bad("ip", "IP cannot be specified with a network pool", "name the network, or leave out the address")
		return
	}
	if n.BelongsToType == "zone" && len(p.OwnerUUIDs) > 0 && !slices.Contains(p.OwnerUUIDs, n.OwnerUUID) &&
		!n.OwnerUUID.IsZero() && !asks(op, log.OptionAnyOwner) {
		d.bad("owner_uuid", "owner cannot provision on network pool", "send the pool's owner, or choose another pool")
		return
	}
	tag, _ := splitTag(n.NICTag)
	for _, uuid := range p.Networks {
		net := d.Network(uuid)
		if net == nil || !mayUse(n, net, op) || !mayProvision(d, n, net) || given(op, "nic_tag") && tag != "" && tag != net.NICTag || given(op, "vlan_id") && n.VLANID != net.VLANID {
			continue
		}
		if allocate(d, net).IsValid() {
			n.NetworkUUID, n.IP = uuid, netip.Addr{}
			return
		}
	}
	d.refuse(log.CodeSubnetFull, "all networks in pool are full", log.FieldError{
		Field: "network_uuid", Code: log.ElementInvalid,
		Message: fmt.Sprintf("no network of pool \"%s\" that fits has a free address", p.UUID),
		Remedy:  "add a network to the pool, widen a provision range, or delete NICs that are not needed",
	})
}

// claims returns what is kept of an address that a NIC may not have, or nil: it
// belongs to something else. What people reserved for the network itself, such
// as a gateway, a NIC gets that names it; so does the VM of a router.
func claims(d *draft, n *log.NIC, net *log.Network) *log.IP {
	o := ipObject(d, net.UUID, n.IP)
	switch {
	case o == nil || o.BelongsToUUID.IsZero() || o.BelongsToUUID == n.BelongsToUUID:
		return nil
	case o.BelongsToType == "other" && placeholder(net, n.IP) != "":
		return nil
	}
	if r := routerAt(d, o); r != nil && r.VMUUID == n.BelongsToUUID {
		return nil
	}
	return o
}
