package projections

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
)

// Rights are what a compute node (CN) may do to its own objects of one kind. A
// kind without a row here is not a CN's to write.
type Rights struct {
	// Create and Update are the fields that it may set, by JSON name, sorted; none:
	// it may not do that at all. What follows from a field, such as the time of the
	// change, needs no mention.
	Create, Update []string
	Delete         bool
	// Why is for people who read the table.
	Why string
}

// OwnRights is what a CN may write about itself, its VMs, its VMMs, its NICs and
// its tasks. It is not to be changed.
var OwnRights = map[log.Kind]Rights{
	log.KindServer: {
		Create: append(slices.Clone(sysinfoFields), "uuid"), Update: sysinfoFields,
		Why: "what it finds in its own machine; its status is judged by the servers, all else is the operators'",
	},
	log.KindVM: {
		Create: vmFields, Update: vmFields, Delete: true,
		Why: "the machine is the source of truth for the VMs on it; one comes from another CN where an operator registered a VMM of it",
	},
	log.KindVMM: {
		Create: []string{"gen", "id", "instance_id", "reason", "sled_id", "state", "time_updated"},
		Update: []string{"gen", "reason", "state", "time_updated"},
		Why:    "a VMM's state is owned by the CN that runs it",
	},
	log.KindMigration: {
		Create: append([]string{"id", "instance_id"}, migrationSides...), Update: migrationSides,
		Why: "each side is told by the CN of its VMM",
	},
	log.KindNIC: {
		Create: []string{
			"allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc", "belongs_to_type",
			"belongs_to_uuid", "cn_uuid", "ip", "mac", "model", "network_uuid", "nic_tag", "nic_tags_provided", "owner_uuid", "primary", "state", "vlan_id",
		},
		Update: []string{
			"allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc", "cn_uuid", "model", "primary", "state",
		},
		Delete: true,
		Why:    "of its VMs, as net-agent does; a new one only on a network that it is on already, or it could let itself into any",
	},
	log.KindAggregation: {
		Create: []string{"lacp_mode", "macs", "name", "nic_tags_provided"},
		Update: []string{"lacp_mode", "macs", "nic_tags_provided"},
		Why:    "its bonds, of its own NICs, as its sysinfo has them",
	},
	log.KindTask: {
		Update: []string{"claimed_by", "failure", "history", "result", "status"},
		Why:    "it claims what it is asked to do, and tells how that went",
	},
}

// hostNICFields are what a CN may update of a NIC of its own, besides those of its
// VMs' NICs: where its links are is found there. One that carries VXLAN is the
// operators', since every other CN's kernel has its address.
var hostNICFields = []string{"ip", "nic_tag", "nic_tags_provided", "vlan_id"}

var sysinfoFields = []string{
	"agents", "created", "current_platform", "headnode", "hostname", "last_boot", "ram", "serial", "setup", "sysinfo",
}

var vmFields = []string{
	"alias", "brand", "cpu_cap", "create_timestamp", "do_not_inventory", "image_uuid", "last_modified", "max_physical_memory",
	"owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state", "zonename",
}

var migrationSides = []string{
	"source_gen", "source_propolis_id", "source_state", "target_gen", "target_propolis_id", "target_state",
	"time_source_updated", "time_target_updated",
}

// guarded are the kinds that say who may do what: only who is trusted writes them.
var guarded = []log.Kind{log.KindSetting, log.KindToken, log.KindRevocation, log.KindGrant, log.KindAuthority, log.KindCertificate}

// permit decides whether the author may do the operation to the object that there
// is. A CN is told the same of what is another's and of what there is not.
func (d *draft) permit(op *log.Op) bool {
	switch by := d.change.By; by.Role {
	case log.RoleTrusted:
		return true
	case log.RoleForeign:
		if !slices.Contains(guarded, op.Kind) {
			return true
		}
		d.deny(op, fmt.Sprintf("a program without a certificate may not write a %s", op.Kind), "use the certificate of an operator")
	case log.RoleCN:
		return d.permitCN(op)
	default:
		d.deny(op, fmt.Sprintf("the role %s may not write", by.Role), "use the certificate of an operator")
	}
	return false
}

func (d *draft) permitCN(op *log.Op) bool {
	rights, ok := OwnRights[op.Kind]
	if !ok {
		d.deny(op, fmt.Sprintf("a compute node may not write a %s", op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create && rights.Create == nil || op.Action == log.Update && rights.Update == nil || op.Action == log.Delete && !rights.Delete {
		d.deny(op, fmt.Sprintf("a compute node may not %s a %s", op.Action, op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create {
		return true // what it makes is looked at when all fields are known
	}
	if key, err := keyOf(op.Kind, op.ID); err == nil {
		if r, ok := d.find(op.Kind, key); ok && d.owns(d.change.By.CN, r.Object) {
			return true
		}
	}
	d.deny(op, fmt.Sprintf("%s %s is not one of compute node %s", op.Kind, d.show(op.ID), d.change.By.CN), "a compute node writes about itself, its VMs, its VMMs and its NICs only")
	return false
}

func (d *draft) deny(op *log.Op, message, remedy string) {
	field := idField[op.Kind]
	if field == "" {
		field = "kind"
	}
	d.refuse(log.CodeNotAuthorized, message, log.FieldError{Field: field, Code: log.ElementInvalid, Message: message, Remedy: remedy})
}

// permitFields decides, for a CN, whether what the operation made of an object is
// its own still, and only in fields that it may write. before is nil for a create.
func (d *draft) permitFields(op *log.Op, before, after log.Object) {
	by := d.change.By
	if by.Role != log.RoleCN || d.refused() {
		return
	}
	if !d.owns(by.CN, after) || !d.mayTake(by.CN, before, after) {
		d.deny(op, fmt.Sprintf("%s %s is not one of compute node %s", op.Kind, d.show(after.ID()), by.CN), "a compute node writes about itself, its VMs, its VMMs and its NICs only")
		return
	}
	var foreign []log.FieldError
	allowed := OwnRights[op.Kind].Update
	if before == nil {
		allowed = OwnRights[op.Kind].Create
	} else if was, ok := before.(*log.NIC); ok && isHostNIC(by.CN, was) && !was.Underlay {
		allowed = append(slices.Clone(allowed), hostNICFields...)
	}
	for _, name := range d.touched(op, before, after) {
		if !slices.Contains(allowed, name) {
			foreign = append(foreign, log.FieldError{
				Field: d.show(name), Code: log.ElementInvalid, Message: "not a field that a compute node may write",
				Remedy: "it may write " + strings.Join(allowed, ", "),
			})
		}
	}
	if foreign != nil {
		d.refuse(log.CodeNotAuthorized, fmt.Sprintf("compute node %s may not write these fields of a %s", by.CN, op.Kind), foreign...)
	}
	d.checkOwned(op, before, after)
}

// touched are the fields that the operation sets or changes. One that is sent
// with the value that it has is not touched.
func (d *draft) touched(op *log.Op, before, after log.Object) []string {
	if before == nil {
		return op.Set
	}
	var names []string
	for _, change := range log.Diff(before, after) {
		if given(op, change.Path) {
			names = append(names, change.Path)
		}
	}
	return names
}

// owns reports whether an object is about cn: itself, or what runs on it.
func (d *draft) owns(cn log.UUID, o log.Object) bool {
	if cn.IsZero() {
		return false
	}
	switch o := o.(type) {
	case *log.Server:
		return o.UUID == cn
	case *log.VM:
		return d.hosts(cn, o)
	case *log.VMM:
		return o.SledID == cn
	case *log.NIC:
		return cnOf(o) == cn || d.hosts(cn, d.vmOf(o.BelongsToUUID))
	case *log.Aggregation:
		return o.BelongsToUUID == cn
	case *log.Task:
		return o.ServerUUID == cn
	case *log.Migration:
		return d.sledOf(o.SourceVMM) == cn || d.sledOf(o.TargetVMM) == cn || d.hosts(cn, d.vmOf(o.InstanceID))
	}
	return false
}

// mayTake decides what ownership alone does not: a CN makes VMMs of its own VMs
// only, and speaks for its own side of a migration.
func (d *draft) mayTake(cn log.UUID, before, after log.Object) bool {
	switch after := after.(type) {
	case *log.VM:
		return after.ServerUUID == cn
	case *log.NIC:
		was, _ := before.(*log.NIC)
		return d.mayTakeNIC(cn, was, after)
	case *log.VMM:
		vm := d.vmOf(after.InstanceID)
		return before != nil || vm == nil || vm.ServerUUID == cn
	case *log.Migration:
		was, ok := before.(*log.Migration)
		if !ok {
			was = new(log.Migration)
		}
		source := was.SourceVMM == after.SourceVMM && was.SourceState == after.SourceState && was.SourceGen == after.SourceGen
		target := was.TargetVMM == after.TargetVMM && was.TargetState == after.TargetState && was.TargetGen == after.TargetGen
		return (source || d.sledOf(after.SourceVMM) == cn) && (target || d.sledOf(after.TargetVMM) == cn)
	}
	return true
}

// mayTakeNIC: a CN's NIC is on it, its own or of a VM on it, and brings it onto no
// network that it has no part in: else it could read any. The admin network is
// every CN's.
func (d *draft) mayTakeNIC(cn log.UUID, before, after *log.NIC) bool {
	if cnOf(after) != cn {
		return false
	}
	if before == nil && !isHostNIC(cn, after) {
		vm := d.vmOf(after.BelongsToUUID)
		if vm == nil || after.BelongsToType != "zone" || vm.ServerUUID != cn {
			return false
		}
	}
	if before != nil && before.NetworkUUID == after.NetworkUUID {
		return true
	}
	scope := d.scopeOn(after.NetworkUUID)
	return scope.Type == 0 || d.base.Interested(cn, []log.Scope{scope}) || isHostNIC(cn, after) && d.isAdmin(after.NetworkUUID)
}

// isHostNIC reports whether a NIC is of the CN itself.
func isHostNIC(cn log.UUID, nic *log.NIC) bool {
	return nic.BelongsToType == "server" && nic.BelongsToUUID == cn
}

// adminTag is the NIC tag of that network, which cannot be renamed (spec/napi.md §3.4).
const adminTag = "admin"

// isAdmin reports whether a network is that on which servers reach all CNs.
func (d *draft) isAdmin(network log.UUID) bool {
	r, ok := d.find(log.KindNetwork, string(network[:]))
	return ok && r.Object.(*log.Network).NICTag == adminTag && !r.Object.(*log.Network).Fabric
}

// hosts reports whether a VM is on cn or may come to it: an operator has
// registered a VMM of it there.
func (d *draft) hosts(cn log.UUID, vm *log.VM) bool {
	if vm == nil {
		return false
	}
	if vm.ServerUUID == cn {
		return true
	}
	for o := range d.rows(func(s *store) *sorted[*row] { return s.vmmsOf[vm.UUID] }) {
		vmm := o.(*log.VMM)
		if vmm.SledID == cn && !slices.Contains(endedVMM, vmm.State) {
			return true
		}
	}
	return false
}

// endedVMM are the states in which a VMM gives its CN no claim to the VM any more.
var endedVMM = []string{"destroyed", "failed", "saga_unwound"}

func (d *draft) vmOf(id log.UUID) *log.VM {
	if r, ok := d.find(log.KindVM, string(id[:])); ok {
		return r.Object.(*log.VM)
	}
	return nil
}

func (d *draft) sledOf(vmm log.UUID) (sled log.UUID) {
	if r, ok := d.find(log.KindVMM, string(vmm[:])); ok && !vmm.IsZero() {
		sled = r.Object.(*log.VMM).SledID
	}
	return sled
}
