package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// ours makes the links of a side as an agent does, with its manager and the real kernel.
func ours(ctx context.Context, f *form, side int) error {
	var table *filter.Kernel
	if err := f.nodes[side].Do(func() (err error) {
		table, err = filter.Open(ctx)
		return err
	}); err != nil {
		return err
	}
	kernel, err := link.Open(link.Config{Filter: table, OwnNamespace: f.nodes[side].Path(), NetNSDir: f.vmsOf(side), EtcNetNSDir: filepath.Join(f.dir, "etc")})
	if err != nil {
		return errors.Join(err, table.Close())
	}
	m := link.NewManager(link.ManagerConfig{Kernel: kernel, Secure: plan.Secure{On: true, Required: true}})
	result, err := m.Pass(ctx, wanted(side), true)
	if err == nil && !result.Matched {
		err = fmt.Errorf("the kernel does not match: %v %v", result.Failures, result.Conflicts)
	}
	return errors.Join(err, kernel.Close(), table.Close())
}

// wanted is what the log would have for a side.
func wanted(side int) desired.Links {
	return desired.Links{
		VXLANs:   []desired.VXLAN{{VNet: vni, Local: underlays[side], Port: vxlanPort, MTU: underlayMTU - 50}},
		Segments: []desired.Segment{{VNet: vni, MTU: underlayMTU - 50}},
		Fabrics:  []desired.Fabric{{MAC: macs[side], VNet: vni, MTU: vmMTU, Namespace: "vm", Addresses: []netip.Prefix{netip.PrefixFrom(addresses[side], 24)}}},
		Neighs:   []desired.Neigh{{Link: macs[side], IP: addresses[1-side], MAC: macs[1-side]}},
		FDB:      []desired.FDB{{VNet: vni, MAC: macs[1-side], Dst: underlays[1-side], Port: vxlanPort}},
	}
}
