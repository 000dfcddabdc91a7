package desired

import (
	"fmt"
	"net/netip"
	"strings"

	"rutter/log"
)

// KernelQuery asks a CN what its kernel has of the way from one of its NICs to another
// address.
type KernelQuery struct {
	NIC  log.MAC    // of the CN
	IP   netip.Addr // of the other end; invalid: it has none
	MAC  log.MAC    // of the other end's NIC
	VTEP netip.Addr // of the other end's CN; invalid: it is the same CN
}

// kernelPath begins the path of requests with a KernelQuery.
const kernelPath = "/kernel/"

// Path is the path of the request for q to an agent: /kernel/NIC/MAC/IP/VTEP, with - for
// an address that is not valid.
func (q KernelQuery) Path() string {
	text := func(a netip.Addr) string {
		if !a.IsValid() {
			return "-"
		}
		return a.String()
	}
	return kernelPath + strings.Join([]string{q.NIC.String(), q.MAC.String(), text(q.IP), text(q.VTEP)}, "/")
}

// ParseKernelQuery reads a path that KernelQuery.Path made. is is false if the path is
// another one.
func ParseKernelQuery(path string) (q KernelQuery, is bool, err error) {
	rest, is := strings.CutPrefix(path, kernelPath)
	if !is {
		return q, false, nil
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 {
		return q, true, fmt.Errorf("%s: want NIC/MAC/IP/VTEP after it", kernelPath)
	}
	if q.NIC, err = log.ParseMAC(parts[0]); err != nil {
		return q, true, fmt.Errorf("NIC: %w", err)
	}
	if q.MAC, err = log.ParseMAC(parts[1]); err != nil {
		return q, true, fmt.Errorf("MAC: %w", err)
	}
	for i, into := range []*netip.Addr{&q.IP, &q.VTEP} {
		if text := parts[2+i]; text != "-" {
			if *into, err = netip.ParseAddr(text); err != nil {
				return q, true, fmt.Errorf("address: %w", err)
			}
		}
	}
	return q, true, nil
}

// Roles of a KernelLink, in the order from the VM to the underlay.
const (
	RoleVM     = "fabric"   // in the VM's namespace
	RoleHost   = "host end" // of that link, with port security
	RoleTap    = "tap"      // instead of both, where a hypervisor has the other end
	RoleBridge = "bridge"
	RoleVLAN   = "vlan"
	RoleVXLAN  = "vxlan"
)

// Bounds of a KernelView.
const (
	MaxKernelLinks     = 8
	MaxKernelAddresses = 32
	MaxKernelUnknown   = 16
	MaxKernelText      = 256 // bytes of one text
	MaxKernelReasons   = 32  // of drops
)

// KernelView is what the kernel of a CN has of the way that a KernelQuery asks for. It is
// bounded: see the constants.
type KernelView struct {
	NIC       log.MAC `json:"mac"`
	Namespace string  `json:"namespace"` // of the VM; "" is the node's own, or the NIC has a tap
	// OnDemand: entries of the vnet are programmed when the kernel asks for them.
	OnDemand  bool           `json:"on_demand"`
	Links     []KernelLink   `json:"links"`
	Addresses []netip.Prefix `json:"addresses"` // of the fabric link
	// Neighbour and Forward are the entries for the other end; nil: there is none.
	Neighbour *KernelNeigh   `json:"neighbour"`
	Forward   *KernelForward `json:"forward"`
	Security  KernelSecurity `json:"port_security"`
	// Drops are the packets that were dropped at the port, and Underlay those that were
	// dropped at the underlay of the node, by reason, since the rules were made.
	Drops    map[string]uint64 `json:"drops"`
	Underlay map[string]uint64 `json:"underlay_drops"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// KernelLink is one link on the way, with its counters since it was made.
type KernelLink struct {
	Role   string  `json:"role"`
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`
	MAC    log.MAC `json:"mac"`
	MTU    uint32  `json:"mtu"` // bytes
	Up     bool    `json:"up"`
	Master string  `json:"master,omitempty"` // the bridge that it is a port of

	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	RxErrors  uint64 `json:"rx_errors"`
	TxErrors  uint64 `json:"tx_errors"`
	RxDropped uint64 `json:"rx_dropped"`
	TxDropped uint64 `json:"tx_dropped"`
	// Closed: it is a tap that no program has open.
	Closed bool `json:"closed,omitempty"`
}

// KernelNeigh is a neighbour entry of the fabric link.
type KernelNeigh struct {
	MAC   log.MAC `json:"mac,omitzero"`
	State string  `json:"state"` // as ip-neighbour(8) names it, in lower case
}

// KernelForward is a forwarding entry of the VXLAN device.
type KernelForward struct {
	VTEP netip.Addr `json:"vtep"`
	Port uint16     `json:"port,omitempty"` // 0: the device's
}

// Modes of port security on a node.
const (
	SecurityEnforced    = "enforced"
	SecurityOff         = "off"         // links are attached without it
	SecurityUnsupported = "unsupported" // it is on, and the kernel cannot hold the rules
)

// KernelSecurity is what the kernel holds of port security for the NIC.
type KernelSecurity struct {
	Mode string `json:"mode"`
	Why  string `json:"why,omitempty"` // it is not enforced
	// Rules are those of the NIC's port; nil: it has none.
	Rules *KernelRules `json:"rules"`
	// Peer: VXLAN packets of the vnet are taken from the other end's CN. nil: not asked.
	Peer *bool `json:"peer,omitempty"`
}

// KernelRules are the rules of one port.
type KernelRules struct {
	Port      string       `json:"port"` // the host end
	MAC       log.MAC      `json:"mac"`
	Addresses []netip.Addr `json:"addresses"`
	Relaxed   []string     `json:"relaxed,omitempty"` // see Security.Relaxed
}

// Relaxed names what s allows beside what each port may send, as the log's fields do:
// allow_mac_spoofing and so on, in the order of their names.
func (s Security) Relaxed() (names []string) {
	for _, one := range []struct {
		name string
		is   bool
	}{
		{"allow_dhcp_spoofing", s.DHCPServer},
		{"allow_ip_spoofing", s.AnyIP},
		{"allow_mac_spoofing", s.AnyMAC},
		{"allow_restricted_traffic", s.AnyTraffic},
	} {
		if one.is {
			names = append(names, one.name)
		}
	}
	return names
}

// SecurityOf is what the log says of the frames of a NIC.
func SecurityOf(nic *log.NIC) Security {
	return Security{
		AnyMAC: nic.AllowMACSpoofing, AnyIP: nic.AllowIPSpoofing, DHCPServer: nic.AllowDHCPSpoofing,
		AnyTraffic: nic.AllowRestrictedTraffic, Promiscuous: nic.AllowUnfilteredPromisc,
	}
}
