package varpd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"rutter/agent/link/plan"
	"rutter/agent/miss"
)

// vxlan is the VXLAN device of a vnet.
type vxlan struct {
	local  netip.Addr // the underlay address; invalid: it is not known
	fixed  bool       // local is the device's own; otherwise the kernel's choice
	port   uint16
	device int32 // the ifindex by which it sends; 0: any
}

// linkIndex is the kernel's location of a miss: the number of a namespace, and an
// ifindex there.
type linkIndex struct{ namespace, index int32 }

// links are the links of the node that SVP is about, as of the last scan.
type links struct {
	vnetOf  map[linkKey]uint32 // of fabric links
	vxlans  map[uint32]vxlan   // by vnet
	fabrics map[linkIndex]linkKey
	devices map[linkIndex]uint32 // the vnets of VXLAN devices
	// namespaces have fabric links; the value is the number.
	namespaces map[string]int32
}

func (l *links) has(p linkKey) bool { _, ok := l.vnetOf[p]; return ok }

// linksOf finds the vnet of each link from the links below it: a link that only has
// such a name is ignored.
func linksOf(have *plan.Snapshot, number func(namespace string) (int32, error)) (links, error) {
	l := links{vnetOf: map[linkKey]uint32{}, vxlans: map[uint32]vxlan{}, fabrics: map[linkIndex]linkKey{}, devices: map[linkIndex]uint32{}, namespaces: map[string]int32{}}
	below := map[string]uint32{} // VXLAN devices and the VLAN devices on them
	for i := range have.Links {
		if k := &have.Links[i]; isDevice(k) {
			below[k.Name] = k.VNI
			l.vxlans[k.VNI] = vxlan{local: k.Local.Unmap(), fixed: k.Local.IsValid(), port: k.Port, device: k.Device}
			l.devices[linkIndex{miss.OwnNamespace, k.Index}] = k.VNI
		}
	}
	for i := range have.Links {
		if k := &have.Links[i]; k.Kind == "vlan" && k.Namespace == "" {
			if vnet, ok := below[k.Parent]; ok {
				below[k.Name] = vnet
			}
		}
	}
	var errs []error
	for i := range have.Links {
		k := &have.Links[i]
		vnet, ok := below[k.Parent]
		if k.Kind != "macvlan" || !ok {
			continue
		}
		n, known := l.namespaces[k.Namespace]
		if !known {
			var err error
			if n, err = number(k.Namespace); err != nil {
				if !errors.Is(err, plan.ErrNoNamespace) {
					errs = append(errs, err)
				}
				continue
			}
			l.namespaces[k.Namespace] = n
		}
		p := linkKey{k.Namespace, k.Name}
		l.vnetOf[p] = vnet
		l.fabrics[linkIndex{n, k.Index}] = p
	}
	return l, errors.Join(errs...)
}

// isDevice reports whether a link is the VXLAN device of a vnet.
func isDevice(k *plan.Link) bool {
	return k.Kind == "vxlan" && k.Namespace == "" && k.Name == plan.VXLANName(k.VNI)
}

// scan reads the kernel and makes the tables match it. Entries that are gone are
// forgotten; missing ones are set again; entries that another program made are adopted,
// and asked. The daemon starts with a scan, and learns about links by scans.
func (d *Daemon) scan(ctx context.Context) error {
	began := time.Now()
	have, err := d.cfg.Kernel.Dump(ctx, d.cfg.Kernel.Namespaces())
	d.dirty, d.scannedAt, d.scanTook = false, time.Now(), time.Since(began)
	d.stats.looks.Add(1)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if d.links.vnetOf == nil {
			return fmt.Errorf("varpd: read the kernel: %w", err)
		}
		d.trouble("the kernel cannot be read", err)
		return nil
	}
	before, vxlans := d.links.vnetOf, d.links.vxlans
	d.links, err = linksOf(&have, d.cfg.Kernel.NamespaceNumber)
	for _, name := range slices.Sorted(maps.Keys(have.Unread)) {
		err = errors.Join(err, have.Unread[name].Err) // the other namespaces do not wait for it
	}
	d.trouble("the kernel cannot be read", err)
	d.stats.links.Store(int64(len(d.links.vnetOf) + len(d.links.vxlans)))
	d.findUnderlay(vxlans)
	d.noteVNets(d.scannedAt)
	var steps batchSteps
	d.matchNeighs(&have)
	d.matchForwards(&have, &steps)
	d.do(ctx, append(probeSteps(&have, &d.links), steps.all()...))
	d.takeDeferred()
	d.readPending(ctx, d.links.newSince(before))
	return nil
}

// newSince returns the namespaces with fabric links that were not there before: their
// earlier misses were not received.
func (l *links) newSince(before map[linkKey]uint32) map[string]int32 {
	namespaces := map[string]int32{}
	for p := range l.vnetOf {
		if _, had := before[p]; !had {
			namespaces[p.namespace] = l.namespaces[p.namespace]
		}
	}
	return namespaces
}

// takeDeferred takes the misses that waited for a scan.
func (d *Daemon) takeDeferred() {
	parked := d.deferred
	d.deferred = nil
	now := time.Now()
	for _, m := range parked {
		from := linkIndex{m.Namespace, m.Link}
		_, isFabric := d.links.fabrics[from]
		_, isDevice := d.links.devices[from]
		if !isFabric && !isDevice && len(d.unknown) < batchDelay {
			d.unknown[from] = now
		}
		d.takeMiss(m, now)
	}
	d.deferred = nil // misses of unknown links when unknown is full: they come again
}

// noteVNets records since when each vnet has fabric links here.
func (d *Daemon) noteVNets(now time.Time) {
	since := map[uint32]time.Time{}
	for _, vnet := range d.links.vnetOf {
		if at, had := d.vnetSince[vnet]; had {
			since[vnet] = at
		} else {
			since[vnet] = now
		}
	}
	d.vnetSince = since
}

// probeSteps make the kernel report what it misses on fabric links, and send no useless
// broadcast. A link loses this when it moves into a namespace (spec/kernel.md section
// 2).
func probeSteps(have *plan.Snapshot, l *links) []plan.Step {
	var steps []plan.Step
	for i := range have.Links {
		k := &have.Links[i]
		if !l.has(linkKey{k.Namespace, k.Name}) || k.Kind != "macvlan" {
			continue
		}
		for _, table := range []struct {
			have   plan.Probes
			family netip.Addr
		}{{k.ARP, netip.IPv4Unspecified()}, {k.ND, netip.IPv6Unspecified()}} {
			if table.have.Known && !table.have.ReportMisses() {
				steps = append(steps, plan.Step{Op: plan.OpSetProbes, Namespace: k.Namespace, Link: k.Name, Addr: table.family})
			}
		}
	}
	return steps
}

// matchNeighs compares the neighbours in the kernel with the tables. Forwarding entries
// that lose their last user are left to matchForwards.
func (d *Daemon) matchNeighs(have *plan.Snapshot) {
	type found struct {
		k key
		p linkKey
	}
	there := map[found]bool{}
	for i := range have.Links {
		k := &have.Links[i]
		p := linkKey{k.Namespace, k.Name}
		vnet, ok := d.links.vnetOf[p]
		if !ok {
			continue
		}
		for _, e := range k.Neighs {
			at := key{vnet: vnet, ip: e.IP}
			n := d.tables.neighs[at]
			if n == nil { // adopted: with the oldest age, so that it is asked
				n = d.tables.addNeigh(at)
				d.doubtNew(at, d.scannedAt)
				d.stats.adopted.Add(1)
			} else if n.mac != e.MAC {
				d.ask(at, true) // another program changed it
			}
			d.tables.addUser(n, e.MAC)
			n.links[p] = true
			there[found{at, p}] = true
		}
	}
	for at, n := range d.tables.neighs {
		for p := range n.links {
			if !there[found{at, p}] {
				delete(n.links, p)
			}
		}
		if len(n.links) == 0 {
			d.tables.removeNeigh(n)
		}
	}
}

// matchForwards compares the forwarding entries in the kernel with the tables, and
// removes those without a user, also those that matchNeighs left. It removes only after
// the comparison: an entry in have that is not in the tables is taken for another
// program's, which is adopted, and would be set again by the next scan.
func (d *Daemon) matchForwards(have *plan.Snapshot, steps *batchSteps) {
	there := map[key]plan.Forward{}
	for i := range have.Links {
		k := &have.Links[i]
		if !isDevice(k) {
			continue
		}
		for _, e := range k.FDB {
			if e.MAC.IsZero() || !e.Permanent || e.MAC[0]&1 != 0 {
				continue // the broadcast entry is not a NIC
			}
			there[key{vnet: k.VNI, mac: e.MAC}] = e
		}
	}
	used := map[uint32]bool{} // vnets with fabric links
	for _, vnet := range d.links.vnetOf {
		used[vnet] = true
	}
	for at, e := range there {
		// The entries of a vnet without fabric links are not handled.
		if d.tables.forwards[at] == nil && used[at.vnet] {
			f := d.tables.addForward(at)
			if len(d.tables.users[at]) == 0 {
				d.doubtNew(at, d.scannedAt)
			}
			f.to, f.port, f.direct = e.Dst, ownAddresses(e.Port, d.links.vxlans[at.vnet].port), len(d.tables.users[at]) == 0
			d.stats.adopted.Add(1)
		}
	}
	for at, f := range d.tables.forwards {
		if _, ok := d.links.vxlans[at.vnet]; !ok {
			d.tables.dropForward(f)
			continue
		}
		if !used[at.vnet] || !f.direct && len(d.tables.users[at]) == 0 {
			d.removeForward(f, steps)
			continue
		}
		if e, ok := there[at]; !ok || e.Dst != f.to || ownAddresses(e.Port, d.links.vxlans[at.vnet].port) != f.port {
			if f.to.IsValid() {
				steps.setForwards = append(steps.setForwards, d.forwardStep(plan.OpSetFDB, f))
			} else {
				d.ask(at, true)
			}
		}
	}
}

// ownAddresses returns 0 for the device's own port.
func ownAddresses(port, device uint16) uint16 {
	if port == device {
		return 0
	}
	return port
}
