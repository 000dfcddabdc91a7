package rules

import (
	"fmt"

	"rutter/log"
	"rutter/projections"
)

// checkUniqueName refuses a name that is new to a network and that another network has
// where it must be unique: in the cloud, or, of fabric networks, among their owner's. What
// a log of before log.FeatureTriton has twice stays as it is until it is renamed. before is
// nil on create.
func checkUniqueName(d *draft, before, n *log.Network) {
	if !triton(d) || d.refused() {
		return
	}
	name := projections.NameOf(n)
	if before != nil && projections.NameOf(before) == name {
		return
	}
	for o := range d.Objects(projections.NetworksNamed(name)) {
		if other := o.(*log.Network); other.UUID != n.UUID {
			d.refuse(log.CodeInvalidParameters, "name is in use by another network", log.FieldError{
				Field: "name", Code: log.ElementDuplicate, Message: "Already exists",
				Remedy: fmt.Sprintf("choose another, or rename network \"%s\" first", other.UUID), Type: other.Kind().String(), ID: other.ID(),
			})
			return
		}
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
