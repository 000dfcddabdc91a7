package main

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"rutter/agent/filter"
)

// guarded is bareBridge with the rules of port security and of VTEPs.
func guarded(ctx context.Context, f *form, side int) error {
	if err := bareBridge(ctx, f, side); err != nil {
		return err
	}
	return f.nodes[side].Do(func() error {
		table, err := filter.Open(ctx)
		if err != nil {
			return err
		}
		port, err := net.InterfaceByName("port0")
		if err != nil {
			return errors.Join(err, table.Close())
		}
		bridge, err := net.InterfaceByName("br0")
		if err != nil {
			return errors.Join(err, table.Close())
		}
		changes := []filter.Change{
			{SetPort: &filter.Port{Index: uint32(port.Index), Name: port.Name, MAC: macs[side], Addresses: []netip.Addr{addresses[side]}}},
			{SetSegment: &filter.Segment{Index: uint32(bridge.Index), Name: bridge.Name}},
			{AddPeer: &filter.Peer{VTEP: underlays[1-side], VNI: vni}},
			{SetUnderlay: &filter.Underlay{Ports: []uint16{vxlanPort}, Interfaces: []string{"u0"}}},
		}
		del := func(line string) { err = errors.Join(err, ip(f.nodes[side], line)) }
		switch f.name {
		case "empty":
			changes = nil
		case "portonly":
			changes = changes[:1]
			_ = del
		case "underonly":
			changes = changes[2:]
		}
		errs := table.Apply(ctx, changes)
		return errors.Join(append(errs, table.Close())...)
	})
}
