package plan

import (
	"fmt"
	"strconv"
	"strings"

	"rutter/log"
)

// The kinds of link as the kernel calls them (IFLA_INFO_KIND, linux/if_link.h).
const (
	KindVXLAN   = "vxlan"
	KindVLAN    = "vlan"
	KindMacvlan = "macvlan"
	KindBridge  = "bridge"
	KindVeth    = "veth"
	KindTap     = "tun" // a tap: the kernel has one kind for it and for tunnels
)

const (
	vxlanPrefix  = "sdcvxl"
	vlanPrefix   = "vx"
	fabricPrefix = "fabric"
	bridgePrefix = "br"
	portPrefix   = "port"

	maxVNet   = 1<<24 - 1   // RFC 7348: 24 bits
	maxVLAN   = 4094        // IEEE 802.1Q: 4095 is reserved
	maxNumber = 999_999_999 // "fabric" and nine digits: IFNAMSIZ less the final zero
)

// VXLANName returns the name of a vnet's VXLAN device.
func VXLANName(vnet uint32) string { return vxlanPrefix + strconv.FormatUint(uint64(vnet), 10) }

// VLANName returns the name of the device of one VLAN of a vnet.
func VLANName(vnet uint32, vlan uint16) string {
	return fmt.Sprintf("%s%dv%d", vlanPrefix, vnet, vlan)
}

// FabricName returns the name of the fabric link with number n.
func FabricName(n uint32) string { return fabricPrefix + strconv.FormatUint(uint64(n), 10) }

// BridgeName returns the name of the bridge that joins the ports of one VLAN of a vnet (0:
// untagged), with port security.
func BridgeName(vnet uint32, vlan uint16) string {
	return fmt.Sprintf("%s%dv%d", bridgePrefix, vnet, vlan)
}

// PortName returns the name of the node's end of the veth pair whose other end is the
// fabric link with number n.
func PortName(n uint32) string { return portPrefix + strconv.FormatUint(uint64(n), 10) }

// TapMAC returns the address of the tap whose NIC has number n. It must not be the guest's,
// which the bridge would then take for its own, nor one that the hypervisor's process chose.
// Its first byte is the highest that is local and for one, as libvirt has it, so that no
// bridge takes it as the bridge's.
func TapMAC(n uint32) log.MAC {
	return log.MAC{0xfe, 0x72, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// ParentName returns the name of the link below a fabric link: the VLAN's, or
// the VXLAN's for an untagged fabric (VLAN 0).
func ParentName(vnet uint32, vlan uint16) string {
	if vlan == 0 {
		return VXLANName(vnet)
	}
	return VLANName(vnet, vlan)
}

// KindOfName returns the kind that belongs to a name of ours, or "" if we never give
// that name. That of a fabric link is KindMacvlan, also if the link is the end of a veth
// pair; KindVeth is that of a pair's end in the node's namespace.
func KindOfName(name string) string {
	if digits, ok := strings.CutPrefix(name, vxlanPrefix); ok && isNumber(digits, 0, maxVNet) {
		return KindVXLAN
	}
	if _, ok := FabricNumber(name); ok {
		return KindMacvlan
	}
	if _, ok := PortNumber(name); ok {
		return KindVeth
	}
	if _, _, ok := segmentOfName(name); ok {
		return KindBridge
	}
	if rest, ok := strings.CutPrefix(name, vlanPrefix); ok {
		vnet, vlan, ok := strings.Cut(rest, "v")
		if ok && isNumber(vnet, 0, maxVNet) && isNumber(vlan, 1, maxVLAN) {
			return KindVLAN
		}
	}
	return ""
}

// segmentOfName returns the vnet and the VLAN in the name of a bridge.
func segmentOfName(name string) (vnet uint32, vlan uint16, ok bool) {
	rest, ok := strings.CutPrefix(name, bridgePrefix)
	if !ok {
		return 0, 0, false
	}
	left, right, ok := strings.Cut(rest, "v")
	if !ok || !isNumber(left, 0, maxVNet) || !isNumber(right, 0, maxVLAN) {
		return 0, 0, false
	}
	a, _ := strconv.ParseUint(left, 10, 32) // isNumber has parsed both
	b, _ := strconv.ParseUint(right, 10, 16)
	return uint32(a), uint16(b), true
}

// VNetOfName returns the vnet that is in the name of a VXLAN or VLAN device, or of a
// bridge.
func VNetOfName(name string) (uint32, bool) {
	if vnet, _, ok := segmentOfName(name); ok {
		return vnet, true
	}
	digits, ok := strings.CutPrefix(name, vxlanPrefix)
	if !ok {
		if digits, ok = strings.CutPrefix(name, vlanPrefix); !ok {
			return 0, false
		}
		digits, _, _ = strings.Cut(digits, "v")
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// FabricNumber returns N of a fabric<N>.
func FabricNumber(name string) (uint32, bool) { return numberIn(name, fabricPrefix) }

// PortNumber returns N of a port<N>.
func PortNumber(name string) (uint32, bool) { return numberIn(name, portPrefix) }

func numberIn(name, prefix string) (uint32, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || !isNumber(digits, 0, maxNumber) {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// isNumber reports whether text is a decimal number in [low, high] as we print it: no
// sign, no leading zero. fabric01 is not a name for fabric1.
func isNumber(text string, low, high uint64) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return err == nil && n >= low && n <= high && strconv.FormatUint(n, 10) == text
}

// CheckNamespace refuses what cannot be one element of a path.
func CheckNamespace(name string) error {
	if name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%w: %q is no name of a network namespace", ErrNoNamespace, name)
	}
	return nil
}
