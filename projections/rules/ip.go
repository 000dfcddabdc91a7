package rules

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

var ipRules = hooks[*log.IP]{decide: opIP}

// opIP decides an operation on an address. Every address of a network can be
// updated, whether there is an object of it or not: one that says nothing is
// not kept. So update does what NAPI's PUT does, free is an update (or delete)
// that clears reserved, owner and belongs_to, unassign one that clears belongs_to.
func opIP(d *draft, op *log.Op) string {
	before, after := targetIP(d, op)
	if d.refused() {
		return ""
	}
	net := d.Network(after.NetworkUUID)
	if net == nil {
		d.refuse(log.CodeResourceNotFound, "network not found", log.FieldError{
			Field: "network_uuid", Code: log.ElementInvalid, Message: fmt.Sprintf("there is no network %s", after.NetworkUUID),
			Remedy: "create the network first",
		})
		return ""
	}
	if !net.Subnet.Contains(after.IP) {
		d.bad("ip", "ip cannot be outside subnet", fmt.Sprintf("send an address of %s", net.Subnet))
		return ""
	}
	checkIPObject(d, op, before, after, net)
	checkIPLabels(d, op, before.Object, after)
	if d.refused() {
		return ""
	}
	putIP(d, before, after)
	return after.ID()
}

// targetIP returns what is kept of the address that op names, and what it would be.
func targetIP(d *draft, op *log.Op) (before projections.Record, after *log.IP) {
	named := &log.IP{}
	if op.ID != "" {
		var err error
		if named.NetworkUUID, named.IP, err = projections.ParseIPID(op.ID); err != nil {
			d.bad("ip", d.showError(err), "name the address as NETWORK-UUID:ADDRESS")
			return before, nil
		}
	}
	if o, ok := op.Object.(*log.IP); ok && op.Action != log.Delete {
		ip := o.IP.Unmap()
		if op.ID == "" {
			named.NetworkUUID, named.IP = o.NetworkUUID, ip
		}
		if (given(op, "network_uuid") || op.Action == log.Create) && o.NetworkUUID != named.NetworkUUID ||
			(given(op, "ip") || op.Action == log.Create) && ip != named.IP {
			d.bad("ip", "IP updates for this field are not supported", "leave it out, or update the other address")
			return before, nil
		}
	}
	if !named.IP.IsValid() || named.IP.Zone() != "" || named.NetworkUUID.IsZero() {
		d.missing("ip", "send network_uuid and ip")
		return before, nil
	}
	before, there := d.Find(named)
	switch {
	case op.Action == log.Create && there:
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementDuplicate, Message: "Already exists", Remedy: "update the one there", Type: "ip", ID: named.ID(),
		})
	case !d.meets(op, before):
	case there && op.Action == log.Update:
		after = log.Clone(before.Object).(*log.IP)
	}
	if after == nil {
		after = named
	}
	if op.Action != log.Delete {
		known := ipFields(d)
		for _, name := range op.Set {
			if !slices.Contains(known, name) {
				d.problem(log.FieldError{Field: d.show(name), Code: log.ElementUnknown, Message: "ip has no field " + d.quote(name), Remedy: "leave it out"})
			}
		}
		set := slices.DeleteFunc(slices.Clone(op.Set), func(name string) bool { return name == "ip" || name == "network_uuid" })
		if op.Action == log.Create {
			set = []string{"belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved"}
			if declared(d) {
				set = append(set, log.FieldLabels)
			}
		}
		log.Assign(after, op.Object, set)
	}
	return before, after
}

// ipFields are the fields of an address at this feature version.
func ipFields(d *draft) []string {
	names := log.FieldNames(log.KindIP)
	return names[:len(names)-len(log.KindIP.FieldsAfter(d.State().Feature()))]
}

// checkIPLabels checks the labels of an address. They alone make no object of it: an
// address that says nothing else is free, as NAPI shows it, and its labels go with the rest.
func checkIPLabels(d *draft, op *log.Op, before log.Object, after *log.IP) {
	if !declared(d) {
		return
	}
	settleLabels(d, before, after)
	if given(op, log.FieldLabels) && len(after.Labels) > 0 && !saysMore(after) {
		d.bad(log.FieldLabels, "an address has labels only while it is reserved or belongs to something", "reserve it, or leave the labels out")
	}
}

// checkIPObject checks an address as it would stand, and brings it into its one
// form: while a NIC has it, the NIC says whose it is.
func checkIPObject(d *draft, op *log.Op, before projections.Record, after *log.IP, net *log.Network) {
	if was, ok := before.Object.(*log.IP); ok && routerAt(d, was) != nil {
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementUsedBy, Message: fmt.Sprintf("IP in use by router \"%s\"", was.BelongsToUUID),
			Remedy: "update the router", Type: belongsToRouter, ID: was.BelongsToUUID.String(),
		})
		return
	}
	clears := op.Action == log.Delete
	if why := placeholder(net, after.IP); why != "" && !after.Reserved && (clears || given(op, "reserved")) {
		d.bad("reserved", fmt.Sprintf("the address is the network's %s, which is always reserved", why), "change the network, or leave it out")
		return
	}
	if h := d.NICAt(net.UUID, after.IP); h != nil {
		if asks(op, log.OptionNoNIC) {
			d.refuse(log.CodePreconditionFailed, fmt.Sprintf("NIC %s has the address", h.MAC), log.FieldError{
				Field: "if-match", Code: log.ElementInvalid, Message: "the address had no NIC when it was read", Remedy: "read the address again",
			})
			return
		}
		checkHeldIP(d, op, h, after)
		return
	}
	if after.BelongsToType != "" || !after.BelongsToUUID.IsZero() {
		if after.BelongsToType == "" {
			d.missing("belongs_to_type", "send all of belongs_to_type, belongs_to_uuid and owner_uuid")
		}
		if after.BelongsToUUID.IsZero() {
			d.missing("belongs_to_uuid", "send all of belongs_to_type, belongs_to_uuid and owner_uuid")
		}
		if after.OwnerUUID.IsZero() {
			d.missing("owner_uuid", "send all of belongs_to_type, belongs_to_uuid and owner_uuid")
		}
	}
	if len(after.BelongsToType) > projections.MaxNameBytes {
		d.bad("belongs_to_type", fmt.Sprintf("must not be longer than %d bytes", projections.MaxNameBytes), "shorten it")
	}
	checkIPOwner(d, op, after, net)
}

func checkIPOwner(d *draft, op *log.Op, after *log.IP, net *log.Network) {
	if given(op, "owner_uuid") && !after.OwnerUUID.IsZero() && len(net.OwnerUUIDs) > 0 &&
		!slices.Contains(net.OwnerUUIDs, after.OwnerUUID) && !asks(op, log.OptionAnyOwner) {
		d.bad("owner_uuid", "network owner_uuids do not match", "send an owner of the network")
	}
}

// checkHeldIP checks an address that a NIC has: it can be reserved, or not, and
// is the NIC's until that goes.
func checkHeldIP(d *draft, op *log.Op, h *log.NIC, after *log.IP) {
	clears := op.Action == log.Delete || given(op, "belongs_to_uuid") && after.BelongsToUUID.IsZero()
	other := !after.BelongsToUUID.IsZero() && after.BelongsToUUID != h.BelongsToUUID ||
		after.BelongsToType != "" && after.BelongsToType != h.BelongsToType
	if clears || other {
		d.problem(log.FieldError{
			Field: "ip", Code: log.ElementUsedBy, Message: fmt.Sprintf("IP in use by %s \"%s\"", h.BelongsToType, h.BelongsToUUID),
			Remedy: fmt.Sprintf("delete NIC %s, or give it another address", h.MAC), Type: h.BelongsToType, ID: h.BelongsToUUID.String(),
		})
		return
	}
	after.BelongsToType, after.BelongsToUUID = "", log.UUID{}
	if after.OwnerUUID.IsZero() || !after.Reserved {
		after.OwnerUUID = h.OwnerUUID
	}
	if !after.Reserved {
		after.OwnerUUID = log.UUID{} // the NIC's, and gone with it
	}
}

// settleGateway says of a network whether a NIC has its gateway's address, as NAPI does of
// fabrics only. A client's word of it is not taken.
func settleGateway(d *draft, n *log.Network) {
	if triton(d) {
		n.GatewayProvisioned = n.Fabric && n.Gateway.IsValid() && d.NICAt(n.UUID, n.Gateway) != nil
	}
}

// followGateway brings gateway_provisioned of the networks that a NIC leaves and comes to
// in line with their NICs; before is nil on create, after on delete. Also a value that a
// log of before log.FeatureTriton has wrong is put right so, at the next change of any NIC
// of the network.
func followGateway(d *draft, before, after *log.NIC) {
	if !triton(d) {
		return
	}
	var left log.UUID
	if before != nil {
		left = before.NetworkUUID
		provisionGateway(d, left, before.MAC, after)
	}
	if after != nil && after.NetworkUUID != left {
		provisionGateway(d, after.NetworkUUID, after.MAC, after)
	}
}

// provisionGateway is followGateway for one network. The NIC mac stands as now says, or is
// gone, also if this operation is the change's last, which leaves no trace on the draft.
func provisionGateway(d *draft, network log.UUID, mac log.MAC, now *log.NIC) {
	r, ok := d.ByUUID(log.KindNetwork, network)
	if !ok || !r.Object.(*log.Network).Fabric {
		return
	}
	n := r.Object.(*log.Network)
	held := false
	if n.Gateway.IsValid() {
		h := d.NICAt(n.UUID, n.Gateway)
		held = h != nil && h.MAC != mac || now != nil && now.NetworkUUID == n.UUID && now.IP == n.Gateway
	}
	if held == n.GatewayProvisioned {
		return
	}
	n = log.Clone(n).(*log.Network)
	n.GatewayProvisioned = held
	d.emit(r, n)
}
