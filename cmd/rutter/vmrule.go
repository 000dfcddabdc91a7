package main

import (
	"context"
	"fmt"
	"net/netip"

	"rutter/agent/vminfo"
	"rutter/api/client"
	"rutter/api/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
)

// ruled holds an update of a manifest against the rule of package vmrule: it
// returns the fields that the manifest gets, and what the log must be told of
// NICs first. Fields that are sent as they are change nothing.
func ruled(manifest, fields vminfo.Value) (vminfo.Value, []log.Op, error) {
	vm := vmrule.VM{}
	own := make(map[log.MAC]vminfo.Value)
	nics, _ := manifest.Get("nics")
	for _, nic := range nics.Items() {
		mac, err := log.ParseMAC(stringOf(nic, "mac"))
		if err != nil {
			continue
		}
		own[mac] = nic
		if network, err := log.ParseUUID(stringOf(nic, "network_uuid")); err == nil {
			vm.Networks = append(vm.Networks, network)
		}
	}
	added := make(map[log.MAC]bool)
	vm.Network = func(mac log.MAC) (network log.UUID, _ netip.Prefix, ok bool) {
		nic, ok := own[mac]
		network, _ = log.ParseUUID(stringOf(nic, "network_uuid")) // zero: it does not say
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
		return fields, nil, err
	}
	return withUpdatedNICs(manifest, fields), vmapi.Ops(u), nil
}

// changesOfNIC leaves of a NIC of a new list what is not as it was. A NIC that
// the VM does not have yet may have anything.
func changesOfNIC(nic vminfo.Value, own map[log.MAC]vminfo.Value, added map[log.MAC]bool) vminfo.Value {
	mac, err := log.ParseMAC(stringOf(nic, "mac"))
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

// withUpdatedNICs puts update_nics into the list of NICs.
func withUpdatedNICs(manifest, fields vminfo.Value) vminfo.Value {
	updates, ok := fields.Get("update_nics")
	if !ok {
		return fields
	}
	nics, _ := manifest.Get("nics")
	if given, ok := fields.Get("nics"); ok {
		nics = given
	}
	list := append([]vminfo.Value(nil), nics.Items()...)
	for _, update := range updates.Items() {
		for i := range list {
			if stringOf(list[i], "mac") != stringOf(update, "mac") {
				continue
			}
			for _, name := range update.Keys() {
				field, _ := update.Get(name)
				list[i] = list[i].With(name, field)
			}
		}
	}
	return fields.Without("update_nics").With("nics", vminfo.ArrayValue(list...))
}

// tellLog has the log take what an update asks of NICs.
func (a *vmAct) tellLog(ctx context.Context, ops []log.Op) error {
	if len(ops) == 0 {
		return nil
	}
	api, err := newClient(a.c)
	if err != nil {
		return err
	}
	if _, err := api.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		return fmt.Errorf("its NICs in the log: %w", err)
	}
	return nil
}
