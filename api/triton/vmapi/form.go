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

// form is a VM in an answer, with its NICs. A VM of an unreachable compute node has the
// state unknown, because its state in the log may be outdated.
func form(state *projections.State, vm *log.VM) map[string]any {
	f := fields(vm)
	if rec, ok := state.Get(log.KindServer, vm.ServerUUID.String()); ok && rec.Object.(*log.Server).Status == "unknown" && vm.State != "destroyed" {
		f["state"] = "unknown"
	}
	f["ram"] = f["max_physical_memory"]
	if f["ram"] == nil {
		delete(f, "ram")
	}
	list, resolvers, routes := []map[string]any{}, []netip.Addr{}, map[string]string{}
	for rec := range state.NICsOf(vm.UUID) {
		nic := rec.Object.(*log.NIC)
		n := state.Network(nic.NetworkUUID)
		list = append(list, formOfNIC(nic, n))
		if n == nil {
			continue
		}
		for _, r := range n.Resolvers {
			if !slices.Contains(resolvers, r) {
				resolvers = append(resolvers, r)
			}
		}
		for _, r := range n.Routes {
			routes[r.Dst] = r.Gateway
		}
	}
	f["nics"], f["resolvers"], f["routes"] = list, resolvers, routes
	return f
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

func formOfNIC(nic *log.NIC, n *log.Network) map[string]any {
	f := fields(nic)
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
