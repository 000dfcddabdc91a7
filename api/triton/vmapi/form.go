package vmapi

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"rutter/log"
	"rutter/log/vmobject"
	"rutter/log/vmrule"
	"rutter/projections"
)

// RuleOf returns what the rule of updates must know of a VM.
func RuleOf(state *projections.State, id log.UUID) vmrule.VM {
	vm := vmrule.VM{}
	type place struct {
		network log.UUID
		subnet  netip.Prefix
	}
	nics := make(map[log.MAC]place)
	for rec := range state.NICsOf(id) {
		nic := rec.Object.(*log.NIC)
		at := place{network: nic.NetworkUUID}
		if n := state.Network(nic.NetworkUUID); n != nil {
			at.subnet = n.Subnet
			vm.Networks = append(vm.Networks, n.UUID)
		}
		nics[nic.MAC] = at
	}
	vm.Network = func(mac log.MAC) (log.UUID, netip.Prefix, bool) {
		at, ok := nics[mac]
		return at.network, at.subnet, ok
	}
	return vm
}

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// Form returns VMAPI's whole object of a VM: its own fields and properties, each field
// that VMAPI always shows, and what the log has in its NICs and their networks: nics,
// resolvers and routes. Fields name those that are wanted: none means all except
// role_tags, and "*" all. A field that the VM does not have is left out. The state is
// the log's, also while the VM's compute node is unreachable. It must be called within
// the state's View; the object is the caller's own.
func Form(state *projections.State, vm *log.VM, fields ...string) map[string]any {
	return gather(state, vm).form(fields)
}

// FormOfItem returns a VM's object as an item of the change feed has it: Form with role
// tags, without fields that are null or "". If vm is nil, it is the VM that the log has by
// that id; nil: there is none.
func FormOfItem(view func(func(*projections.State, log.Cursor)), id log.UUID, vm *log.VM) map[string]any {
	var p *parts
	view(func(state *projections.State, _ log.Cursor) {
		if vm == nil {
			rec, ok := state.Get(log.KindVM, id.String())
			if !ok {
				return
			}
			vm = rec.Object.(*log.VM)
		}
		p = gather(state, vm)
	})
	if p == nil {
		return nil
	}
	object := p.form([]string{"*"})
	for name, value := range object {
		if value == nil || value == "" {
			delete(object, name)
		}
	}
	return object
}

// Take returns the log's VM of an object of VMAPI or vmadm, and the names of the fields of
// log.VM that the object has: see vmobject.Take. Its NICs are not taken: the log has them.
func Take(object []byte) (*log.VM, []string, error) { return vmobject.Take(object) }

// parts are the objects of the log that a VM's object is made of. They do not change, so
// that the object is made without the state.
type parts struct {
	vm       *log.VM
	unknown  bool // the compute node is unreachable
	nics     []*log.NIC
	networks []*log.Network // of each NIC; nil: it has none
}

// gather collects the parts of a VM's object.
func gather(state *projections.State, vm *log.VM) *parts {
	p := &parts{vm: vm, unknown: unreachable(state, vm)}
	for rec := range state.NICsOf(vm.UUID) {
		nic := rec.Object.(*log.NIC)
		p.nics, p.networks = append(p.nics, nic), append(p.networks, state.Network(nic.NetworkUUID))
	}
	return p
}

// unreachable reports whether a VM's compute node is.
func unreachable(state *projections.State, vm *log.VM) bool {
	if vm.ServerUUID.IsZero() {
		return false
	}
	rec, ok := state.Get(log.KindServer, vm.ServerUUID.String())
	return ok && rec.Object.(*log.Server).Status == "unknown"
}

// form makes the object; see Form.
func (p *parts) form(fields []string) map[string]any {
	object := vmobject.Show(p.vm)
	tags := vmobject.RoleTagsOf(p.vm)
	delete(object, vmobject.RoleTags)
	extras := vmobject.ExtrasOfNICs(p.vm)
	list, resolvers, routes := []map[string]any{}, []netip.Addr{}, map[string]string{}
	for i, nic := range p.nics {
		n := p.networks[i]
		list = append(list, formOfNIC(nic, n, extras[nic.MAC.String()]))
		if n == nil {
			continue
		}
		for _, r := range n.Resolvers {
			if !slices.Contains(resolvers, r) {
				resolvers = append(resolvers, r)
			}
		}
		for _, r := range n.Routes {
			if _, taken := routes[r.Dst]; !taken { // VMAPI's: the first NIC's wins
				routes[r.Dst] = r.Gateway
			}
		}
	}
	object["nics"], object["resolvers"], object["routes"] = list, resolvers, routes
	switch {
	case len(fields) == 0:
		return object
	case slices.Contains(fields, "*"):
		object[vmobject.RoleTags] = tags
		return object
	}
	some := make(map[string]any, len(fields))
	for _, name := range fields {
		if value, has := object[name]; has {
			some[name] = value
		}
		if name == vmobject.RoleTags {
			some[name] = tags
		}
	}
	return some
}

// shown is form as an answer of this service has it: the state of a VM whose compute node
// is unreachable is unknown, because that in the log may be outdated.
func (p *parts) shown(fields []string) map[string]any {
	object := p.form(fields)
	if _, wanted := object["state"]; wanted {
		object["state"] = p.state()
	}
	return object
}

// state is the state that an answer shows.
func (p *parts) state() string {
	if p.unknown && p.vm.State != "destroyed" && p.vm.State != "failed" {
		return "unknown"
	}
	return p.vm.State
}

// fields is an object as JSON has it.
func fields(o log.Object) (f map[string]any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		panic("vmapi: an object has no JSON form: " + err.Error()) // every object of the log has one
	}
	return f
}

// formOfNIC is a NIC in the object of its VM. Extras are its fields that the log has
// neither in NICs nor in networks.
func formOfNIC(nic *log.NIC, n *log.Network, extras map[string]any) map[string]any {
	f := fields(nic)
	for name, value := range extras {
		if _, known := f[name]; !known {
			f[name] = value
		}
	}
	if n == nil {
		return f
	}
	f["nic_tag"], f["vlan_id"], f["mtu"] = n.NICTag, n.VLANID, n.MTU
	if n.Fabric {
		f["nic_tag"] = n.NICTag + "/" + strconv.FormatUint(uint64(n.VNetID), 10)
	}
	if n.Gateway.IsValid() {
		f["gateway"], f["gateways"] = n.Gateway, []netip.Addr{n.Gateway}
	}
	if nic.IP.IsValid() {
		f["ips"] = []string{netip.PrefixFrom(nic.IP, n.Subnet.Bits()).String()}
	}
	if n.Subnet.Addr().Is4() {
		f["netmask"] = net.IP(net.CIDRMask(n.Subnet.Bits(), 32)).String()
	}
	return f
}
