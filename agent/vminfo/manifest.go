package vminfo

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
)

// lastModified is the field that says when a VM changed last. Its own change is
// none (vminfod sets it silently).
const lastModified = "last_modified"

// maxManifest bounds a manifest in bytes; real ones have a few thousand, and
// metadata can make them grow.
const maxManifest = 1 << 20

// manifest is what somebody wants a VM to be: vmadm's JSON.
type manifest struct {
	value Value
	uuid  log.UUID
	zone  string
	nics  bool // it has some
}

// parseManifest reads a manifest. It asks for what is needed to watch the VM,
// and passes the rest on as it is.
func parseManifest(text []byte) (manifest, error) {
	if len(text) == 0 {
		return manifest{}, errors.New("vminfo: an empty manifest: write it whole beside the folder, then rename it into it")
	}
	v, err := ParseValue(text)
	if err != nil {
		return manifest{}, err
	}
	vm, err := identify(v)
	if err != nil {
		return manifest{}, err
	}
	if zone, ok := v.Get("zonename"); ok {
		if _, isText := zone.String(); !isText {
			return manifest{}, errors.New("vminfo: zonename is no string")
		}
	}
	nics, ok := v.Get("nics")
	if ok && nics.kind != kindArray {
		return manifest{}, errors.New("vminfo: nics is no array")
	}
	for i, nic := range nics.Items() {
		if !nic.IsObject() {
			return manifest{}, fmt.Errorf("vminfo: nics.%d is no object", i)
		}
		if _, err := log.ParseMAC(nic.textOf("mac")); err != nil {
			return manifest{}, fmt.Errorf("vminfo: nics.%d.mac: %w", i, err)
		}
	}
	return manifest{value: v, uuid: vm.UUID, zone: vm.Zonename, nics: len(nics.Items()) > 0}, nil
}

// facts are what really is there of a VM. What is not there leaves the word to
// the manifest: it says what will be at the next start.
type facts struct {
	namespace bool
	pid       int // of the init process; 0: none runs
	boot      time.Time
	memory    int64                      // bytes; 0 no limit; -1: no cgroup
	addresses map[log.MAC][]netip.Prefix // of the links in the namespace; nil: not looked at
}

const mebi = 1 << 20

// compose makes the VM of a manifest and the facts, without last_modified.
func compose(m manifest, f facts) Value {
	v := m.value.Without(lastModified).Without("transition_to")
	state, zoneState := stateOf(v.textOf("state"), f)
	v = v.With("zonename", StringValue(m.zone)).With("state", StringValue(state)).With("zone_state", StringValue(zoneState))
	v = v.Without("pid").Without("boot_timestamp")
	if f.pid > 0 {
		v = v.With("pid", IntValue(int64(f.pid))).With("boot_timestamp", StringValue(formatDate(f.boot)))
	}
	// A cgroup without a limit, and nobody in it, is one that is being made.
	if f.memory > 0 || f.memory == 0 && f.pid > 0 {
		v = v.With("max_physical_memory", IntValue(f.memory/mebi))
	}
	if nics, ok := v.Get("nics"); ok && f.addresses != nil {
		list := make([]Value, len(nics.Items()))
		for i, nic := range nics.Items() {
			list[i] = withAddresses(nic, f.addresses)
		}
		v = v.With("nics", ArrayValue(list...))
	}
	return v
}

// stateOf names what is there as VMAPI names it. A VM that does not run may be
// one that is being made: only its maker knows.
func stateOf(wanted string, f facts) (state, zoneState string) {
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

// withAddresses puts the addresses that the link of a NIC has, in place of
// those that the manifest names.
func withAddresses(nic Value, links map[log.MAC][]netip.Prefix) Value {
	mac, err := log.ParseMAC(nic.textOf("mac"))
	if err != nil {
		return nic // parseManifest does not let it happen
	}
	prefixes := slices.Clone(links[mac])
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	ips := make([]Value, len(prefixes))
	for i, p := range prefixes {
		ips[i] = StringValue(p.String())
	}
	nic = nic.Without("ip").Without("netmask").With("ips", ArrayValue(ips...))
	for _, p := range prefixes {
		if p.Addr().Is4() {
			mask := net.IP(net.CIDRMask(p.Bits(), 32)).String()
			return nic.With("ip", StringValue(p.Addr().String())).With("netmask", StringValue(mask))
		}
	}
	return nic
}
