package projections

import (
	"fmt"

	"rutter/log"
)

// createNet fills in and checks a new pool, VLAN, aggregation, router or setting.
func (d *draft) createNet(o log.Object, op *log.Op) {
	switch o := o.(type) {
	case *log.NetworkPool:
		d.checkPool(o, op)
	case *log.FabricVLAN:
		d.fillVLAN(o, op)
		d.checkVLAN(o)
	case *log.Aggregation:
		d.checkAggregation(o, op)
	case *log.Router:
		d.settleRouter(nil, o, op)
		d.checkRouter(nil, o)
	case *log.Setting:
		d.checkSetting(o)
	}
}

// settleNetUpdate brings an updated pool, aggregation or router into its one form.
func (d *draft) settleNetUpdate(before, after log.Object, op *log.Op) {
	switch o := after.(type) {
	case *log.Aggregation:
		d.settleAggregation(o, op)
	case *log.Router:
		d.settleRouter(before.(*log.Router), o, op)
	}
}

func (d *draft) checkNetUpdate(before, after log.Object, op *log.Op) {
	switch o := after.(type) {
	case *log.NetworkPool:
		d.checkPool(o, op)
	case *log.FabricVLAN:
		d.checkVLAN(o)
	case *log.Aggregation:
		d.checkAggregation(o, op)
	case *log.Router:
		d.checkRouter(before.(*log.Router), o)
	case *log.Setting:
		d.checkSetting(o)
	}
}

// duplicate refuses a new object whose id is taken, in NAPI's words where it has some.
func (d *draft) duplicate(o log.Object) {
	e := log.FieldError{
		Field: idField[o.Kind()], Code: log.ElementDuplicate, Message: "Already exists",
		Remedy: "choose another, or update the one there", Type: o.Kind().String(), ID: o.ID(),
	}
	switch o.(type) {
	case *log.FabricVLAN:
		e.Field, e.Message = "vlan_id", "VLAN ID is already in use"
		if !d.refused() {
			d.refuse(log.CodeInUse, "VLAN ID is already in use", e)
		}
	case *log.Aggregation:
		e.Field, e.Message = "name", "aggregation with same belongs_to_uuid and name already exists"
	}
	d.problem(e)
}

// followNet makes the events that follow from that of one object.
func (d *draft) followNet(op *log.Op, before, after log.Object) {
	switch o := after.(type) {
	case *log.NIC:
		d.followNIC(op, o)
	case *log.VM:
		d.followVM(o.UUID, o.ServerUUID)
	case *log.Router:
		was, _ := before.(*log.Router)
		d.followRouter(was, o)
	}
}

// maxReleased bounds the addresses that go with a network.
const maxReleased = 1024

// deleteNet checks what the deletion of a network, or of what stands around
// networks, needs.
func (d *draft) deleteNet(o log.Object) {
	switch o := o.(type) {
	case *log.Network:
		d.unused(o, "network is in use", "take it out of the pool or router first",
			func(s *store) *sorted[*row] { return s.byNet.poolsWith[o.UUID] },
			func(s *store) *sorted[*row] { return s.byNet.routersWith[o.UUID] })
		d.checkReleased(o)
	case *log.FabricVLAN:
		d.deleteVLAN(o)
	case *log.NIC:
		d.keepAggregated(o, nil)
	}
}

// checkReleased refuses a network with addresses that belong to something, or
// with too many reserved ones to let them go in one change.
func (d *draft) checkReleased(n *log.Network) {
	var users []log.FieldError
	released := 0
	for o := range d.rows(func(s *store) *sorted[*row] { return s.byNet.ipsOn[n.UUID] }) {
		ip := o.(*log.IP)
		released++
		if !ip.BelongsToUUID.IsZero() && ip.BelongsToType != "other" && len(users) < maxUsedBy {
			users = append(users, usedBy("uuid", ip.BelongsToType, ip.BelongsToUUID.String(), fmt.Sprintf("free address %s first", ip.IP)))
		}
	}
	switch {
	case users != nil:
		d.refuse(log.CodeInUse, "network must have no IPs that belong to something", users...)
	case released > maxReleased:
		d.refuse(log.CodeInUse, fmt.Sprintf("network has %d reserved IPs", released), log.FieldError{
			Field: "uuid", Code: log.ElementInvalid, Message: fmt.Sprintf("at most %d reserved IPs go with their network", maxReleased), Remedy: "free the others first",
		})
	}
}

// precede makes the events that must stand before that of a deletion.
func (d *draft) precede(o log.Object) {
	n, ok := o.(*log.Network)
	if !ok {
		return
	}
	var gone []Record
	for ip := range d.rows(func(s *store) *sorted[*row] { return s.byNet.ipsOn[n.UUID] }) {
		if r, ok := d.find(log.KindIP, keyOfObject(ip)); ok {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		d.emit(r, nil)
	}
}

// succeed makes those that stand behind it.
func (d *draft) succeed(o log.Object) {
	switch o := o.(type) {
	case *log.VM:
		d.followVM(o.UUID, log.UUID{})
	case *log.Router:
		d.followRouter(o, nil)
	}
}
