package manifests

import (
	"cmp"
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
	exit      exit
	cn        log.UUID                   // zero: not shown
	memory    int64                      // bytes; 0 no limit; -1: no cgroup
	addresses map[log.MAC][]netip.Prefix // of the links in the namespace; nil: not read
	qemu      bool                       // QEMU runs it, or would
	machine   *machine                   // what QEMU says of it; nil: it is not followed
}

// compose makes the VM of a manifest and the observed state, without last_modified.
func compose(m system.Manifest, f observed) vmdoc.Value {
	v := m.Value.Without(vmdoc.LastModified).Without("transition_to")
	state, zoneState := stateOf(v.Text("state"), f)
	v = v.With("zonename", vmdoc.StringValue(m.Zone)).With("state", vmdoc.StringValue(state)).With("zone_state", vmdoc.StringValue(zoneState))
	for _, name := range observedFields {
		v = v.Without(name)
	}
	if f.pid > 0 {
		v = v.With("pid", vmdoc.IntValue(int64(f.pid))).With("boot_timestamp", vmdoc.StringValue(vmdoc.FormatDate(f.boot)))
	} else if !f.exit.at.IsZero() {
		if f.exit.known {
			v = v.With("exit_status", vmdoc.IntValue(int64(f.exit.status)))
		}
		v = v.With("exit_timestamp", vmdoc.StringValue(vmdoc.FormatDate(f.exit.at)))
		if f.exit.reason != "" {
			v = v.With(vmdoc.ExitReason, vmdoc.StringValue(f.exit.reason))
		}
	}
	if f.pid > 0 && f.machine != nil {
		v = v.With("qemu_state", vmdoc.StringValue(f.machine.state()))
	}
	if !f.cn.IsZero() {
		v = v.With("server_uuid", vmdoc.StringValue(f.cn.String()))
	}
	// An empty cgroup without a limit is still being made.
	if f.memory > 0 || f.memory == 0 && f.pid > 0 {
		v = v.With("max_physical_memory", vmdoc.IntValue(f.memory/system.Mebi))
	}
	v = vmdoc.Completed(v)
	nics, _ := v.Get("nics")
	list := vmdoc.CompletedNICs(nics.Items(), v.Text("brand"))
	if f.qemu {
		for i, nic := range list {
			list[i] = withTap(nic)
		}
	}
	if f.addresses != nil {
		for i, nic := range list {
			list[i] = withAddresses(nic, f.addresses)
		}
	}
	return v.With("nics", vmdoc.ArrayValue(list...))
}

// observedFields are never the manifest's.
var observedFields = []string{"pid", "boot_timestamp", "exit_status", "exit_timestamp", vmdoc.ExitReason, "qemu_state"}

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

// withAddresses puts the addresses of its link beside the wanted ones of a NIC.
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
	return nic.With(vmdoc.KernelIPs, vmdoc.ArrayValue(ips...))
}

// withTap is a NIC of a VM that QEMU runs. One whose attach is wrong stays as it is: the
// VM's start is refused with the reason.
func withTap(nic vmdoc.Value) vmdoc.Value {
	attach, err := system.QEMUAttach(nic)
	if err != nil {
		return nic
	}
	return nic.With(vmdoc.AttachField, attach.Value())
}
