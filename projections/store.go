package projections

import (
	"iter"
	"net/netip"

	"rutter/log"
)

// table holds the objects of one kind.
type table struct {
	rows  rowTable
	order *sorted[*row]
}

// store holds objects and their indexes. A State is a store of everything; a
// draft has a small one of what its change has touched so far.
type store struct {
	// under, in a draft, is the state below: networks that are not here are there.
	under *store
	// interest, if not nil, is told where NICs come and go.
	interest *interest
	// digests, if not nil, follow what index and unindex do; then interest is not nil.
	digests *digests
	// shapes, if not nil, lets NICs be packed.
	shapes shapes

	tables []*table // by kind; nil where there is none

	netsOnTag  sets[string]   // networks by NIC tag
	subnets    sets[uint32]   // networks that may not overlap, by subnet; see subnetGroup
	fabricsOf  sets[log.UUID] // fabric networks by owner
	names      netNames       // networks by name; not in a small state
	plain      plainNames     // objects by the names that people know them by
	nicsOnTag  sets[string]   // NICs that name a NIC tag themselves
	nicsOnNet  sets[log.UUID] // NICs by network
	nicsOnVNet sets[uint32]   // NICs by vnet
	nicsOnCN   sets[log.UUID] // NICs by cn_uuid
	nicsOf     owners         // NICs by belongs_to_uuid
	// nicsOwnedBy are NICs by owner_uuid, on servers: agents are not asked for them.
	// They cost about 10 bytes for each NIC.
	nicsOwnedBy sets[log.UUID]
	underlays   sets[log.UUID] // underlay NICs by CN
	vmsOnCN     sets[log.UUID] // VMs by server_uuid
	zones       sets[string]   // VMs by zonename, except those named as their UUID; see zone
	vmmsOnCN    sets[log.UUID] // VMMs by sled_id
	vmmsOf      sets[log.UUID] // VMMs by instance_id
	// migrationsOf are migrations by instance_id.
	migrationsOf sets[log.UUID]
	tasksOn      sets[log.UUID]   // tasks by server_uuid
	openTasks    sets[log.UUID]   // those that have not ended
	serversAt    sets[netip.Addr] // servers by admin_ip, not IPv6-mapped
	tasksBy      sets[bool]       // tasks by whether they have ended
	ticketsOn    sets[log.UUID]   // tickets by server_uuid
	lines        sets[line]       // tickets that wait, by what they wait for
	ticketsBy    sets[bool]       // tickets by whether they wait
	naming       sets[log.UUID]   // tasks, tickets and IP objects by the VM that they name

	ipsOn         sets[log.UUID] // IP objects by network, sorted by address
	poolsWith     sets[log.UUID] // pools by each of their networks
	vlansOf       sets[log.UUID] // fabric VLANs by owner
	vlansOnVNet   sets[uint32]   // and by vnet
	aggrsOn       sets[log.UUID] // aggregations by server
	aggrsOnTag    sets[string]   // and by each NIC tag that they provide
	routersWith   sets[log.UUID] // routers by each of their networks
	routersOnVNet sets[uint32]   // and by each vnet
	routersOnCN   sets[log.UUID] // and by the CN of their VM
	routersOfVM   sets[log.UUID] // and by their VM

	byField sets[fieldValue] // objects by values of the fields that their kinds declare
	inScope sets[log.Scope]  // objects of kinds with a scope that have no index by it

	ips  rowTable            // the NIC that has an address of a network
	vl3  rowTable            // the NIC that has an address on a vnet
	used map[log.UUID]*spans // addresses in use by network
}

func newStore() *store {
	return &store{
		netsOnTag: sets[string]{}, subnets: sets[uint32]{}, fabricsOf: sets[log.UUID]{}, names: newNetNames(), nicsOnTag: sets[string]{},
		nicsOnNet: sets[log.UUID]{}, nicsOnVNet: sets[uint32]{}, nicsOnCN: sets[log.UUID]{},
		nicsOf: newOwners(), nicsOwnedBy: sets[log.UUID]{}, underlays: sets[log.UUID]{},
		vmsOnCN: sets[log.UUID]{}, zones: sets[string]{},
		vmmsOnCN: sets[log.UUID]{}, vmmsOf: sets[log.UUID]{}, migrationsOf: sets[log.UUID]{},
		tasksOn: sets[log.UUID]{}, openTasks: sets[log.UUID]{}, serversAt: sets[netip.Addr]{}, tasksBy: sets[bool]{},
		ticketsOn: sets[log.UUID]{}, lines: sets[line]{}, ticketsBy: sets[bool]{}, naming: sets[log.UUID]{},
		ipsOn: sets[log.UUID]{}, poolsWith: sets[log.UUID]{}, vlansOf: sets[log.UUID]{}, vlansOnVNet: sets[uint32]{},
		aggrsOn: sets[log.UUID]{}, aggrsOnTag: sets[string]{}, routersWith: sets[log.UUID]{}, routersOnVNet: sets[uint32]{},
		routersOnCN: sets[log.UUID]{}, routersOfVM: sets[log.UUID]{},
		byField: sets[fieldValue]{}, inScope: sets[log.Scope]{},
		ips: rowTable{hash: hashIP}, vl3: rowTable{hash: hashVL3}, used: map[log.UUID]*spans{},
	}
}

// table returns the table of a kind, or nil.
func (s *store) table(kind log.Kind) *table {
	if int(kind) < len(s.tables) {
		return s.tables[kind]
	}
	return nil
}

// tableOrder returns all rows of a kind in order; nil, an empty set, if there
// are none.
func (s *store) tableOrder(kind log.Kind) *sorted[*row] {
	if t := s.table(kind); t != nil {
		return t.order
	}
	return nil
}

// row returns the row of a key, or nil.
func (s *store) row(kind log.Kind, key string) *row {
	if t := s.table(kind); t != nil {
		return t.rows.withKey(key)
	}
	return nil
}

// network returns a network of this store or the one below, or nil.
func (s *store) network(uuid log.UUID) *log.Network {
	for ; s != nil; s = s.under {
		if r := s.row(log.KindNetwork, string(uuid[:])); r != nil {
			return r.obj.(*log.Network)
		}
	}
	return nil
}

// rowOfObject returns the row of an object's id, or nil. The compiler makes no
// string of bytes that are only looked up.
func (s *store) rowOfObject(o log.Object) *row {
	if nic, ok := o.(*log.NIC); ok {
		return s.row(log.KindNIC, string(nic.MAC[:]))
	}
	if uuid, ok := uuidOf(o); ok {
		return s.row(o.Kind(), string(uuid[:]))
	}
	return s.row(o.Kind(), keyOfObject(o))
}

// homeOn returns what rows of NICs on a network share, or nil.
func (s *store) homeOn(network log.UUID) *log.Scope {
	for ; s != nil; s = s.under {
		if r := s.row(log.KindNetwork, string(network[:])); r != nil {
			return r.scope
		}
	}
	return nil
}

// scopeOn returns the scope of what is on a network; Type 0 if it is not known.
func (s *store) scopeOn(network log.UUID) log.Scope {
	if n := s.network(network); n != nil {
		return log.ScopeOf(n)
	}
	return log.Scope{}
}

// zone yields the VMs with a zonename, in order. Nearly every VM is named as its
// UUID, and is found by that: an index of these would be as long as their table.
func (s *store) zone(name string) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		var own *row
		if uuid, err := log.ParseUUID(name); err == nil && uuid.Is(name) {
			own = s.row(log.KindVM, string(uuid[:]))
		}
		if own != nil && own.obj.(*log.VM).Zonename != name {
			own = nil // it has another
		}
		for r := range s.zones[name].all() {
			if own != nil && compareRows(own, r) < 0 {
				if !yield(own) {
					return
				}
				own = nil
			}
			if !yield(r) {
				return
			}
		}
		if own != nil {
			yield(own)
		}
	}
}

// nicAt returns the NIC that has an address of a network, or nil.
func (s *store) nicAt(network log.UUID, ip netip.Addr) *row {
	return s.ips.find(hashAddr(hashUUID(network), ip), hasIP(network, ip))
}

// nicOnVNet returns the NIC that has an address on a vnet, or nil.
func (s *store) nicOnVNet(vnet uint32, ip netip.Addr) *row {
	return s.vl3.find(hashAddr(uint64(vnet), ip), hasVL3(vnet, ip))
}

// ipRow returns the row of the IP object of a network's address, or nil.
func (s *store) ipRow(network log.UUID, ip netip.Addr) *row {
	if s.table(log.KindIP) == nil {
		return nil // as on agents
	}
	return s.row(log.KindIP, keyOfIP(network, ip))
}
