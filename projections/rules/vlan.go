package rules

import (
	"fmt"

	"rutter/log"
	"rutter/projections"
)

var vlanRules = hooks[*log.FabricVLAN]{
	fill: fillVLAN,
	check: func(d *draft, before, v *log.FabricVLAN, op *log.Op) {
		if before == nil {
			before = new(log.FabricVLAN)
		}
		if v.Name != "" || !triton(d) || given(op, "name") { // NAPI: a VLAN needs none
			d.checkName(v.Name)
		}
		d.checkDescription(before.Description, v.Description)
		checkVLAN(d, v)
	},
	duplicate: func(d *draft, _ *log.FabricVLAN, e *log.FieldError) {
		e.Field, e.Message = "vlan_id", "VLAN ID is already in use"
		if !d.refused() {
			d.refuse(log.CodeInUse, "VLAN ID is already in use", *e)
		}
	},
	remove: removeVLAN,
}

// fillVLAN gives a new VLAN its owner's vnet.
func fillVLAN(d *draft, v *log.FabricVLAN, op *log.Op) {
	if v.VNetID == 0 && !given(op, "vnet_id") && !v.OwnerUUID.IsZero() {
		v.VNetID = vnetFor(d, v.OwnerUUID)
	}
}

func checkVLAN(d *draft, v *log.FabricVLAN) {
	if v.OwnerUUID.IsZero() {
		d.missing("owner_uuid", "send the UUID of the fabric's owner")
		return
	}
	if v.VLANID == 1 || v.VLANID > 4094 {
		d.bad("vlan_id", "VLAN ID must be a number between 0 and 4094, and not 1", "send another number")
	}
	if v.VNetID == 0 || v.VNetID > log.MaxVNet {
		if !d.refused() {
			d.bad("vnet_id", fmt.Sprintf("must be between 1 and %d", log.MaxVNet), "leave it out to have one chosen")
		}
		return
	}
	if vnet, ok := vnetOf(d, v.OwnerUUID); ok && vnet != v.VNetID {
		d.bad("vnet_id", fmt.Sprintf("the owner's fabric is vnet %d", vnet), "leave it out")
		return
	}
	if other := fabricOn(d, v.VNetID); other != nil && !isOwner(other, v.OwnerUUID) {
		takenVNet(d, "network", other.ID())
	}
	checkVLANsOn(d, v.VNetID, v.OwnerUUID)
}

// checkVLANsOn refuses a vnet on which another owner has VLANs.
func checkVLANsOn(d *draft, vnet uint32, owner log.UUID) {
	for o := range d.Objects(projections.VLANsOnVNet(vnet)) {
		if v := o.(*log.FabricVLAN); v.OwnerUUID != owner {
			takenVNet(d, "fabric_vlan", v.ID())
			return
		}
	}
}

func takenVNet(d *draft, kind, id string) {
	d.problem(log.FieldError{
		Field: "vnet_id", Code: log.ElementUsedBy, Message: "network owner_uuids do not match: the vnet is another owner's",
		Remedy: "leave vnet_id out to have one chosen", Type: kind, ID: id,
	})
}

func isOwner(n *log.Network, owner log.UUID) bool {
	return len(n.OwnerUUIDs) == 1 && n.OwnerUUIDs[0] == owner
}

// vnetOf returns the vnet of an owner's fabric, and whether there is one: that
// of its VLANs, else of its fabric networks.
func vnetOf(d *draft, owner log.UUID) (vnet uint32, ok bool) {
	for o := range d.Objects(projections.VLANsOf(owner)) {
		return o.(*log.FabricVLAN).VNetID, true
	}
	for o := range d.Objects(projections.FabricsOf(owner)) {
		return o.(*log.Network).VNetID, true
	}
	return 0, false
}

// vnetIsFree reports whether no owner has the vnet.
func vnetIsFree(d *draft, vnet uint32) bool {
	for range d.Objects(projections.VLANsOnVNet(vnet)) {
		return false
	}
	return vnet != 0 && fabricOn(d, vnet) == nil
}

// vnetFor returns the vnet of a new fabric network that names none: that of its
// owner's other fabrics, or else a free one, drawn.
func vnetFor(d *draft, owner log.UUID) uint32 {
	if vnet, ok := vnetOf(d, owner); ok {
		return vnet
	}
	for try := range uint64(maxDraws) {
		sum := d.draw("vnet", d.change.Seed, try)
		vnet := uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
		if vnetIsFree(d, vnet) {
			return vnet
		}
	}
	d.bad("vnet_id", fmt.Sprintf("no free vnet was found in %d tries", maxDraws), "choose one")
	return 0
}

// fabricOn returns a network on a vnet, or nil.
func fabricOn(d *draft, vnet uint32) *log.Network {
	for o := range d.Objects(projections.FabricsOnVNet(vnet)) {
		return o.(*log.Network)
	}
	return nil
}

// removeVLAN keeps a VLAN that has networks.
func removeVLAN(d *draft, v *log.FabricVLAN) {
	var users []log.FieldError
	for o := range d.Objects(projections.FabricsOf(v.OwnerUUID)) {
		if n := o.(*log.Network); n.VLANID == v.VLANID && len(users) < maxUsedBy {
			users = append(users, usedBy("vlan_id", "network", n.ID(), "delete the networks on it first"))
		}
	}
	if users != nil {
		d.refuse(log.CodeInUse, "VLAN must have no networks", users...)
	}
}
