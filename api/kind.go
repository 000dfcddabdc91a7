package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// kindRoute is a kind of object with its path and what its lists can be
// filtered by.
type kindRoute struct {
	kind log.Kind
	path string
	noun string // as NAPI's messages say it (spec/napi.md section 3.3)
	key  string // the JSON name of its id
	// filters are by query parameter; each says whether an object has a value.
	filters map[string]filter
}

// filter reports whether o matches the value of a query parameter.
type filter func(state *projections.State, o log.Object, value string) bool

// field makes a filter of a getter of text.
func field[T log.Object](get func(o T) string) filter {
	return func(_ *projections.State, o log.Object, value string) bool { return get(o.(T)) == value }
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func uuidText(u log.UUID) string { return u.String() }

// kinds are the objects that have paths of their own. Filters: NAPI's,
// CNAPI's and VMAPI's names, as far as we hold the field.
var kinds = []*kindRoute{
	{log.KindNICTag, "nic_tags", "nic tag", "name", map[string]filter{
		"uuid": field(func(t *log.NICTag) string { return uuidText(t.UUID) }),
		"mtu":  field(func(t *log.NICTag) string { return number(t.MTU) }),
	}},
	{log.KindSetting, "settings", "setting", "name", map[string]filter{
		"value": field(func(o *log.Setting) string { return o.Value }),
	}},
	{log.KindNetwork, "networks", "network", "uuid", map[string]filter{
		"uuid":    field(func(n *log.Network) string { return uuidText(n.UUID) }),
		"name":    field(func(n *log.Network) string { return n.Name }),
		"nic_tag": field(func(n *log.Network) string { return n.NICTag }),
		"family":  field(func(n *log.Network) string { return n.Family }),
		"vlan_id": field(func(n *log.Network) string { return number(n.VLANID) }),
		"vnet_id": field(func(n *log.Network) string { return number(n.VNetID) }),
		"fabric":  field(func(n *log.Network) string { return strconv.FormatBool(n.Fabric) }),
		"owner_uuid": func(_ *projections.State, o log.Object, value string) bool {
			return slices.ContainsFunc(o.(*log.Network).OwnerUUIDs, func(u log.UUID) bool { return u.String() == value })
		},
	}},
	{log.KindNIC, "nics", "nic", "mac", map[string]filter{
		"belongs_to_uuid": field(func(n *log.NIC) string { return uuidText(n.BelongsToUUID) }),
		"belongs_to_type": field(func(n *log.NIC) string { return n.BelongsToType }),
		"owner_uuid":      field(func(n *log.NIC) string { return uuidText(n.OwnerUUID) }),
		"network_uuid":    field(func(n *log.NIC) string { return uuidText(n.NetworkUUID) }),
		"cn_uuid":         field(func(n *log.NIC) string { return uuidText(n.CNUUID) }),
		"state":           field(func(n *log.NIC) string { return n.State }),
		"underlay":        field(func(n *log.NIC) string { return strconv.FormatBool(n.Underlay) }),
		"primary":         field(func(n *log.NIC) string { return strconv.FormatBool(n.Primary) }),
		"ip":              field(func(n *log.NIC) string { return n.IP.String() }),
		"nic_tag": func(state *projections.State, o log.Object, value string) bool {
			nic := o.(*log.NIC)
			return nicTagOf(nic, networkOf(state, nic)) == value
		},
		"vnet_id": func(state *projections.State, o log.Object, value string) bool {
			network := networkOf(state, o.(*log.NIC))
			return network != nil && network.Fabric && number(network.VNetID) == value
		},
	}},
	{log.KindServer, "servers", "server", "uuid", map[string]filter{
		"uuid":       field(func(o *log.Server) string { return uuidText(o.UUID) }),
		"hostname":   field(func(o *log.Server) string { return o.Hostname }),
		"datacenter": field(func(o *log.Server) string { return o.Datacenter }),
		"status":     field(func(o *log.Server) string { return o.Status }),
		"setup":      field(func(o *log.Server) string { return strconv.FormatBool(o.Setup) }),
		"headnode":   field(func(o *log.Server) string { return strconv.FormatBool(o.Headnode) }),
	}},
	{log.KindVM, "vms", "vm", "uuid", map[string]filter{
		"uuid":  field(func(o *log.VM) string { return uuidText(o.UUID) }),
		"alias": field(func(o *log.VM) string { return o.Alias }),
		"brand": field(func(o *log.VM) string { return o.Brand }),
		"state": func(state *projections.State, o log.Object, value string) bool {
			return vmForm(state, o.(*log.VM)).State == value
		},
		"owner_uuid":  field(func(o *log.VM) string { return uuidText(o.OwnerUUID) }),
		"server_uuid": field(func(o *log.VM) string { return uuidText(o.ServerUUID) }),
	}},
	{log.KindVMM, "vmms", "vmm", "id", map[string]filter{
		"instance_id": field(func(o *log.VMM) string { return uuidText(o.InstanceID) }),
		"sled_id":     field(func(o *log.VMM) string { return uuidText(o.SledID) }),
		"state":       field(func(o *log.VMM) string { return o.State }),
	}},
}

// filterNames are the parameters that a list of the kind takes, sorted.
func (k *kindRoute) filterNames() []string {
	names := make([]string, 0, len(k.filters))
	for name := range k.filters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// id reads an id from the path, in the form that the log has it.
func (k *kindRoute) id(r *http.Request) (string, error) {
	text := r.PathValue("id")
	switch k.kind {
	case log.KindNICTag, log.KindSetting:
		return text, nil
	case log.KindNIC:
		mac, err := log.ParseMAC(text)
		if err != nil {
			return "", rest.BadParameter(k.key, log.ElementInvalid, "send a MAC address, as in 90:b8:d0:01:02:03", "%v", err)
		}
		return mac.String(), nil
	}
	uuid, err := log.ParseUUID(text)
	if err != nil {
		return "", rest.BadParameter(k.key, log.ElementInvalid, "send a UUID of 36 characters", "%v", err)
	}
	return uuid.String(), nil
}

// wanted are the values of one filter: any of them will do.
type wanted struct {
	filter filter
	values []string
}

// conditions reads the filters of a query. An empty value matches nothing, and
// is refused: it is a variable that was not set.
func (k *kindRoute) conditions(p rest.Parameters) ([]wanted, error) {
	var all []wanted
	for _, name := range k.filterNames() {
		if !p.Has(name) {
			continue
		}
		values := strings.Split(p.Text(name), ",")
		for i, value := range values {
			if value == "" {
				return nil, rest.BadParameter(name, log.ElementInvalid, "send a value, or leave it out", "got an empty value")
			}
			if !strings.HasSuffix(name, "uuid") && !strings.HasSuffix(name, "_id") {
				continue
			}
			if _, err := strconv.ParseUint(value, 10, 32); err == nil {
				continue // vlan_id and vnet_id
			}
			uuid, err := log.ParseUUID(value)
			if err != nil {
				return nil, rest.BadParameter(name, log.ElementInvalid, "send an id as the objects have it; lists are parted by commas", "%v", err)
			}
			values[i] = uuid.String()
		}
		all = append(all, wanted{k.filters[name], values})
	}
	return all, nil
}

func matches(state *projections.State, o log.Object, all []wanted) bool {
	for _, w := range all {
		if !slices.ContainsFunc(w.values, func(value string) bool { return w.filter(state, o, value) }) {
			return false
		}
	}
	return true
}

// walk names the records that a query can match, by an index if there is one.
func (k *kindRoute) walk(p rest.Parameters) projections.Walk {
	walk := projections.Walk{Kind: k.kind}
	by := func(name string, id *log.UUID) (ok bool) {
		uuid, err := log.ParseUUID(p.Text(name)) // a list of several has no index
		if err == nil {
			*id = uuid
		}
		return err == nil
	}
	switch k.kind {
	case log.KindNIC:
		if by("belongs_to_uuid", &walk.BelongsTo) || by("network_uuid", &walk.Network) || by("cn_uuid", &walk.CN) {
			return walk
		}
		if vnet, err := strconv.ParseUint(p.Text("vnet_id"), 10, 24); err == nil {
			walk.VNet = uint32(vnet)
		}
	case log.KindNetwork:
		if tag := p.Text("nic_tag"); !strings.Contains(tag, ",") {
			walk.Tag = tag
		}
	case log.KindVM:
		by("server_uuid", &walk.CN)
	case log.KindVMM:
		_ = by("sled_id", &walk.CN) || by("instance_id", &walk.BelongsTo)
	}
	return walk
}
