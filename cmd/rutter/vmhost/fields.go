package vmhost

import (
	"context"
	"fmt"
	"net/netip"

	"rutter/agent/vminfo/vmdoc"

	"rutter/api/client"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
)

// StringOf is a field of a VM or NIC that is text; "" if it is none.
func StringOf(v vmdoc.Value, name string) string {
	field, _ := v.Get(name)
	s, _ := field.String()
	return s
}

// FieldValue is JSON if it reads as such, and the field is no text.
func FieldValue(name, value string) vmdoc.Value {
	switch name {
	case "alias", "hostname", "zonename", "brand", "dns_domain", "uuid":
		return vmdoc.StringValue(value)
	}
	if v, err := vmdoc.ParseValue([]byte(value)); err == nil {
		return v
	}
	return vmdoc.StringValue(value)
}

// CheckUpdate checks an update of a manifest by package vmrule. It returns the changes
// of NICs that must be in the log first. Fields with their present value change
// nothing.
func CheckUpdate(manifest, fields vmdoc.Value) ([]log.Op, error) {
	vm := vmrule.VM{}
	own := make(map[log.MAC]vmdoc.Value)
	nics, _ := manifest.Get("nics")
	for _, nic := range nics.Items() {
		mac, err := log.ParseMAC(StringOf(nic, "mac"))
		if err != nil {
			continue
		}
		own[mac] = nic
		if network, err := log.ParseUUID(StringOf(nic, "network_uuid")); err == nil {
			vm.Networks = append(vm.Networks, network)
		}
	}
	added := make(map[log.MAC]bool)
	vm.Network = func(mac log.MAC) (network log.UUID, _ netip.Prefix, ok bool) {
		nic, ok := own[mac]
		network, _ = log.ParseUUID(StringOf(nic, "network_uuid")) // zero: it names none
		return network, netip.Prefix{}, ok || added[mac]
	}
	asked := fields
	if list, ok := fields.Get("nics"); ok {
		changed := make([]vmdoc.Value, 0, len(list.Items()))
		for _, nic := range list.Items() {
			changed = append(changed, changesOfNIC(nic, own, added))
		}
		asked = asked.With("nics", vmdoc.ArrayValue(changed...))
	}
	for _, name := range fields.Keys() {
		field, _ := fields.Get(name)
		if before, ok := manifest.Get(name); ok && name != "nics" && before.Equal(field) {
			asked = asked.Without(name)
		}
	}
	u, err := vmrule.Check(asked.AppendJSON(nil), vm)
	if err != nil {
		return nil, err
	}
	return vmapi.Ops(u), nil
}

// TaskRule is CheckUpdate for updates that come as tasks. It writes the changes of NICs
// to the log.
func TaskRule(api *client.Client) func(context.Context, vmdoc.Value, vmdoc.Value) error {
	return func(ctx context.Context, manifest, fields vmdoc.Value) error {
		ops, err := CheckUpdate(manifest, fields)
		if err != nil || len(ops) == 0 {
			return err
		}
		if _, err := api.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
			return fmt.Errorf("its NICs in the log: %w", err)
		}
		return nil
	}
}

// changesOfNIC returns the fields of a NIC of a new list that differ from the present
// ones. A NIC that the VM does not have yet keeps all fields.
func changesOfNIC(nic vmdoc.Value, own map[log.MAC]vmdoc.Value, added map[log.MAC]bool) vmdoc.Value {
	mac, err := log.ParseMAC(StringOf(nic, "mac"))
	before, had := own[mac]
	added[mac] = err == nil && !had
	for _, name := range nic.Keys() {
		field, _ := nic.Get(name)
		if was, ok := before.Get(name); name != "mac" && (added[mac] || ok && was.Equal(field)) {
			nic = nic.Without(name)
		}
	}
	return nic
}
