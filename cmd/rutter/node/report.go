package node

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"rutter/agent"
	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/log"
	"rutter/projections/desired"
)

// report is what the node says of itself to a server that asks: its status, in the form and
// within the bounds of reports.
func (n *Node) report(ctx context.Context) desired.NodeReport {
	s := n.agent.Status()
	r := desired.NodeReport{
		CN: s.CN, At: time.Now(), Go: runtime.Version(), Feature: log.FeatureVersion,
		State: s.State.String(), Since: s.Since, Server: s.Server, Failure: s.Failure, Cursor: s.Cursor.String(), Head: s.Head, Applied: s.Applied,
		Kernel: kernelReport(&s), Objects: s.Objects, Trouble: s.Trouble,
	}
	if n.opts.Tasks != nil {
		r.Version = n.opts.Tasks.Version
	}
	security := n.ports(ctx)
	portsReport(&r, &security)
	if c := n.opts.Servers; c != nil && c.tls != nil {
		if keeper, err := c.tls.inUse(); err == nil {
			leaf := keeper.Leaf()
			r.Certificate = &desired.NodeCertificate{Serial: leaf.SerialNumber.Text(16), Until: leaf.NotAfter}
		}
	}
	r.Bound(func(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") })
	return r
}

func kernelReport(s *agent.Status) desired.NodeKernel {
	k := &s.Kernel
	r := desired.NodeKernel{
		Matched: k.Matched, Programmed: s.Programmed, Reached: s.Reached, At: k.At, Took: k.Took, Delay50: k.Delay50, Delay99: k.Delay99,
		VNets: k.VNets, Links: k.Links, Neighbours: k.Neighs, FDB: k.FDB, OnDemand: k.Demand.VNets, Resident: k.Demand.Resident,
		Failing: k.Failing, Blocked: k.Blocked, Waiting: k.Waiting, Idle: k.Idle, Healed: k.Healed, HealedBy: k.HealedBy,
		Failures: k.Failures, Conflicts: k.Conflicts, Drift: k.Drift, Problems: k.Problems,
	}
	for _, w := range k.Waits {
		r.Waits = append(r.Waits, w.Object)
	}
	return r
}

// portsReport adds the ports of the node, those that dropped most first.
func portsReport(r *desired.NodeReport, s *ports.Status) {
	r.Security, r.Why, r.PortsAll = cmp.Or(s.Mode.Mode, desired.SecurityOff), cmp.Or(s.Why, s.Failure), len(s.Ports)
	r.Underlay = packets(s.Underlay)
	slices.SortStableFunc(s.Ports, func(a, b ports.Port) int {
		return cmp.Compare(b.Drops.Total().Packets, a.Drops.Total().Packets)
	})
	for _, p := range s.Ports[:min(len(s.Ports), desired.MaxReportPorts)] {
		one := desired.NodePort{NIC: p.NIC, VM: p.VM, Alias: p.Alias, Name: p.Name, Relaxed: p.Relaxed, Drops: packets(p.Drops)}
		for _, ip := range p.Addresses[:min(len(p.Addresses), desired.MaxReportLines)] {
			one.Addresses = append(one.Addresses, ip.String())
		}
		r.Ports = append(r.Ports, one)
	}
}

func packets[M ~map[filter.Reason]filter.Count](drops M) map[string]uint64 {
	counts := make(map[string]uint64, len(drops))
	for reason, c := range drops {
		counts[string(reason)] = c.Packets
	}
	return counts
}
