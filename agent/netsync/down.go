package netsync

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// field is one field that a manifest must have.
type field struct {
	name  string
	value vmdoc.Value
}

// writeDown plans the changes that make the VM's manifest match the log.
func (v *vmPass) writeDown() {
	if !v.vm.editable() {
		return
	}
	nets := make([]*log.Network, len(v.held))
	for i, nic := range v.held {
		if nic != nil {
			nets[i] = v.in.state.Network(nic.NetworkUUID) // nil: none, or it has not arrived yet
		}
	}
	for i, nic := range v.held {
		if nic == nil {
			continue
		}
		if differ := differing(v.vm.NICs[i].Fields, nicFields(nic, nets[i], v.vm.NICs[i].Fields)); len(differ) > 0 {
			if v.edit.nics == nil {
				v.edit.nics = make(map[log.MAC][]field)
			}
			v.edit.nics[nic.MAC] = differ
		}
	}
	v.edit.fields = differing(v.vm.Manifest, v.vmFields(nets))
	if len(v.edit.remove) > 0 {
		v.edit.reboot = v.vm.State == "running"
	}
	if len(v.edit.remove)+len(v.edit.nics)+len(v.edit.fields) > 0 {
		v.plan.edits = append(v.plan.edits, v.edit)
	}
}

// vmFields are the fields of the VM that follow from its networks: all of them, or none
// while one network is unknown.
func (v *vmPass) vmFields(nets []*log.Network) []field {
	resolvers, routes := []vmdoc.Value{}, emptyObject()
	networks := 0
	for i, nic := range v.held {
		switch {
		case nic == nil || nets[i] == nil && !nic.NetworkUUID.IsZero():
			return nil
		case nets[i] == nil:
			continue
		}
		networks++
		for _, r := range nets[i].Resolvers {
			if text := vmdoc.StringValue(r.String()); !slices.ContainsFunc(resolvers, text.Equal) {
				resolvers = append(resolvers, text)
			}
		}
		for _, r := range nets[i].Routes {
			if _, taken := routes.Get(r.Dst); !taken {
				routes = routes.With(r.Dst, vmdoc.StringValue(gatewayOf(r, nic.MAC)))
			}
		}
	}
	if networks == 0 {
		return nil
	}
	var fields []field
	metadata, _ := v.vm.Manifest.Get("internal_metadata")
	if _, has := v.vm.Manifest.Get("resolvers"); !truth(metadata, "no_nic_resolvers") && (has || len(resolvers) > 0) {
		fields = append(fields, field{"resolvers", vmdoc.ArrayValue(resolvers...)})
	}
	if _, has := v.vm.Manifest.Get("routes"); has || len(routes.Keys()) > 0 {
		fields = append(fields, field{"routes", routes})
	}
	return fields
}

// gatewayOf is a route's gateway in a manifest: a link is named by its MAC.
func gatewayOf(r log.Route, mac log.MAC) string {
	if r.Gateway == "linklocal" {
		return "macs[" + mac.String() + "]"
	}
	return r.Gateway
}

func emptyObject() vmdoc.Value {
	v, err := vmdoc.ParseValue([]byte("{}"))
	if err != nil {
		panic("netsync: {} is no JSON")
	}
	return v
}

// nicFields are the fields of a NIC that follow from the log (spec/net-agent.md §2.2).
// A field that is empty in the log clears nothing.
func nicFields(nic *log.NIC, network *log.Network, local vmdoc.Value) (fields []field) {
	for name, p := range spoofing(nic) {
		if *p != truth(local, name) {
			fields = append(fields, field{name, boolean(*p)})
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return compareText(a.name, b.name) })
	text := func(name, value string) {
		if value != "" {
			fields = append(fields, field{name, vmdoc.StringValue(value)})
		}
	}
	text("model", nic.Model)
	if network == nil {
		if nic.NetworkUUID.IsZero() {
			text("nic_tag", nic.NICTag)
		}
		return fields
	}
	text("network_uuid", network.UUID.String())
	text("nic_tag", tagOf(network))
	fields = append(fields, field{"mtu", vmdoc.IntValue(int64(network.MTU))})
	if vlan, has := number(local, "vlan_id"); vlan != network.VLANID || !has && network.VLANID != 0 {
		fields = append(fields, field{"vlan_id", vmdoc.IntValue(int64(network.VLANID))})
	}
	if network.Gateway.IsValid() {
		text("gateway", network.Gateway.String())
		fields = append(fields, field{"gateways", vmdoc.ArrayValue(vmdoc.StringValue(network.Gateway.String()))})
	}
	if !nic.IP.IsValid() {
		return fields
	}
	text("ip", nic.IP.String())
	fields = append(fields, field{"ips", addresses(nic.IP, network.Subnet, local)})
	if nic.IP.Is4() {
		text("netmask", net.IP(net.CIDRMask(network.Subnet.Bits(), 32)).String())
	}
	return fields
}

// addresses are a NIC's, including the manifest's address of the other family, because
// the log has one address only.
func addresses(ip netip.Addr, subnet netip.Prefix, local vmdoc.Value) vmdoc.Value {
	list := []vmdoc.Value{vmdoc.StringValue(netip.PrefixFrom(ip, subnet.Bits()).String())}
	ips, _ := local.Get("ips")
	for _, item := range ips.Items() {
		text, _ := item.String()
		p, err := netip.ParsePrefix(text)
		if err == nil && p.Addr().Is4() != ip.Is4() || text == "addrconf" {
			list = append(list, item)
		}
	}
	return vmdoc.ArrayValue(list...)
}

// tagOf is a network's nic tag in the form of a NIC: on fabrics with the vnet.
func tagOf(n *log.Network) string {
	if n.Fabric {
		return n.NICTag + "/" + strconv.FormatUint(uint64(n.VNetID), 10)
	}
	return n.NICTag
}

// differing are the fields that have another value.
func differing(v vmdoc.Value, want []field) (differ []field) {
	for _, f := range want {
		if got, ok := v.Get(f.name); !ok || !got.Equal(f.value) {
			differ = append(differ, f)
		}
	}
	return differ
}

func boolean(b bool) vmdoc.Value {
	v, err := vmdoc.ParseValue(strconv.AppendBool(nil, b))
	if err != nil {
		panic("netsync: a boolean is no JSON")
	}
	return v
}

// number reads a small number, also one in quotes.
func number(v vmdoc.Value, name string) (uint32, bool) {
	f, ok := v.Get(name)
	if !ok {
		return 0, false
	}
	text, is := f.String()
	if !is {
		text = string(f.AppendJSON(nil))
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// apply makes the edit in a manifest. If the primary NIC is removed, the first of the
// rest becomes primary.
func (e *edit) apply(v vmdoc.Value) vmdoc.Value {
	nics, _ := v.Get("nics")
	var list []vmdoc.Value
	lost, has := false, false
	for _, nic := range nics.Items() {
		mac, err := log.ParseMAC(textOf(nic, "mac"))
		if err == nil && slices.Contains(e.remove, mac) {
			lost = lost || truth(nic, "primary")
			continue
		}
		for _, f := range e.nics[mac] {
			nic = nic.With(f.name, f.value)
		}
		has = has || truth(nic, "primary")
		list = append(list, nic)
	}
	if lost && !has && len(list) > 0 {
		list[0] = list[0].With("primary", boolean(true))
	}
	if len(e.remove)+len(e.nics) > 0 {
		v = v.With("nics", vmdoc.ArrayValue(list...))
	}
	for _, f := range e.fields {
		v = v.With(f.name, f.value)
	}
	return v
}
