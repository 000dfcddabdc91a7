package netsync

import (
	"net/netip"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// VM is a VM of the compute node.
type VM struct {
	UUID  log.UUID
	Owner log.UUID // zero: not in its manifest
	State string   // as vminfod names it
	// HandsOff: do_not_inventory. The VM is being moved; nothing of it is changed.
	HandsOff bool
	// Placed: the log says on which node the VM is, and its source follows that. Its NICs are
	// not taken from another node.
	Placed bool
	// Manifest is what its next start uses; null if another program has the manifests,
	// so that they are not written.
	Manifest vmdoc.Value
	NICs     []NIC
}

// NIC is one of a VM's, in the manifest's order.
type NIC struct {
	MAC    log.MAC
	Fields vmdoc.Value
}

// VMOf reads a VM: shown is vminfod's form, manifest the written one (null: unknown).
// NICs without a MAC are left out.
func VMOf(shown, manifest vmdoc.Value) (VM, error) {
	id, err := log.ParseUUID(textOf(shown, "uuid"))
	if err != nil {
		return VM{}, err
	}
	vm := VM{UUID: id, State: textOf(shown, "state"), HandsOff: truth(shown, "do_not_inventory"), Manifest: manifest}
	vm.Owner, _ = log.ParseUUID(textOf(shown, "owner_uuid")) // zero: the log keeps its own
	source := shown
	if !manifest.IsNull() {
		source = manifest // vminfod shows the current addresses of the links
	}
	nics, _ := source.Get("nics")
	for _, fields := range nics.Items() {
		if mac, err := log.ParseMAC(textOf(fields, "mac")); err == nil {
			vm.NICs = append(vm.NICs, NIC{MAC: mac, Fields: fields})
		}
	}
	return vm, nil
}

// settled: the VM is not being made, so its parts are final.
func (v *VM) settled() bool {
	switch v.State {
	case "provisioning", "receiving", "configured", "incomplete", "":
		return false
	}
	return true
}

// editable: its manifest may be written (spec/net-agent.md §2.2).
func (v *VM) editable() bool {
	return !v.Manifest.IsNull() && (v.State == "running" || v.State == "stopped")
}

// nicState is the state of its NICs.
func (v *VM) nicState() string {
	if v.State == "running" {
		return "running"
	}
	return "stopped"
}

// primary is its primary NIC: the first that is marked; there is only one.
func (v *VM) primary() (log.MAC, bool) {
	for _, nic := range v.NICs {
		if truth(nic.Fields, "primary") {
			return nic.MAC, true
		}
	}
	return log.MAC{}, false
}

// textOf is a field that is a string; "" if it is none.
func textOf(v vmdoc.Value, name string) string {
	field, _ := v.Get(name)
	text, _ := field.String()
	return text
}

// truth reads a boolean in vmadm's different forms: true, "true", 1, "1" are true;
// everything else, and a missing value, is false.
func truth(v vmdoc.Value, name string) bool {
	field, ok := v.Get(name)
	if !ok {
		return false
	}
	if text, is := field.String(); is {
		return text == "true" || text == "1"
	}
	switch string(field.AppendJSON(nil)) {
	case "true", "1":
		return true
	}
	return false
}

// addressOf is the address in a NIC's manifest: ip, or the first of ips.
func addressOf(nic vmdoc.Value) netip.Addr {
	if ip, err := netip.ParseAddr(textOf(nic, "ip")); err == nil {
		return ip.Unmap()
	}
	ips, _ := nic.Get("ips")
	for _, item := range ips.Items() {
		text, _ := item.String()
		if p, err := netip.ParsePrefix(text); err == nil {
			return p.Addr().Unmap()
		}
	}
	return netip.Addr{} // dhcp, addrconf, or none
}
