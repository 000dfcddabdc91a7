package vmdoc

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// KernelIPs is the field of a NIC with the addresses, ADDRESS/BITS, that its link has now.
// ip, ips and netmask are the wanted ones. It is not there while the VM has no network
// namespace; SmartOS has no such field.
const KernelIPs = "kernel_ips"

// ExitReason is the field of a VM that does not run with QEMU's word for why it ended
// (ShutdownCause of qapi/run-state.json), such as GuestShutdown; absent if QEMU said none.
const ExitReason = "exit_reason"

// Values of ExitReason about which the node knows more than the word.
const (
	GuestShutdown = "guest-shutdown" // the guest switched itself off
	GuestReset    = "guest-reset"    // it rebooted, and qemu_extra_opts say that this is the end
	GuestPanic    = "guest-panic"    // its kernel reported that it cannot go on
)

// CompletedNICs returns the NICs of a VM of that brand with the fields that SmartOS shows
// of every NIC: interface by place; ip, netmask and ips from one another; gateways from
// gateway; and the first is primary if none is.
func CompletedNICs(nics []Value, brand string) []Value {
	prefix := "net"
	if brand == "lx" {
		prefix = "eth"
	}
	list, primary := make([]Value, len(nics)), false
	for i, nic := range nics {
		c := completion{v: nic}
		c.v.keys, c.v.items = make([]string, 0, len(nic.keys)+completedNIC), make([]Value, 0, len(nic.keys)+completedNIC)
		for j, key := range nic.keys {
			if key != KernelIPs && !nic.items[j].IsNull() {
				c.add(key, nic.items[j])
			}
		}
		c.missing("interface", StringValue(prefix+strconv.Itoa(i)))
		c.addresses()
		list[i] = c.v
		primary = primary || IsTrue(nic, "primary")
	}
	if !primary && len(list) > 0 {
		list[0] = list[0].With("primary", BoolValue(true))
	}
	return list
}

// completedNIC is how many fields CompletedNICs may add to one.
const completedNIC = 7

// IsTrue reads a boolean field of an object in vmadm's forms: true, "true", 1, "1".
func IsTrue(v Value, name string) bool {
	field, _ := v.Get(name)
	return field.kind == kindBool && field.text != "" || field.Literal() == "true" || field.Literal() == "1"
}

// addresses adds ip and netmask from ips, or ips from those.
func (c *completion) addresses() {
	if gateway := c.v.Text("gateway"); gateway != "" {
		c.missing("gateways", ArrayValue(StringValue(gateway)))
	}
	ips, has := c.v.Get("ips")
	if !has {
		c.add("ips", ArrayValue(ownAddress(c.v)...))
		return
	}
	for _, item := range ips.Items() {
		text, _ := item.String()
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		c.missing("ip", StringValue(prefix.Addr().String()))
		if c.v.Text("ip") == prefix.Addr().String() {
			c.missing("netmask", StringValue(net.IP(net.CIDRMask(prefix.Bits(), 32)).String()))
		}
		return
	}
}

// ownAddress is the address of a NIC without ips: its ip with the length of its netmask,
// or that of a host's address; dhcp and addrconf as they are.
func ownAddress(nic Value) []Value {
	text := nic.Text("ip")
	address, err := netip.ParseAddr(text)
	if err != nil {
		if text == "dhcp" || text == "addrconf" {
			return []Value{StringValue(text)}
		}
		return nil
	}
	bits := address.BitLen()
	if mask, err := netip.ParseAddr(nic.Text("netmask")); err == nil && mask.Is4() && address.Is4() {
		if ones, size := net.IPMask(mask.AsSlice()).Size(); size != 0 {
			bits = ones
		}
	}
	return []Value{StringValue(netip.PrefixFrom(address.WithZone(""), bits).String())}
}

// Addressed reports whether the link of each NIC of a VM has an address: see Unaddressed.
func Addressed(vm Value) bool { return len(Unaddressed(vm)) == 0 }

// Unaddressed returns those NICs of a VM, as MAC and NIC tag, whose link has no address: by
// KernelIPs, or where that is not known by ips. NICs that are OffFabric have no link to
// wait for, and one with a tap needs no address on it: the guest has it.
func Unaddressed(vm Value) (nics []string) {
	all, _ := vm.Get("nics")
	for _, nic := range all.Items() {
		if attach, _, _ := AttachOf(nic); attach.Kind == AttachTap { // others are counted
			continue
		}
		ips, known := nic.Get(KernelIPs)
		if !known {
			ips, _ = nic.Get("ips")
		}
		if len(ips.Items()) > 0 || OffFabric(nic) {
			continue
		}
		text := nic.Text("mac")
		if tag := nic.Text("nic_tag"); tag != "" {
			text += " on " + tag
		}
		nics = append(nics, text)
	}
	return nics
}

// OffFabric reports whether a NIC is on a network that is on no fabric: its NIC tag names
// no vnet (admin, external). Rutter makes no link of such a NIC; who wants one puts it
// into the VM's namespace. A NIC whose network is not known may be on a fabric: the
// agent writes network_uuid and nic_tag of NICs in the log into their manifests.
func OffFabric(nic Value) bool {
	tag := nic.Text("nic_tag")
	return nic.Text("network_uuid") != "" && tag != "" && !strings.Contains(tag, "/")
}
