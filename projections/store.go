package projections

import (
	"fmt"

	"rutter/log"
)

// Record is one object as the log left it. The object is shared: nobody
// changes it.
type Record struct {
	Object   log.Object
	Revision log.Revision
	Seq      log.Seq // of its last event
}

// ETag returns the object's entity tag.
func (r Record) ETag() string { return log.ETag(r.Revision, r.Seq) }

// keyOf turns an id into the key of its kind's table: the bytes of a MAC or a
// UUID, in whichever form it is written, or else the text itself.
func keyOf(kind log.Kind, id string) (string, error) {
	switch {
	case kind == log.KindNIC:
		mac, err := log.ParseMAC(id)
		return string(mac[:]), err
	case keptAs(kind).byUUID:
		uuid, err := log.ParseUUID(id)
		return string(uuid[:]), err
	case kind == log.KindIP:
		network, ip, err := ParseIPID(id)
		return keyOfIP(network, ip), err
	case kind == log.KindFabricVLAN:
		owner, vlan, err := parseVLANID(id)
		return keyOfVLAN(owner, vlan), err
	default:
		return id, nil
	}
}

// keyOfObject is keyOf of an object's id, without the way through text.
func keyOfObject(o log.Object) string {
	if uuid, ok := uuidOf(o); ok {
		return string(uuid[:])
	}
	switch o := o.(type) {
	case *log.NIC:
		return string(o.MAC[:])
	case *log.IP:
		return keyOfIP(o.NetworkUUID, o.IP)
	case *log.FabricVLAN:
		return keyOfVLAN(o.OwnerUUID, o.VLANID)
	default:
		return o.ID()
	}
}

// named reports whether id is the object's, in the form of log.Object.ID,
// without making that where it is long.
func named(o log.Object, id string) bool {
	if uuid, ok := uuidOf(o); ok {
		return uuid.Is(id)
	}
	return o.ID() == id
}

// Is reports whether an id, in any form that a client may write it, is o's.
func Is(o log.Object, id string) bool {
	key, err := keyOf(o.Kind(), id)
	return err == nil && key == keyOfObject(o)
}

// table holds the objects of one kind.
type table struct {
	rows  rowTable
	order *sorted[*row]
}

// sets is an index: for each K a set of rows.
type sets[K comparable] map[K]*sorted[*row]

func (s sets[K]) add(k K, r *row, order func(a, b *row) int) {
	set := s[k]
	if set == nil {
		set = newSorted(order)
		s[k] = set
	}
	set.insert(r)
}

func (s sets[K]) remove(k K, r *row) {
	if set := s[k]; set.remove(r) && set.len() == 0 {
		delete(s, k)
	}
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
	nicsOnTag  sets[string]   // NICs that name a NIC tag themselves
	nicsOnNet  sets[log.UUID] // NICs by network
	nicsOnVNet sets[uint32]   // NICs by vnet
	nicsOnCN   sets[log.UUID] // NICs by cn_uuid
	nicsOf     owners         // NICs by belongs_to_uuid
	// nicsOwnedBy are NICs by owner_uuid, on servers: nobody asks an agent for them.
	// They cost about 10 bytes for each NIC.
	nicsOwnedBy sets[log.UUID]
	underlays   sets[log.UUID] // underlay NICs by CN
	vmsOnCN     sets[log.UUID] // VMs by server_uuid
	zones       sets[string]   // VMs by zonename, but for those named as their UUID; see zone
	vmmsOnCN    sets[log.UUID] // VMMs by sled_id
	vmmsOf      sets[log.UUID] // VMMs by instance_id
	// migrationsOf are migrations by instance_id.
	migrationsOf sets[log.UUID]
	tasksOn      sets[log.UUID] // tasks by server_uuid
	openTasks    sets[log.UUID] // those that have not ended
	tasksBy      sets[bool]     // tasks by whether they have ended
	ticketsOn    sets[log.UUID] // tickets by server_uuid
	lines        sets[line]     // tickets that wait, by what they wait for
	ticketsBy    sets[bool]     // tickets by whether they wait

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

	ips  rowTable            // the NIC that has an address of a network
	vl3  rowTable            // the NIC that has an address on a vnet
	used map[log.UUID]*spans // addresses in use by network
}

func newStore() *store {
	return &store{
		netsOnTag: sets[string]{}, subnets: sets[uint32]{}, fabricsOf: sets[log.UUID]{}, nicsOnTag: sets[string]{},
		nicsOnNet: sets[log.UUID]{}, nicsOnVNet: sets[uint32]{}, nicsOnCN: sets[log.UUID]{},
		nicsOf: newOwners(), nicsOwnedBy: sets[log.UUID]{}, underlays: sets[log.UUID]{},
		vmsOnCN: sets[log.UUID]{}, zones: sets[string]{},
		vmmsOnCN: sets[log.UUID]{}, vmmsOf: sets[log.UUID]{}, migrationsOf: sets[log.UUID]{},
		tasksOn: sets[log.UUID]{}, openTasks: sets[log.UUID]{}, tasksBy: sets[bool]{},
		ticketsOn: sets[log.UUID]{}, lines: sets[line]{}, ticketsBy: sets[bool]{},
		ipsOn: sets[log.UUID]{}, poolsWith: sets[log.UUID]{}, vlansOf: sets[log.UUID]{}, vlansOnVNet: sets[uint32]{},
		aggrsOn: sets[log.UUID]{}, aggrsOnTag: sets[string]{}, routersWith: sets[log.UUID]{}, routersOnVNet: sets[uint32]{},
		routersOnCN: sets[log.UUID]{}, routersOfVM: sets[log.UUID]{},
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

// Check says whether the object is of the Go type of its kind, so that the
// indexes can rely on it: an unknown object of a known kind never fits.
func Check(o log.Object) error {
	if o == nil {
		return fmt.Errorf("there is no object: %w", log.ErrCorrupt)
	}
	if _, unknown := o.(*log.Unknown); unknown && o.Kind().Known() {
		return fmt.Errorf("%s %s: it was not decoded: %w", o.Kind(), o.ID(), log.ErrCorrupt)
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

// put places a record, over the one of the same id if there is one. body, if
// not nil, is the object as log.Encoder.EventAndBody gives it.
func (s *store) put(rec Record, body []byte) {
	kind := rec.Object.Kind()
	t := s.table(kind)
	if t == nil {
		if grow := int(kind) + 1 - len(s.tables); grow > 0 {
			s.tables = append(s.tables, make([]*table, grow)...)
		}
		t = &table{rows: rowTable{hash: hashRow}, order: newSorted(compareRows)}
		s.tables[kind] = t
	}
	r := s.rowOfObject(rec.Object)
	var sum log.Digest
	if s.digests != nil {
		sum = s.digests.of(&rec, body)
		s.digests.replace(r, &rec, sum)
	}
	if r == nil {
		r = &row{}
		s.set(r, rec, sum)
		t.rows.add(r)
		t.order.insert(r)
		s.index(r)
	} else {
		s.change(r, rec, sum)
	}
	if network, ok := rec.Object.(*log.Network); ok {
		s.rehome(network.UUID)
	}
}

// change puts a record, whose sum is given, in the place of r's.
func (s *store) change(r *row, rec Record, sum log.Digest) {
	switch before := r.object(); {
	case sameIndex(before, rec.Object):
		if s.digests != nil {
			s.count(r, s.digests.remove)
		}
		s.set(r, rec, sum)
		if s.digests != nil {
			s.count(r, s.digests.add)
		}
	case moves(before, rec.Object):
		s.move(r, rec, sum)
	default:
		s.unindex(r)
		s.set(r, rec, sum)
		s.index(r)
	}
}

// remove takes the row out.
func (s *store) remove(r *row) {
	t := s.table(r.kind())
	if s.digests != nil {
		s.digests.replace(r, nil, log.Digest{})
	}
	t.rows.remove(r)
	t.order.remove(r)
	s.unindex(r)
	if p, ok := r.obj.(*packedNIC); ok {
		s.shapes.drop(p.shape)
	}
	if network, ok := r.obj.(*log.Network); ok {
		s.rehome(network.UUID)
	}
}

// rehome puts a network's NICs where the network now lies. In a log a network
// comes before its NICs and goes after them; in a cache either may come first.
func (s *store) rehome(network log.UUID) {
	home := s.homeOn(network)
	var moved []*row
	for r := range s.nicsOnNet[network].all() {
		if r.scope == home {
			break // they are all of one scope
		}
		moved = append(moved, r)
	}
	for _, r := range moved {
		s.unindex(r)
		s.index(r)
	}
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
		return scopeOfNetwork(n)
	}
	return log.Scope{}
}

func scopeOfNetwork(n *log.Network) log.Scope {
	if n.Fabric {
		return log.VNetScope(n.VNetID)
	}
	return log.NetworkScope(n.UUID)
}

// CNOf returns the CN that a NIC is on.
func CNOf(nic *log.NIC) log.UUID {
	if nic.CNUUID.IsZero() && nic.BelongsToType == "server" {
		return nic.BelongsToUUID
	}
	return nic.CNUUID
}

// IsUnderlay reports whether the NIC may carry its CN's VXLAN packets.
func IsUnderlay(nic *log.NIC) bool { return nic.Underlay && nic.BelongsToType == "server" }
