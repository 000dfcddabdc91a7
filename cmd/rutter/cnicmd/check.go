package cnicmd

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"rutter/agent/vmsource/registered"
)

// check compares what ADD returned with the log and with the kernel. What is not there yet has
// convergence to come, or half of the timeout.
func (p *plugin) check(args *skel.CmdArgs) error {
	if p.conf.PrevResult == nil {
		return invalidConf("prevResult is missing: CHECK compares it with what there is")
	}
	expected, err := expectedOf(p.conf.PrevResult, args)
	if err != nil {
		return err
	}
	id, err := p.vm(args.ContainerID)
	if err != nil {
		return err
	}
	end := time.Now().Add(min(convergence, p.conf.timeout/2))
	for {
		vm, err := p.client.Get(p.ctx, id)
		if err == nil {
			err = p.compare(&vm, expected, args)
		}
		var answered *registered.Error
		if errors.As(err, &answered) && answered.Code == registered.CodeUnknown {
			err = different("container %s has no VM at the agent", args.ContainerID)
		}
		if err == nil || time.Now().After(end) {
			return cniError(err)
		}
		time.Sleep(retryEvery)
	}
}

func different(format string, args ...any) error {
	return types.NewError(codeDifferent, fmt.Sprintf(format, args...), "")
}

// expected is what the previous result says of the interface that is checked.
type expected struct {
	mac       string // "": not said
	addresses []netip.Prefix
	routes    []netip.Prefix // of all interfaces: a result does not say whose they are
}

// expectedOf reads the previous result. Errors: types.Error.
func expectedOf(previous types.Result, args *skel.CmdArgs) (want expected, err error) {
	result, err := types100.NewResultFromResult(previous)
	if err != nil {
		return want, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	at := slices.IndexFunc(result.Interfaces, func(i *types100.Interface) bool {
		return i != nil && i.Name == args.IfName && i.Sandbox != ""
	})
	if at < 0 {
		return want, different("prevResult has no interface %s in a container", args.IfName)
	}
	want.mac = result.Interfaces[at].Mac
	for _, ip := range result.IPs {
		if ip == nil || ip.Interface == nil || *ip.Interface != at {
			continue
		}
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		bits, _ := ip.Address.Mask.Size()
		if !ok {
			return want, types.NewError(types.ErrDecodingFailure, "prevResult has an address that is none", ip.Address.String())
		}
		want.addresses = append(want.addresses, netip.PrefixFrom(addr.Unmap(), bits))
	}
	for _, r := range result.Routes {
		if r == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			bits, _ := r.Dst.Mask.Size()
			want.routes = append(want.routes, netip.PrefixFrom(addr.Unmap(), bits).Masked())
		}
	}
	return want, nil
}

// compare holds the log, as the agent knows it, and the kernel against what ADD returned.
func (p *plugin) compare(vm *registered.VM, want expected, args *skel.CmdArgs) error {
	nic := vm.NIC(p.keyOf(args.IfName))
	switch {
	case nic == nil:
		return different("the log has no NIC for interface %s of this container", args.IfName)
	case nic.State != registered.NICAttached:
		return different("NIC %s is not attached: %s", nic.MAC, nic.Reason)
	}
	for _, ip := range want.addresses {
		if !slices.Contains(nic.IPs, ip) {
			return different("NIC %s has no address %s in the log: it has %v", nic.MAC, ip, nic.IPs)
		}
	}
	d, err := readDevice(args.Netns, args.IfName)
	switch {
	case errors.Is(err, errNoDevice):
		return different("interface %s is not in %s", args.IfName, args.Netns)
	case err != nil:
		return err
	case !d.up:
		return different("interface %s is down", args.IfName)
	case want.mac != "" && d.mac != want.mac:
		return different("interface %s has MAC %s, not %s", args.IfName, d.mac, want.mac)
	case d.mac != nic.MAC.String():
		return different("interface %s has MAC %s, and the log %s: what it sends is dropped", args.IfName, d.mac, nic.MAC)
	case d.mtu > int(nic.MTU):
		return different("interface %s has an MTU of %d, and the network %d", args.IfName, d.mtu, nic.MTU)
	}
	for _, ip := range nic.IPs {
		if !slices.Contains(d.addresses, ip) {
			return different("interface %s has no address %s: it has %v", args.IfName, ip, d.addresses)
		}
	}
	for _, r := range ownRoutes(nic) {
		if slices.Contains(want.routes, r.Dst.Masked()) && !slices.Contains(d.routes, r.Dst.Masked()) {
			return different("interface %s has no route to %s", args.IfName, r.Dst)
		}
	}
	return nil
}
