package projections

import (
	"fmt"

	"rutter/log"
)

// fillVLAN gives a new VLAN its owner's vnet.
func (d *draft) fillVLAN(v *log.FabricVLAN, op *log.Op) {
	if v.VNetID == 0 && !given(op, "vnet_id") && !v.OwnerUUID.IsZero() {
		v.VNetID = d.vnetFor(v.OwnerUUID)
	}
}

func (d *draft) checkVLAN(v *log.FabricVLAN) {
	d.checkName(v.Name)
	d.checkText("description", v.Description)
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
	if vnet, ok := d.vnetOf(v.OwnerUUID); ok && vnet != v.VNetID {
		d.bad("vnet_id", fmt.Sprintf("the owner's fabric is vnet %d", vnet), "leave it out")
		return
	}
	if other := d.fabricOn(v.VNetID); other != nil && !isOwner(other, v.OwnerUUID) {
		d.takenVNet("network", other.ID())
	}
	d.checkVLANsOn(v.VNetID, v.OwnerUUID)
}

// checkVLANsOn refuses a vnet on which another owner has VLANs.
func (d *draft) checkVLANsOn(vnet uint32, owner log.UUID) {
	for o := range d.rows(func(s *store) *sorted[*row] { return s.byNet.vlansOnVNet[vnet] }) {
		if v := o.(*log.FabricVLAN); v.OwnerUUID != owner {
			d.takenVNet("fabric_vlan", v.ID())
			return
		}
	}
}

func (d *draft) takenVNet(kind, id string) {
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
func (d *draft) vnetOf(owner log.UUID) (vnet uint32, ok bool) {
	for o := range d.rows(func(s *store) *sorted[*row] { return s.byNet.vlansOf[owner] }) {
		return o.(*log.FabricVLAN).VNetID, true
	}
	for o := range d.rows(func(s *store) *sorted[*row] { return s.fabricsOf[owner] }) {
		return o.(*log.Network).VNetID, true
	}
	return 0, false
}

// vnetIsFree reports whether nobody has the vnet.
func (d *draft) vnetIsFree(vnet uint32) bool {
	for range d.rows(func(s *store) *sorted[*row] { return s.byNet.vlansOnVNet[vnet] }) {
		return false
	}
	return vnet != 0 && d.fabricOn(vnet) == nil
}

// deleteVLAN keeps a VLAN that has networks.
func (d *draft) deleteVLAN(v *log.FabricVLAN) {
	var users []log.FieldError
	for o := range d.rows(func(s *store) *sorted[*row] { return s.fabricsOf[v.OwnerUUID] }) {
		if n := o.(*log.Network); n.VLANID == v.VLANID && len(users) < maxUsedBy {
			users = append(users, usedBy("vlan_id", "network", n.ID(), "delete the networks on it first"))
		}
	}
	if users != nil {
		d.refuse(log.CodeInUse, "VLAN must have no networks", users...)
	}
}
