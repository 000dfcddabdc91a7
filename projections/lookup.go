package projections

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"rutter/log"
)

// VXLANPort is the UDP port of VXLAN (IANA; RFC 7348, section 5).
const VXLANPort = 4789

// Underlay is where a CN receives VXLAN packets.
type Underlay struct {
	CN   log.UUID
	Addr netip.Addr
	Port uint16 // UDP; 4789 unless said otherwise
}

// VL2 answers where a MAC of a vnet is: the underlay address of its NIC's CN.
// It is false if there is no such NIC, or its CN has no underlay address.
func (s *State) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	r := s.row(log.KindNIC, string(mac[:])) // no copy of the key is made
	if r == nil || r.home() != log.VNetScope(vnet) {
		return Underlay{}, false
	}
	return s.UnderlayOf(r.cn())
}

// VL3 answers which MAC has an address on a vnet, and where it is. An IPv4
// address may come in its IPv6-mapped form. It is false where VL2 would be.
func (s *State) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	r := s.nicOnVNet(vnet, ip.Unmap())
	if r == nil {
		return log.MAC{}, Underlay{}, false
	}
	at, ok := s.UnderlayOf(r.cn())
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	return r.mac(), at, true
}

// UnderlayOf returns where cn receives VXLAN packets: the address of its
// underlay NIC; of several that have one, of the lowest MAC.
func (s *State) UnderlayOf(cn log.UUID) (Underlay, bool) {
	nic := s.UnderlayNIC(cn)
	if nic == nil {
		return Underlay{}, false
	}
	return Underlay{CN: cn, Addr: nic.IP, Port: PortOr(nic.VXLANPort)}, true
}

// Underlays returns where each CN receives VXLAN packets that has an underlay address, by
// UUID.
func (s *State) Underlays() []Underlay {
	all := make([]Underlay, 0, len(s.underlays))
	for cn := range s.underlays {
		if at, ok := s.UnderlayOf(cn); ok {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b Underlay) int { return a.CN.Compare(b.CN) })
	return all
}

// PortOr returns the UDP port that a server's vxlan_port means: 0 is VXLANPort, and so is what
// is no port, which programs before log.FeaturePerNode took as a field that they do not know.
func PortOr(port uint32) uint16 {
	if port == 0 || port > 65535 {
		return VXLANPort
	}
	return uint16(port)
}

// UnderlayNIC returns the NIC whose address UnderlayOf returns, or nil.
func (s *State) UnderlayNIC(cn log.UUID) *log.NIC {
	for r := range s.underlays[cn].all() {
		if nic := r.nic(); nic.IP.IsValid() {
			return nic
		}
	}
	return nil
}

// VM returns a VM, or nil if it is not known. It must not be changed.
func (s *State) VM(uuid log.UUID) *log.VM {
	if r := s.row(log.KindVM, string(uuid[:])); r != nil {
		return r.obj.(*log.VM)
	}
	return nil
}

// Network returns a network, or nil if it is not known. It must not be changed.
func (s *State) Network(uuid log.UUID) *log.Network { return s.network(uuid) }

// Each of these yields records sorted by id, at a cost of what it yields.

// NICsOf yields the NICs that belong to a VM, a server or another thing.
func (s *State) NICsOf(owner log.UUID) iter.Seq[Record] { return records(s.nicsOf.of(owner)) }

// NICsOn yields the NICs on a network.
func (s *State) NICsOn(network log.UUID) iter.Seq[Record] { return records(s.nicsOnNet[network]) }

// NICsOnVNet yields the NICs on a vnet.
func (s *State) NICsOnVNet(vnet uint32) iter.Seq[Record] { return records(s.nicsOnVNet[vnet]) }

// NICsAfter yields all NICs of a higher MAC, and NICsOnVNetAfter those of them
// that are on a vnet.
func (s *State) NICsAfter(mac log.MAC) iter.Seq[Record] {
	return recordsAfter(s.tableOrder(log.KindNIC), mac)
}

// NICsOnVNetAfter yields the NICs on a vnet of a higher MAC: see NICsAfter.
func (s *State) NICsOnVNetAfter(vnet uint32, mac log.MAC) iter.Seq[Record] {
	return recordsAfter(s.nicsOnVNet[vnet], mac)
}

func recordsAfter(set *sorted[*row], mac log.MAC) iter.Seq[Record] {
	probe := &row{place: placeOfKey(log.KindNIC, string(mac[:]))}
	return func(yield func(Record) bool) {
		for r := range set.from(probe) {
			if r.place != probe.place && !yield(r.record()) {
				return
			}
		}
	}
}

// NICsOnCN yields the NICs whose cn_uuid is cn.
func (s *State) NICsOnCN(cn log.UUID) iter.Seq[Record] { return records(s.nicsOnCN[cn]) }

// UnderlayNICs yields the underlay NICs of a CN, with and without an address.
func (s *State) UnderlayNICs(cn log.UUID) iter.Seq[Record] { return records(s.underlays[cn]) }

// NetworksOn yields the networks on a NIC tag.
func (s *State) NetworksOn(tag string) iter.Seq[Record] { return records(s.netsOnTag[tag]) }

// VMsOn yields the VMs on a CN.
func (s *State) VMsOn(cn log.UUID) iter.Seq[Record] { return records(s.vmsOnCN[cn]) }

// VMMsOn yields the VMMs on a CN.
func (s *State) VMMsOn(cn log.UUID) iter.Seq[Record] { return records(s.vmmsOnCN[cn]) }

// VMMsOf yields the VMMs of a VM.
func (s *State) VMMsOf(vm log.UUID) iter.Seq[Record] { return records(s.vmmsOf[vm]) }

// TasksOn yields the tasks of a CN.
func (s *State) TasksOn(cn log.UUID) iter.Seq[Record] { return records(s.tasksOn[cn]) }

// OpenTasksOn yields those that have not ended.
func (s *State) OpenTasksOn(cn log.UUID) iter.Seq[Record] { return records(s.openTasks[cn]) }

// TasksBy yields the tasks that have ended, or those that have not.
func (s *State) TasksBy(ended bool) iter.Seq[Record] { return records(s.tasksBy[ended]) }

// TicketsOn yields the tickets of a CN.
func (s *State) TicketsOn(cn log.UUID) iter.Seq[Record] { return records(s.ticketsOn[cn]) }

// TicketsBy yields the tickets that wait or have their turn, or those that ended.
func (s *State) TicketsBy(waits bool) iter.Seq[Record] { return records(s.ticketsBy[waits]) }

// NICAt returns the NIC that has an address of a network.
func (s *State) NICAt(network log.UUID, ip netip.Addr) (Record, bool) {
	r := s.nicAt(network, ip.Unmap())
	if r == nil {
		return Record{}, false
	}
	return r.record(), true
}

// WithGateway returns a network as readers of Triton's forms get it: from log.FeatureTriton
// on, gateway_provisioned of a fabric network is what its NICs say. An object of before may
// say otherwise until the next change of it, or of one of its NICs (SAFETY D4). n may be nil.
func (s *State) WithGateway(n *log.Network) *log.Network {
	if n == nil || !n.Fabric || s.Feature() < log.FeatureTriton {
		return n
	}
	held := false
	if n.Gateway.IsValid() {
		_, held = s.NICAt(n.UUID, n.Gateway)
	}
	if n.GatewayProvisioned == held {
		return n
	}
	is := *n
	is.GatewayProvisioned = held
	return &is
}

// NICOnVNet returns the NIC that has an address on a vnet.
func (s *State) NICOnVNet(vnet uint32, ip netip.Addr) (Record, bool) {
	r := s.nicOnVNet(vnet, ip.Unmap())
	if r == nil {
		return Record{}, false
	}
	return r.record(), true
}

// PoolTags returns the NIC tags of a pool's networks, sorted, each once (NAPI's
// nic_tags_present).
func (s *State) PoolTags(p *log.NetworkPool) []string {
	var tags []string
	for _, uuid := range p.Networks {
		if n := s.network(uuid); n != nil {
			tags = append(tags, n.NICTag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// AdminNetwork returns the network that NAPI's clients call admin, or false: the network
// that is no fabric's and has that name.
//
// A log of before log.FeatureTriton may have several. Then the one on the NIC tag admin
// is taken; of several, the one with the most NICs, because all servers have theirs on it,
// and one that was made later has none; then the one that was changed longest ago.
func AdminNetwork(s *State) (Record, bool) {
	var best Record
	for r := range records(s.names.of(NetName{Name: adminName})) {
		if best.Object == nil || compareAdmins(s, r, best) < 0 {
			best = r
		}
	}
	return best, best.Object != nil
}

// adminName is the name and the NIC tag of the admin network.
const adminName = "admin"

func compareAdmins(s *State, a, b Record) int {
	x, y := a.Object.(*log.Network), b.Object.(*log.Network)
	onTag := func(n *log.Network) int {
		if n.NICTag == adminName {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(onTag(y), onTag(x)),
		cmp.Compare(s.nicsOnNet[y.UUID].len(), s.nicsOnNet[x.UUID].len()),
		cmp.Compare(a.Seq, b.Seq),
		x.UUID.Compare(y.UUID),
	)
}
