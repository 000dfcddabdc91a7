package manifests

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// observed is the running state of a VM. For what does not run, the manifest's values
// are used: they apply at the next start.
type observed struct {
	namespace bool
	pid       int // of the init process; 0: none runs
	boot      time.Time
	memory    int64                      // bytes; 0 no limit; -1: no cgroup
	addresses map[log.MAC][]netip.Prefix // of the links in the namespace; nil: not read
}

// compose makes the VM of a manifest and the observed state, without last_modified.
func compose(m system.Manifest, f observed) vmdoc.Value {
	v := m.Value.Without(vmdoc.LastModified).Without("transition_to")
	state, zoneState := stateOf(v.Text("state"), f)
	v = v.With("zonename", vmdoc.StringValue(m.Zone)).With("state", vmdoc.StringValue(state)).With("zone_state", vmdoc.StringValue(zoneState))
	v = v.Without("pid").Without("boot_timestamp")
	if f.pid > 0 {
		v = v.With("pid", vmdoc.IntValue(int64(f.pid))).With("boot_timestamp", vmdoc.StringValue(vmdoc.FormatDate(f.boot)))
	}
	// An empty cgroup without a limit is still being made.
	if f.memory > 0 || f.memory == 0 && f.pid > 0 {
		v = v.With("max_physical_memory", vmdoc.IntValue(f.memory/system.Mebi))
	}
	if nics, ok := v.Get("nics"); ok && f.addresses != nil {
		list := make([]vmdoc.Value, len(nics.Items()))
		for i, nic := range nics.Items() {
			list[i] = withAddresses(nic, f.addresses)
		}
		v = v.With("nics", vmdoc.ArrayValue(list...))
	}
	return v
}

// stateOf returns VMAPI's name of the observed state. A VM that does not run may be one
// that is being made; only its maker knows.
func stateOf(wanted string, f observed) (state, zoneState string) {
	switch {
	case f.pid > 0 && f.namespace:
		return "running", "running"
	case f.pid > 0:
		return "stopping", "shutting_down" // its namespace is gone already
	case f.namespace:
		zoneState = "ready"
	default:
		zoneState = "installed"
	}
	switch wanted {
	case "provisioning", "receiving", "failed":
		return wanted, zoneState
	}
	return "stopped", zoneState
}

// withAddresses replaces the addresses of a NIC in the manifest by those of its link.
func withAddresses(nic vmdoc.Value, links map[log.MAC][]netip.Prefix) vmdoc.Value {
	mac, err := log.ParseMAC(nic.Text("mac"))
	if err != nil {
		return nic // ParseManifest excludes this
	}
	prefixes := slices.Clone(links[mac])
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	ips := make([]vmdoc.Value, len(prefixes))
	for i, p := range prefixes {
		ips[i] = vmdoc.StringValue(p.String())
	}
	nic = nic.Without("ip").Without("netmask").With("ips", vmdoc.ArrayValue(ips...))
	for _, p := range prefixes {
		if p.Addr().Is4() {
			mask := net.IP(net.CIDRMask(p.Bits(), 32)).String()
			return nic.With("ip", vmdoc.StringValue(p.Addr().String())).With("netmask", vmdoc.StringValue(mask))
		}
	}
	return nic
}
