package vmhost

import (
	"context"
	"fmt"
	"net/netip"

	"rutter/agent/vminfo"
	"rutter/api/client"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
)

// StringOf is a field of a VM or NIC that is text; "" if it is none.
func StringOf(v vminfo.Value, name string) string {
	field, _ := v.Get(name)
	s, _ := field.String()
	return s
}

// FieldValue is JSON if it reads as such, and the field is no text.
func FieldValue(name, value string) vminfo.Value {
	switch name {
	case "alias", "hostname", "zonename", "brand", "dns_domain", "uuid":
		return vminfo.StringValue(value)
	}
	if v, err := vminfo.ParseValue([]byte(value)); err == nil {
		return v
	}
	return vminfo.StringValue(value)
}

// CheckUpdate holds an update of a manifest against the rule of package vmrule: it
// returns what the log must be told of NICs first. Fields that are sent as they
// are change nothing.
func CheckUpdate(manifest, fields vminfo.Value) ([]log.Op, error) {
	vm := vmrule.VM{}
	own := make(map[log.MAC]vminfo.Value)
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
		network, _ = log.ParseUUID(StringOf(nic, "network_uuid")) // zero: it does not say
		return network, netip.Prefix{}, ok || added[mac]
	}
	asked := fields
	if list, ok := fields.Get("nics"); ok {
		changed := make([]vminfo.Value, 0, len(list.Items()))
		for _, nic := range list.Items() {
			changed = append(changed, changesOfNIC(nic, own, added))
		}
		asked = asked.With("nics", vminfo.ArrayValue(changed...))
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

// TaskRule is CheckUpdate for updates that come as tasks: it has the log take what
// they ask of NICs.
func TaskRule(api *client.Client) func(context.Context, vminfo.Value, vminfo.Value) error {
	return func(ctx context.Context, manifest, fields vminfo.Value) error {
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

// changesOfNIC leaves of a NIC of a new list what is not as it was. A NIC that
// the VM does not have yet may have anything.
func changesOfNIC(nic vminfo.Value, own map[log.MAC]vminfo.Value, added map[log.MAC]bool) vminfo.Value {
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
