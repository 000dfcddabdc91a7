package vmapi

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
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
	p := &parts{vm: vm}
	if rec, ok := state.Get(log.KindServer, vm.ServerUUID.String()); ok && !vm.ServerUUID.IsZero() {
		p.unknown = rec.Object.(*log.Server).Status == "unknown"
	}
	for rec := range state.NICsOf(vm.UUID) {
		nic := rec.Object.(*log.NIC)
		p.nics, p.networks = append(p.nics, nic), append(p.networks, state.Network(nic.NetworkUUID))
	}
	return p
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

// form is a VM in an answer, with its NICs.
func form(state *projections.State, vm *log.VM) map[string]any { return gather(state, vm).shown(nil) }

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

// filters are the parameters of a list; others are ignored, as VMAPI does.
var filters = map[string]func(vm *log.VM, shown map[string]any, value string) bool{
	"uuid": func(vm *log.VM, _ map[string]any, v string) bool { return vm.UUID.Is(v) },
	"uuids": func(vm *log.VM, _ map[string]any, v string) bool {
		return slices.ContainsFunc(strings.Split(v, ","), vm.UUID.Is)
	},
	"owner_uuid":  func(vm *log.VM, _ map[string]any, v string) bool { return vm.OwnerUUID.Is(v) },
	"server_uuid": func(vm *log.VM, _ map[string]any, v string) bool { return vm.ServerUUID.Is(v) },
	"image_uuid":  func(vm *log.VM, _ map[string]any, v string) bool { return vm.ImageUUID.Is(v) },
	"brand":       func(vm *log.VM, _ map[string]any, v string) bool { return vm.Brand == v },
	"alias":       func(vm *log.VM, _ map[string]any, v string) bool { return strings.HasPrefix(vm.Alias, v) },
	"state": func(vm *log.VM, shown map[string]any, v string) bool {
		if v == "active" {
			return vm.State != "destroyed" && vm.State != "failed"
		}
		return shown["state"] == v
	},
}

// list answers GET /vms.
func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, offset, err := page(query)
	if err != nil {
		return err
	}
	for _, name := range []string{"uuid", "owner_uuid", "server_uuid", "image_uuid"} {
		if _, err := log.ParseUUID(query.Get(name)); query.Has(name) && err != nil {
			return invalid(name, "Invalid UUID")
		}
	}
	if err := s.cfg.Store.Serving(); err != nil {
		return err
	}
	found, count := []map[string]any{}, 0
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		all := state.List(log.KindVM)
		if cn, err := log.ParseUUID(query.Get("server_uuid")); err == nil {
			all = state.VMsOn(cn)
		}
		for rec := range all {
			vm := rec.Object.(*log.VM)
			if !matches(vm, nil, query, false) {
				continue
			}
			shown := form(state, vm)
			if !matches(vm, shown, query, true) {
				continue
			}
			if count++; count > offset && len(found) < limit {
				found = append(found, shown)
			}
		}
	})
	w.Header().Set("X-Joyent-Resource-Count", strconv.Itoa(count))
	rest.WriteEscaped(w, http.StatusOK, found)
	return nil
}

// matches reports whether a VM passes the filters, except that by state, which is
// checked on its form.
func matches(vm *log.VM, form map[string]any, query map[string][]string, shown bool) bool {
	for name, values := range query {
		filter, known := filters[name]
		if known && (name == "state") == shown && !slices.ContainsFunc(values, func(v string) bool { return filter(vm, form, v) }) {
			return false
		}
	}
	return true
}

// page reads limit and offset; a parameter without a value is one that is not given.
func page(query url.Values) (limit, offset int, err error) {
	limit, offset, bad := rest.Page(query, maxList, func(name string) bool { return query.Get(name) != "" })
	switch bad {
	case "limit":
		return 0, 0, invalid(bad, "it must be a number from 1 to %d", maxList)
	case "offset":
		return 0, 0, invalid(bad, "it must be a number from 0")
	}
	return limit, offset, nil
}
