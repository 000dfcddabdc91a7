package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// TraceEntry is one entry that a CN's kernel needs for the way there or back.
type TraceEntry struct {
	CN   log.UUID `json:"cn_uuid"`
	What string   `json:"what"` // fabric, neighbour or forwarding entry, in words
	// Seq is of the last event that this entry follows from: a CN that has
	// programmed less lacks it, or has it as it was before.
	Seq log.Seq `json:"seq"`
	// Wanted is false if the log's state does not give the entry to the CN.
	Wanted bool `json:"wanted"`
	// Programmed is nil while it is unknown how far the CN is.
	Programmed *bool `json:"programmed,omitempty"`
}

// TraceEnd is one end of a Trace: a NIC, or a VM without a fitting one.
type TraceEnd struct {
	Asked   string     `json:"asked"`
	VM      log.UUID   `json:"vm_uuid,omitzero"`
	Alias   string     `json:"alias,omitempty"`
	State   string     `json:"state,omitempty"` // of the VM
	NIC     log.MAC    `json:"mac,omitzero"`
	IP      netip.Addr `json:"ip,omitzero"`
	Network log.UUID   `json:"network_uuid,omitzero"`
	Name    string     `json:"network,omitempty"` // of the network
	VNet    uint32     `json:"vnet,omitempty"`
	VLAN    uint32     `json:"vlan"`
	MTU     uint32     `json:"mtu,omitempty"`
	CN      log.UUID   `json:"cn_uuid,omitzero"`
	Host    string     `json:"hostname,omitempty"` // of the CN
	Under   netip.Addr `json:"underlay_ip,omitzero"`

	nic *log.NIC
	net *log.Network
	seq log.Seq // of the newest of what it is made of
}

// Trace answers why one VM can, or cannot, reach another.
type Trace struct {
	From     TraceEnd     `json:"from"`
	To       TraceEnd     `json:"to"`
	Verdict  string       `json:"verdict"`
	Summary  string       `json:"summary"`
	Entries  []TraceEntry `json:"entries"`
	Findings []Finding    `json:"findings"`
	// KernelsAsked is what the kernels of both CNs have; nil: they were not asked.
	KernelsAsked []TraceKernel `json:"kernels,omitempty"`
}

// maxTracePairs bounds the pairs of NICs that a Trace looks at.
const maxTracePairs = 64

// NewTrace looks at the way from one VM to another. Each end is a VM or a NIC, named in any
// way that package naming knows; to may also be an address, which is one on from's networks
// and vnets. It costs little more than finding them. What it does not know is how far the
// CNs are: see Judge.
func NewTrace(s *projections.State, from, to string) Trace {
	return TraceBetween(s, TraceName{Asked: from, ID: from}, TraceName{Asked: to, ID: to})
}

// TraceName names an end of a trace.
type TraceName struct {
	Asked string // as its texts call it
	ID    string // as it is looked for: see NewTrace
}

// TraceBetween is NewTrace for a caller that knows the UUIDs of VMs that were named
// otherwise.
func TraceBetween(s *projections.State, fromName, toName TraceName) Trace {
	sources, targets := tracedBy(s, fromName), tracedBy(s, toName)
	from, to := fromName.Asked, toName.Asked
	if ip, err := netip.ParseAddr(toName.ID); err == nil {
		targets = traced{ends: endsAt(s, to, ip.Unmap(), sources.ends)}
	}
	best := Trace{From: TraceEnd{Asked: from}, To: TraceEnd{Asked: to}}
	switch {
	case len(sources.ends) == 0:
		best.find(Fault, "from-unknown", log.UUID{}, "name a VM by UUID or alias, or a NIC by MAC: rutter inventory list", "the log has no VM and no NIC %q", from)
	case len(targets.ends) == 0:
		best.From = sources.ends[0]
		best.find(Fault, "to-unknown", log.UUID{}, "look for it with rutter nic list --where ip=…, and whether it was deleted with rutter log tail", "nothing in the log is %q, on any vnet of %s", to, from)
	default:
		best = bestPair(s, sources.ends, targets.ends)
	}
	if sources.others != "" {
		best.find(Doubt, "from-ambiguous", log.UUID{}, "name one of them by its id", "%q names %s", from, sources.others)
	}
	if targets.others != "" {
		best.find(Doubt, "to-ambiguous", log.UUID{}, "name one of them by its id", "%q names %s", to, targets.others)
	}
	return best.judged()
}

// bestPair is the trace of the two ends that are in the best order.
func bestPair(s *projections.State, sources, targets []TraceEnd) (best Trace) {
	pairs := 0
	for _, a := range sources {
		for _, b := range targets {
			if pairs == maxTracePairs {
				return best
			}
			if t := tracePair(s, a, b); pairs == 0 || t.rank() < best.rank() {
				best = t
			}
			pairs++
		}
	}
	return best
}

// traced are the NICs that an end of a trace can be.
type traced struct {
	ends []TraceEnd
	// others lists the objects that the name means, if it means several.
	others string
}

// tracedBy finds the NICs of a VM, or the NIC, that a name names: a whole id first, then
// what package naming finds as a VM, then as a NIC.
func tracedBy(s *projections.State, name TraceName) traced {
	if id, err := log.ParseUUID(name.ID); err == nil {
		return traced{ends: endsOfVM(s, name.Asked, id)}
	}
	found := naming.Resolve(s, []log.Kind{log.KindNIC}, name.ID, nil)
	if len(found.Matches) == 0 || found.Matches[0].By != "id" && found.Matches[0].By != "address" {
		if vms := naming.Resolve(s, []log.Kind{log.KindVM}, name.ID, nil); len(vms.Matches) > 0 {
			found = vms
		}
	}
	var all traced
	var objects []string
	for _, m := range found.Matches {
		r, _ := s.Get(m.Kind, m.ID)
		switch o := r.Object.(type) {
		case *log.VM:
			all.ends = append(all.ends, endsOfVM(s, name.Asked, o.UUID)...)
		case *log.NIC:
			all.ends = append(all.ends, endOf(s, name.Asked, r))
		}
		objects = append(objects, m.Kind.Describe().Noun+" "+m.ID)
	}
	if found.More {
		objects = append(objects, "others")
	}
	if len(objects) > 1 {
		all.others = strings.Join(objects[:len(objects)-1], ", ") + " and " + objects[len(objects)-1]
	}
	return all
}

// endsOfVM returns the NICs in the order of their addresses, IPv4 first: of pairs
// that are as good the same one is taken whatever their MACs are.
func endsOfVM(s *projections.State, asked string, id log.UUID) (ends []TraceEnd) {
	for r := range s.NICsOf(id) {
		ends = append(ends, endOf(s, asked, r))
	}
	slices.SortStableFunc(ends, func(a, b TraceEnd) int { return a.IP.Compare(b.IP) })
	vm, ok := s.Get(log.KindVM, id.String())
	if ends == nil && ok {
		end := TraceEnd{Asked: asked}
		fillVM(s, &end, vm)
		ends = append(ends, end)
	}
	return ends
}

func fillVM(s *projections.State, end *TraceEnd, r projections.Record) {
	vm := r.Object.(*log.VM)
	end.VM, end.Alias, end.State = vm.UUID, vm.Alias, vm.State
	if end.CN.IsZero() {
		end.CN = vm.ServerUUID
	}
	fillCN(s, end)
}

func fillCN(s *projections.State, end *TraceEnd) {
	if r, ok := s.Get(log.KindServer, end.CN.String()); ok {
		end.Host = r.Object.(*log.Server).Hostname
	}
}

func endOf(s *projections.State, asked string, r projections.Record) TraceEnd {
	nic := r.Object.(*log.NIC)
	end := TraceEnd{Asked: asked, NIC: nic.MAC, IP: nic.IP, Network: nic.NetworkUUID, CN: nic.CNUUID, nic: nic, seq: r.Seq}
	if net, ok := s.Get(log.KindNetwork, nic.NetworkUUID.String()); ok {
		end.net = net.Object.(*log.Network)
		end.Name, end.VNet, end.VLAN, end.MTU = end.net.Name, end.net.VNetID, end.net.VLANID, end.net.MTU
		end.seq = max(end.seq, net.Seq)
	}
	if under := s.UnderlayNIC(nic.CNUUID); under != nil {
		end.Under = under.IP
		if u, ok := s.Get(log.KindNIC, under.ID()); ok {
			end.seq = max(end.seq, u.Seq)
		}
	}
	if vm, ok := s.Get(log.KindVM, nic.BelongsToUUID.String()); ok {
		fillVM(s, &end, vm)
	}
	fillCN(s, &end)
	return end
}

// endsAt are the NICs with an address, on the networks and vnets of the sources.
func endsAt(s *projections.State, asked string, ip netip.Addr, sources []TraceEnd) (ends []TraceEnd) {
	seen := map[log.MAC]bool{}
	add := func(r projections.Record) {
		if mac := r.Object.(*log.NIC).MAC; !seen[mac] {
			seen[mac] = true
			ends = append(ends, endOf(s, asked, r))
		}
	}
	for _, from := range sources {
		if from.net == nil {
			continue
		}
		if r, ok := s.NICAt(from.Network, ip); ok {
			add(r)
		} else if r, ok := s.NICOnVNet(from.VNet, ip); ok && from.net.Fabric {
			add(r)
		}
	}
	return ends
}

// Far says how far a CN is, as its session has it.
type Far struct {
	Known      bool    // it has a session, or had one
	Alive      bool    // its session is heard
	Applied    log.Seq // it has
	Programmed log.Seq // its kernel has
	Failing    uint32  // steps that fail
	Differs    bool    // a digest of its differed, and is not equal yet
}

// Judge adds to a trace how far the CNs of both ends are, and which entry is
// missing where. far is asked for each of them once.
func (t *Trace) Judge(far func(cn log.UUID) Far) {
	known := map[log.UUID]Far{}
	for _, end := range []TraceEnd{t.From, t.To} {
		if _, seen := known[end.CN]; seen || end.CN.IsZero() || end.nic == nil {
			continue
		}
		f := far(end.CN)
		known[end.CN] = f
		name := hostOf(end)
		switch {
		case !f.Known:
			t.find(Fault, "cn-silent", end.CN, "start rutter agent on it, and look at its log", "%s has no session with any server: what its kernel has is unknown", name)
			continue
		case !f.Alive:
			t.find(Doubt, "cn-gone", end.CN, "what it had programmed still works; look at the machine, then at rutter agent on it", "the session of %s has ended at seq %d", name, f.Programmed)
		}
		if f.Failing > 0 {
			t.find(Doubt, "cn-failing", end.CN, "rutter cn show "+end.CN.String()+", and the log of its agent", "%d steps fail in the kernel of %s", f.Failing, name)
		}
		if f.Differs {
			t.find(Doubt, "cn-digest", end.CN, "it is sent its scopes anew; if this stays, look at the log of its agent", "the digest of %s differs from the log's", name)
		}
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		f, ok := known[e.CN]
		if !ok || !f.Known || !e.Wanted {
			continue
		}
		has := f.Programmed >= e.Seq
		e.Programmed = &has
		if !has {
			t.find(Fault, "cn-lagging", e.CN, fmt.Sprintf("rutter wait --seq %d --scope cn:%s says why it is not there", e.Seq, e.CN),
				"CN %s lacks seq %d: it has applied %d and programmed %d, and this needs it: %s", e.CN, e.Seq, f.Applied, f.Programmed, e.What)
		}
	}
	*t = t.judged()
}
