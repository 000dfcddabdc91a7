package netsync

import (
	"slices"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
	"rutter/projections"
)

// adminTag is the nic tag of the admin network, which has its name.
const adminTag = "admin"

// anyOwner: the owner of a NIC is its VM's, and is not checked against its network
// (check_owner: false).
var anyOwner = []log.Option{log.OptionAnyOwner}

// vmPass is one VM in one pass.
type vmPass struct {
	*core
	in   *input
	plan *plan
	vm   *VM
	edit edit
	held []*log.NIC // of the NICs in order; nil: unknown, or not this VM's
}

// run compares a VM with the log. where has the VM of each NIC.
func (v *vmPass) run(where map[log.MAC]*VM) {
	if v.vm.HandsOff {
		for _, nic := range v.vm.NICs {
			if claim := v.ledger.claims[nic.MAC]; claim != nil && claim.VM == v.vm.UUID {
				v.ledger.drop(nic.MAC)
			}
		}
		return
	}
	if !v.vm.settled() {
		return
	}
	v.held = make([]*log.NIC, len(v.vm.NICs))
	for i := range v.vm.NICs {
		if where[v.vm.NICs[i].MAC] == v.vm {
			v.held[i] = v.compare(&v.vm.NICs[i])
		}
	}
	v.writeDown()
}

// compare compares one NIC, and returns the log's NIC, if it is this VM's there.
func (v *vmPass) compare(nic *NIC) *log.NIC {
	claim := v.ledger.take(nic.MAC, v.vm.UUID)
	if claim == nil {
		return nil
	}
	if claim.VM != v.vm.UUID {
		return nil // it is released first, from the VM that had it
	}
	remote, rec, known, asked := v.remote(v.in, nic.MAC)
	switch {
	case !known:
		if v.ask(v.in, v.plan, nic.MAC, "compare/"+v.vm.State) && textOf(nic.Fields, "nic_tag") == adminTag {
			v.plan.networks = []string{adminTag}
		}
		return nil
	case remote == nil && claim.Held:
		v.remove(nic.MAC)
		return nil
	case remote == nil:
		v.createNIC(claim, nic)
		return nil
	case remote.BelongsToType == "zone" && remote.BelongsToUUID == v.vm.UUID:
		if remote.State == "running" || remote.State == "stopped" {
			v.ledger.hold(claim) // before that it belongs to its creator
		}
		v.recordStates(nic, remote, rec)
		return remote
	case !asked: // the node's own record may be old
		v.ask(v.in, v.plan, nic.MAC, "other/"+rec.ETag())
		return nil
	}
	v.plan.notes = append(v.plan.notes, "NIC "+nic.MAC.String()+" of VM "+v.vm.UUID.String()+" belongs to "+remote.BelongsToType+" "+remote.BelongsToUUID.String()+" in the log: it is taken from this VM")
	v.remove(nic.MAC)
	return nil
}

func (v *vmPass) remove(mac log.MAC) {
	if v.vm.editable() {
		v.edit.remove = append(v.edit.remove, mac)
	}
}

// createNIC creates a NIC in the log that it never had.
func (v *vmPass) createNIC(claim *claim, nic *NIC) {
	op := v.creation(claim, nic, v.vm)
	if claim.Create.IsZero() {
		v.ledger.create(claim, v.newID())
	}
	// A refused one gets another id, and is otherwise the same.
	v.send(v.in, v.plan, nic.MAC, "create/"+v.vm.State+v.vm.Owner.String()+string(nic.Fields.AppendJSON(nil)), claim.Create, op)
}

// creation is the operation that creates a NIC. Without a NIC (the VM has it no more)
// it only has the id of what may have been created before.
func (c *core) creation(claim *claim, nic *NIC, vm *VM) log.Op {
	o := &log.NIC{MAC: claim.MAC, BelongsToType: "zone", BelongsToUUID: claim.VM, CNUUID: c.cn, State: "stopped"}
	set := []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "state"}
	if vm != nil && vm.UUID == claim.VM {
		o.OwnerUUID, o.State = vm.Owner, vm.nicState()
		set = append(set, "owner_uuid")
		if mac, ok := vm.primary(); ok && mac == claim.MAC {
			o.Primary = true
			set = append(set, "primary")
		}
	}
	if nic != nil {
		set = c.fill(o, nic.Fields, set)
	}
	slices.Sort(set)
	return log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: o, Options: anyOwner}
}

// fill copies a NIC's manifest fields and its location into one for the log.
func (c *core) fill(o *log.NIC, fields vmdoc.Value, set []string) []string {
	if o.IP = addressOf(fields); o.IP.IsValid() {
		set = append(set, "ip")
	}
	if o.Model = textOf(fields, "model"); o.Model != "" {
		set = append(set, "model")
	}
	for name, p := range spoofing(o) {
		if *p = truth(fields, name); *p {
			set = append(set, name)
		}
	}
	network, err := log.ParseUUID(textOf(fields, "network_uuid"))
	if f := c.found[adminTag]; err != nil && f.Object != nil && textOf(fields, "nic_tag") == adminTag {
		network, err = f.Object.(*log.Network).UUID, nil
	}
	if err == nil {
		o.NetworkUUID = network
		return append(set, "network_uuid")
	}
	if o.NICTag = textOf(fields, "nic_tag"); o.NICTag == "" {
		return set
	}
	o.VLANID, _ = number(fields, "vlan_id") // none: untagged
	return append(set, "nic_tag", "vlan_id")
}

// spoofing are the five flags of a NIC, by name.
func spoofing(n *log.NIC) map[string]*bool {
	return map[string]*bool{
		"allow_dhcp_spoofing": &n.AllowDHCPSpoofing, "allow_ip_spoofing": &n.AllowIPSpoofing, "allow_mac_spoofing": &n.AllowMACSpoofing,
		"allow_restricted_traffic": &n.AllowRestrictedTraffic, "allow_unfiltered_promisc": &n.AllowUnfilteredPromisc,
	}
}

// recordStates updates those fields of a NIC in the log that this node knows better:
// its location, its owner and its VM's state (spec/net-agent.md §2.2, local wins). The owner
// is an operation of its own, after the others: where nodes have certificates, the log
// refuses it from a node, and what the node knows better must not be refused with it.
func (v *vmPass) recordStates(nic *NIC, remote *log.NIC, rec projections.Record) {
	here := remote.CNUUID == v.cn
	if !here && !remote.CNUUID.IsZero() && (v.vm.Placed || remote.State == "running" && v.vm.State != "running") {
		return // it runs there: this is its origin or its target
	}
	want := log.Clone(remote).(*log.NIC)
	want.CNUUID, want.State = v.cn, v.vm.nicState()
	if !v.vm.Owner.IsZero() {
		want.OwnerUUID = v.vm.Owner
	}
	if mac, ok := v.vm.primary(); ok && mac == nic.MAC {
		want.Primary = true
	}
	var set []string
	for _, changed := range log.Diff(remote, want) {
		set = append(set, changed.Path)
	}
	if len(set) == 0 {
		return
	}
	slices.Sort(set)
	if i := slices.Index(set, "owner_uuid"); i >= 0 && len(set) > 1 {
		set = slices.Delete(set, i, i+1)
	}
	key := "update/" + rec.ETag()
	for _, name := range set {
		key += "/" + name
	}
	v.send(v.in, v.plan, nic.MAC, key+"/"+want.State+want.OwnerUUID.String(), log.UUID{},
		log.Op{Action: log.Update, Kind: log.KindNIC, ID: nic.MAC.String(), IfMatch: rec.Revision, IfSeq: rec.Seq, Set: set, Object: want, Options: anyOwner})
}
