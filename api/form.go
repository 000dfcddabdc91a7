package api

import (
	"net"
	"net/netip"
	"strconv"

	"rutter/log"
	"rutter/projections"
)

// shown is an object with what its form shows of other objects, all of one state. It
// may be used after the view of the state, because objects are immutable.
type shown struct {
	object  log.Object
	network *log.Network // of a NIC, if it is known
}

func show(state *projections.State, o log.Object) shown {
	switch o := o.(type) {
	case *log.NIC:
		return shown{o, state.WithGateway(networkOf(state, o))}
	case *log.Network:
		return shown{object: state.WithGateway(o)}
	case *log.VM:
		return shown{object: vmForm(state, o)}
	}
	return shown{object: o}
}

// form returns the object in NAPI's form, in which NICs include fields of their network
// (spec/napi.md section 3.1).
func (s shown) form() any {
	switch o := s.object.(type) {
	case *log.Network:
		return formOfNetwork(o)
	case *log.NIC:
		return formOfNIC(o, s.network)
	}
	return s.object
}

// networkForm is a network in an answer.
type networkForm struct {
	*log.Network
	Netmask   string       `json:"netmask,omitempty"` // IPv4 only
	OwnerUUID log.UUID     `json:"owner_uuid,omitzero"`
	Resolvers []netip.Addr `json:"resolvers"` // always present
}

func formOfNetwork(n *log.Network) networkForm {
	f := networkForm{Network: n, Netmask: netmask(n.Subnet), Resolvers: orEmpty(n.Resolvers)}
	if n.Fabric && len(n.OwnerUUIDs) > 0 {
		f.OwnerUUID = n.OwnerUUIDs[0] // a fabric has exactly one
	}
	return f
}

// nicForm is a NIC in an answer. Its own fields shadow those of log.NIC.
type nicForm struct {
	*log.NIC
	NICTag             string        `json:"nic_tag,omitempty"`
	VLANID             uint32        `json:"vlan_id"`
	Fabric             bool          `json:"fabric,omitempty"`
	Gateway            netip.Addr    `json:"gateway,omitzero"`
	GatewayProvisioned bool          `json:"gateway_provisioned,omitempty"`
	InternetNAT        bool          `json:"internet_nat,omitempty"`
	MTU                uint32        `json:"mtu,omitempty"`
	Netmask            string        `json:"netmask,omitempty"`
	Resolvers          *[]netip.Addr `json:"resolvers,omitempty"` // always present with a network
	Routes             log.Routes    `json:"routes,omitempty"`
}

func formOfNIC(nic *log.NIC, n *log.Network) nicForm {
	f := nicForm{NIC: nic, NICTag: nicTagOf(nic, n), VLANID: nic.VLANID}
	if n == nil {
		return f
	}
	resolvers := orEmpty(n.Resolvers)
	f.VLANID, f.Fabric, f.Gateway, f.MTU, f.Routes = n.VLANID, n.Fabric, n.Gateway, n.MTU, n.Routes
	f.GatewayProvisioned, f.InternetNAT = n.GatewayProvisioned, n.InternetNAT
	f.Netmask, f.Resolvers = netmask(n.Subnet), &resolvers
	return f
}

// networkOf returns the network of a NIC, or nil.
func networkOf(state *projections.State, nic *log.NIC) *log.Network {
	if nic.NetworkUUID.IsZero() {
		return nil
	}
	r, ok := state.Get(log.KindNetwork, nic.NetworkUUID.String())
	if !ok {
		return nil
	}
	return r.Object.(*log.Network)
}

// nicTagOf returns the tag of a NIC's network; on a fabric TAG/VNET (spec/napi.md
// section 3.1).
func nicTagOf(nic *log.NIC, n *log.Network) string {
	switch {
	case n == nil:
		return nic.NICTag
	case n.Fabric:
		return n.NICTag + "/" + strconv.FormatUint(uint64(n.VNetID), 10)
	}
	return n.NICTag
}

// netmask returns the dotted form of an IPv4 subnet's mask; "" for IPv6.
func netmask(subnet netip.Prefix) string {
	if !subnet.Addr().Is4() {
		return ""
	}
	return net.IP(net.CIDRMask(subnet.Bits(), 32)).String()
}

func orEmpty(addrs []netip.Addr) []netip.Addr {
	if addrs == nil {
		return []netip.Addr{}
	}
	return addrs
}
