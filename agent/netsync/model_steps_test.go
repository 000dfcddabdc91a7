package netsync

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

func parse(format string, args ...any) vmdoc.Value {
	v, err := vmdoc.ParseValue(fmt.Appendf(nil, format, args...))
	if err != nil {
		panic(err)
	}
	return v
}

// local is a change by a user of the node.
func (m *model) local() {
	ids := m.ids()
	if len(ids) == 0 || len(ids) < 3 && m.rand.IntN(5) == 0 {
		m.createVM()
		return
	}
	id := ids[m.rand.IntN(len(ids))]
	v := m.vms[id]
	nics, _ := v.Get("nics")
	list := slices.Clone(nics.Items())
	switch m.rand.IntN(10) {
	case 0:
		delete(m.vms, id)
		m.tell("local: VM %s is deleted", id)
		return
	case 1, 2:
		v = v.With("state", vmdoc.StringValue([]string{"running", "stopped", "running", "provisioning"}[m.rand.IntN(4)]))
	case 3:
		v = v.With("owner_uuid", vmdoc.StringValue(log.UUID{0xaa, 15: byte(1 + m.rand.IntN(3))}.String()))
	case 4:
		if len(list) > 0 {
			list = slices.Delete(list, 0, 1)
		}
	case 5, 6:
		if len(list) < 4 {
			list = append(list, m.newNIC(id))
		}
	case 7:
		for i := range list {
			list[i] = list[i].With("primary", boolean(false))
		}
		if len(list) > 0 {
			i := m.rand.IntN(len(list))
			list[i] = list[i].With("primary", boolean(true))
		}
	case 8:
		off := !truth(v, "do_not_inventory")
		v = v.With("do_not_inventory", boolean(off))
		for _, nic := range list { // it is not watched: what is deleted meanwhile is created again
			mac, _ := log.ParseMAC(textOf(nic, "mac"))
			delete(m.forbidden, mac)
			m.excused[mac] = true
		}
		for mac := range m.sync.core.ledger.claims {
			m.excused[mac] = true
		}
	case 9:
		if other := ids[m.rand.IntN(len(ids))]; other != id && len(list) > 0 { // a NIC moves to another VM
			theirs, _ := m.vms[other].Get("nics")
			m.vms[other] = m.vms[other].With("nics", vmdoc.ArrayValue(append(slices.Clone(theirs.Items()), list[0])...))
			mac, _ := log.ParseMAC(textOf(list[0], "mac"))
			delete(m.forbidden, mac)
			list = list[1:]
		}
	}
	m.vms[id] = v.With("nics", vmdoc.ArrayValue(list...))
	m.tell("local: %s", m.vms[id].AppendJSON(nil))
}

func (m *model) createVM() {
	id := log.UUID(m.newID())
	id[0] = 0xbb
	v := parse(`{"uuid":%q,"owner_uuid":%q,"state":"running","nics":[]}`, id, modelOwner)
	m.operator("the inventory has a VM", log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "uuid"}, Object: &log.VM{UUID: id, OwnerUUID: modelOwner, ServerUUID: modelCN}})
	var list []vmdoc.Value
	for range 1 + m.rand.IntN(2) {
		list = append(list, m.newNIC(id))
	}
	m.vms[id] = v.With("nics", vmdoc.ArrayValue(list...))
	m.tell("local: %s", m.vms[id].AppendJSON(nil))
}

// newNIC is a NIC that the log has already, with the state provisioning, or not.
func (m *model) newNIC(vm log.UUID) vmdoc.Value {
	m.macs++
	mac := log.MAC{0x90, 0xb8, 0xd0, 0, byte(m.macs >> 8), byte(m.macs)}
	net := m.rand.IntN(2)
	ip := netip.AddrFrom4([4]byte{10, 0, byte(net), byte(10 + m.macs%240)})
	if m.rand.IntN(3) == 0 {
		m.operator("provision "+mac.String(), log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "mac", "network_uuid", "owner_uuid"},
			Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: modelOwner, CNUUID: modelCN, NetworkUUID: modelNets[net], IP: ip},
		})
	}
	return parse(`{"mac":%q,"nic_tag":"ext","vlan_id":%d,"ips":["%s/24"],"primary":%t}`, mac, 10+net, ip, m.rand.IntN(3) == 0)
}

// remote is something that an operator does to the log.
func (m *model) remote() {
	if m.rand.IntN(3) == 0 {
		net := m.rand.IntN(2)
		base := [4]byte{10, 0, byte(net), byte(1 + m.rand.IntN(8))}
		op := log.Op{Action: log.Update, Kind: log.KindNetwork, ID: modelNets[net].String()}
		switch m.rand.IntN(3) {
		case 0:
			op.Set, op.Object = []string{"gateway"}, &log.Network{Gateway: netip.AddrFrom4(base)}
		case 1:
			op.Set, op.Object = []string{"resolvers"}, &log.Network{Resolvers: log.Addresses{netip.AddrFrom4(base)}}
		case 2:
			op.Set, op.Object = []string{"routes"}, &log.Network{Routes: log.Routes{{Dst: fmt.Sprintf("10.9.%d.0/24", m.rand.IntN(3)), Gateway: netip.AddrFrom4(base).String()}}}
		}
		m.operator(fmt.Sprint("network ", op.Set), op)
		return
	}
	var nics []*log.NIC
	for rec := range m.state.List(log.KindNIC) {
		nics = append(nics, rec.Object.(*log.NIC))
	}
	if len(nics) == 0 {
		return
	}
	nic := nics[m.rand.IntN(len(nics))]
	op := log.Op{Action: log.Update, Kind: log.KindNIC, ID: nic.ID()}
	switch m.rand.IntN(6) {
	case 0, 1:
		op.Action = log.Delete
		if claim := m.sync.core.ledger.claims[nic.MAC]; claim != nil && (claim.Held || !claim.Create.IsZero()) && claim.VM == nic.BelongsToUUID && !m.moved(nic) {
			m.forbidden[nic.MAC] = true
		}
	case 2:
		m.excused[nic.MAC] = true
		op.Set, op.Object = []string{"cn_uuid", "state"}, &log.NIC{CNUUID: otherCN, State: "stopped"}
	case 3:
		op.Set, op.Object = []string{"allow_ip_spoofing"}, &log.NIC{AllowIPSpoofing: !nic.AllowIPSpoofing}
	case 4:
		op.Set, op.Object = []string{"owner_uuid"}, &log.NIC{OwnerUUID: log.UUID{0xaa, 15: 9}}
	case 5:
		op.Set, op.Object = []string{"primary"}, &log.NIC{Primary: true}
	}
	m.operator(fmt.Sprint(op.Action, " ", nic.MAC, " ", op.Set), op)
}

// moved reports whether another VM has a NIC than the log says.
func (m *model) moved(nic *log.NIC) bool {
	for id, v := range m.vms {
		if vm, err := VMOf(v, v); err == nil && slices.ContainsFunc(vm.NICs, func(n NIC) bool { return n.MAC == nic.MAC }) && id != nic.BelongsToUUID {
			return true
		}
	}
	return false
}

// compare looks for differences between the log and the node.
func (m *model) compare() {
	here := make(map[log.MAC]log.UUID)
	off := make(map[log.UUID]bool) // not to be touched
	for _, id := range m.ids() {
		vm, err := VMOf(m.vms[id], m.vms[id])
		if err != nil {
			m.t.Fatal(err)
		}
		if off[id] = vm.HandsOff || !vm.settled(); off[id] {
			continue
		}
		for i := range vm.NICs {
			here[vm.NICs[i].MAC] = id
			m.compareNIC(&vm, &vm.NICs[i])
		}
	}
	for mac, claim := range m.sync.core.ledger.claims {
		if here[mac] != claim.VM && !off[claim.VM] {
			if rec, ok := m.state.Get(log.KindNIC, mac.String()); !ok || rec.Object.(*log.NIC).State != "provisioning" {
				m.fail("NIC %s is still remembered as VM %s's", mac, claim.VM)
			}
		}
	}
	for rec := range m.state.List(log.KindNIC) {
		nic := rec.Object.(*log.NIC)
		if m.forbidden[nic.MAC] {
			m.fail("NIC %s was deleted in the log, and is there again", nic.MAC)
		}
		if _, local := here[nic.MAC]; m.created[nic.MAC] && !local && nic.State != "provisioning" && !off[nic.BelongsToUUID] && !m.excused[nic.MAC] {
			m.fail("NIC %s is in the log, and no VM has it", nic.MAC)
		}
	}
}

func (m *model) compareNIC(vm *VM, local *NIC) {
	rec, ok := m.state.Get(log.KindNIC, local.MAC.String())
	if !ok {
		m.fail("NIC %s of VM %s is not in the log", local.MAC, vm.UUID)
	}
	nic := rec.Object.(*log.NIC)
	primary, has := vm.primary()
	if nic.BelongsToUUID != vm.UUID || nic.CNUUID != modelCN || nic.OwnerUUID != vm.Owner || nic.State != vm.nicState() || has && (primary == nic.MAC) != nic.Primary {
		m.fail("NIC %s is not in the log as it is here: %+v", local.MAC, nic)
	}
	if d := differing(local.Fields, nicFields(nic, m.state.Network(nic.NetworkUUID), local.Fields)); len(d) > 0 {
		m.fail("NIC %s of VM %s does not have %v of the log", local.MAC, vm.UUID, d)
	}
}
