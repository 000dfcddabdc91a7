package cnicmd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"rutter/agent/vmsource/registered"
)

// resultOf is the result of an ADD, in the configuration's version: what an earlier plugin of
// the list made, and after it the NIC as it is in the log and in the kernel.
func (p *plugin) resultOf(args *skel.CmdArgs, nic *registered.Attached) (types.Result, error) {
	d, err := p.device(args)
	if err != nil {
		return nil, types.NewError(types.ErrTryAgainLater, fmt.Sprintf("interface %s of %s cannot be read", args.IfName, args.Netns), err.Error())
	}
	result := &types100.Result{}
	if p.conf.PrevResult != nil {
		if result, err = types100.NewResultFromResult(p.conf.PrevResult); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
		}
	}
	result.CNIVersion = types100.ImplementedSpecVersion
	if host := hostEnd(d); host != nil {
		result.Interfaces = append(result.Interfaces, &types100.Interface{Name: host.name, Mac: host.mac, Mtu: host.mtu})
	}
	index := len(result.Interfaces)
	result.Interfaces = append(result.Interfaces, &types100.Interface{Name: args.IfName, Mac: nic.MAC.String(), Mtu: d.mtu, Sandbox: args.Netns})
	for _, ip := range nic.IPs {
		result.IPs = append(result.IPs, &types100.IPConfig{Interface: types100.Int(index), Address: ipNet(ip), Gateway: gatewayOf(nic, ip)})
	}
	for _, r := range routesOf(nic, d) {
		result.Routes = append(result.Routes, &types.Route{Dst: ipNet(r.Dst), GW: r.Gateway.AsSlice()})
	}
	result.DNS = p.dnsOf(nic, result.DNS)
	as, err := result.GetAsVersion(p.conf.CNIVersion)
	if err != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, "the result has no form in this version", err.Error())
	}
	return as, nil
}

// device reads a container's interface. What the agent says may be newer than what it does:
// an interface that another name has still is waited for.
func (p *plugin) device(args *skel.CmdArgs) (*device, error) {
	end := time.Now().Add(min(convergence, p.conf.timeout/2))
	for {
		d, err := readDevice(args.Netns, args.IfName)
		if !errors.Is(err, errNoDevice) || time.Now().After(end) {
			return d, err
		}
		time.Sleep(retryEvery)
	}
}

// hostEnd is the node's end of a container's veth pair, which later plugins of a list limit
// and filter; nil, if the interface is none, or if that end is not found here.
func hostEnd(d *device) *device {
	if !d.veth {
		return nil
	}
	link, err := net.InterfaceByIndex(d.peer)
	if err != nil {
		return nil
	}
	host, err := readDevice("", link.Name)
	if err != nil || !host.veth || host.peer != d.index {
		return nil
	}
	return host
}

// gatewayOf is the gateway of an address; nil if its network has none.
func gatewayOf(nic *registered.Attached, ip netip.Prefix) net.IP {
	for _, g := range nic.Gateways {
		if ip.Contains(g) {
			return g.AsSlice()
		}
	}
	return nil
}

// routesOf are the routes of a NIC that the kernel has.
func routesOf(nic *registered.Attached, d *device) []registered.Route {
	return slices.DeleteFunc(ownRoutes(nic), func(r registered.Route) bool { return !slices.Contains(d.routes, r.Dst.Masked()) })
}

// ownRoutes are the routes that the log has for a NIC. Which NIC of a container has the
// default route is left to the agent.
func ownRoutes(nic *registered.Attached) (all []registered.Route) {
	for _, g := range nic.Gateways {
		unspecified := netip.IPv4Unspecified()
		if g.Is6() {
			unspecified = netip.IPv6Unspecified()
		}
		all = append(all, registered.Route{Dst: netip.PrefixFrom(unspecified, 0), Gateway: g})
	}
	return append(all, nic.Routes...)
}

// dnsOf are the resolvers of the network, unless the configuration names others, and what
// the configuration says of names. What an earlier plugin said comes before the network's.
func (p *plugin) dnsOf(nic *registered.Attached, before types.DNS) types.DNS {
	if !p.conf.DNS.IsEmpty() {
		before = p.conf.DNS
	}
	if len(before.Nameservers) > 0 {
		return before
	}
	for _, r := range nic.Resolvers {
		before.Nameservers = append(before.Nameservers, r.String())
	}
	return before
}

// ipNet is a prefix as the library has it, with the whole address.
func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
