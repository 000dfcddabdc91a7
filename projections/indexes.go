package projections

import (
	"encoding/hex"
	"encoding/json"
	"iter"
	"net/netip"
	"sort"
	"strings"

	"rutter/log"
)

// Index names some of a state's objects that it keeps together and in order: those
// of a kind that have a key in common.
type Index struct{ pick func(*store) *sorted[*row] }

// All are the objects of a kind.
func All(kind log.Kind) Index {
	return Index{func(s *store) *sorted[*row] { return s.tableOrder(kind) }}
}

// With are the objects of a kind with a value, in text, of a field that the kind
// declares to be a reference or unique; none by other fields.
func With(kind log.Kind, field, value string) Index {
	return Index{func(s *store) *sorted[*row] { return s.byField[fieldValue{kind, field, value}] }}
}

// NetworksOnTag are the networks on a NIC tag.
func NetworksOnTag(tag string) Index {
	return Index{func(s *store) *sorted[*row] { return s.netsOnTag[tag] }}
}

// NICsOnTag are the NICs that name a NIC tag themselves.
func NICsOnTag(tag string) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOnTag[tag] }}
}

// AggregationsOnTag are the aggregations that provide a NIC tag.
func AggregationsOnTag(tag string) Index {
	return Index{func(s *store) *sorted[*row] { return s.aggrsOnTag[tag] }}
}

// FabricsOf are the fabric networks of an owner.
func FabricsOf(owner log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.fabricsOf[owner] }}
}

// FabricsOnVNet are the fabric networks on a vnet, by their subnets.
func FabricsOnVNet(vnet uint32) Index {
	return Index{func(s *store) *sorted[*row] { return s.subnets[vnet] }}
}

// NetworksNamed are the networks of a name: one, unless the log has duplicates of before
// log.FeatureTriton. None in a small state.
func NetworksNamed(name NetName) Index {
	return Index{func(s *store) *sorted[*row] { return s.names.of(name) }}
}

// VLANsOf are the fabric VLANs of an owner.
func VLANsOf(owner log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.vlansOf[owner] }}
}

// VLANsOnVNet are the fabric VLANs on a vnet.
func VLANsOnVNet(vnet uint32) Index {
	return Index{func(s *store) *sorted[*row] { return s.vlansOnVNet[vnet] }}
}

// PoolsWith are the network pools that a network is in.
func PoolsWith(network log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.poolsWith[network] }}
}

// IPsOn are the IP objects of a network.
func IPsOn(network log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.ipsOn[network] }}
}

// RoutersWith are the routers that join a network.
func RoutersWith(network log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.routersWith[network] }}
}

// RoutersOf are the routers of a VM.
func RoutersOf(vm log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.routersOfVM[vm] }}
}

// NICsOnNetwork are the NICs on a network.
func NICsOnNetwork(network log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOnNet[network] }}
}

// NICsOnCN are the NICs whose cn_uuid is cn.
func NICsOnCN(cn log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOnCN[cn] }}
}

// NICsOf are the NICs of an owner: a VM, a server or another thing.
func NICsOf(owner log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOf.of(owner) }}
}

// SeveralNICsOf are the NICs of an owner that has, or had, more than one; else none.
// It allocates nothing.
func SeveralNICsOf(owner log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOf.many[owner] }}
}

// AggregationsOn are the aggregations of a server.
func AggregationsOn(cn log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.aggrsOn[cn] }}
}

// VMsOnCN are the VMs on a CN.
func VMsOnCN(cn log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.vmsOnCN[cn] }}
}

// VMMsOnCN are the VMMs on a CN.
func VMMsOnCN(cn log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.vmmsOnCN[cn] }}
}

// VMMsOf are the VMMs of a VM.
func VMMsOf(vm log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.vmmsOf[vm] }}
}

// MigrationsOf are the migrations of a VM.
func MigrationsOf(vm log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.migrationsOf[vm] }}
}

// OpenTasksOn are the tasks of a CN that have not ended.
func OpenTasksOn(cn log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.openTasks[cn] }}
}

// ServersAt are the servers that are reached at an address (admin_ip).
func ServersAt(ip netip.Addr) Index {
	return Index{func(s *store) *sorted[*row] { return s.serversAt[ip.Unmap()] }}
}

// TicketsBeside are the tickets that wait for what t is for, t too if it waits.
func TicketsBeside(t *log.Ticket) Index {
	return Index{func(s *store) *sorted[*row] { return s.lines[lineOf(t)] }}
}

// NICsOnVNet are the NICs on a vnet.
func NICsOnVNet(vnet uint32) Index {
	return Index{func(s *store) *sorted[*row] { return s.nicsOnVNet[vnet] }}
}

// Naming are the tasks, tickets and IP objects that name a VM, whether it is known or
// not: a task by uuid, vm_uuid or instance_id of its params, a ticket by its id, an
// address by its belongs_to_uuid. NICsOf, VMMsOf, MigrationsOf and RoutersOf are the
// other objects that name it.
func Naming(vm log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.naming[vm] }}
}

// VMOfTask is the VM that a task's params name; zero if they name none.
func VMOfTask(t *log.Task) (vm log.UUID) {
	if !strings.Contains(t.Params, "u") { // no name of a VM is without
		return vm
	}
	var params struct {
		UUID       json.RawMessage `json:"uuid"`
		VMUUID     json.RawMessage `json:"vm_uuid"`
		InstanceID json.RawMessage `json:"instance_id"`
	}
	if json.Unmarshal([]byte(t.Params), &params) != nil {
		return vm
	}
	for _, raw := range []json.RawMessage{params.UUID, params.VMUUID, params.InstanceID} {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			continue
		}
		if id, err := log.ParseUUID(text); err == nil && !id.IsZero() {
			return id
		}
	}
	return vm
}

// vmOfTicket is the VM that a ticket is for; zero if it is for something else.
func vmOfTicket(t *log.Ticket) log.UUID {
	id, err := log.ParseUUID(t.OfID)
	if err != nil {
		return log.UUID{}
	}
	return id
}

// PlainName returns the name by which people know an object: of a network, a pool, a
// router, a fabric VLAN or an aggregation its name, of a VM its alias, of a server its
// hostname. Others have none, or their name is their id. Names need not be unique.
func PlainName(o log.Object) string {
	switch o := o.(type) {
	case *log.Network:
		return o.Name
	case *log.VM:
		return o.Alias
	case *log.Server:
		return o.Hostname
	case *log.NetworkPool:
		return o.Name
	case *log.Router:
		return o.Name
	case *log.FabricVLAN:
		return o.Name
	case *log.Aggregation:
		return o.Name
	}
	return ""
}

// plainName is a name among those of the objects of one kind.
type plainName struct {
	kind log.Kind
	name string
}

// plainNames are the objects of each PlainName; not in a small state, nor in a draft. Most
// names have one object, which takes no set.
type plainNames struct {
	one  map[plainName]*row
	many sets[plainName]
}

// placeName puts an object into the index by names, or takes it out.
func (s *store) placeName(p placing) {
	if s.plain.one == nil {
		return
	}
	name := plainName{p.row.kind(), PlainName(p.row.object())}
	t := &s.plain
	switch {
	case name.name == "":
	case t.many[name] != nil:
		place(p, t.many, name)
	case !p.put:
		if t.one[name] == p.row {
			delete(t.one, name)
		}
	case t.one[name] == nil || t.one[name] == p.row:
		t.one[name] = p.row
	default:
		t.many.add(name, t.one[name], compareRows)
		t.many.add(name, p.row, compareRows)
		delete(t.one, name)
	}
}

// Named are the objects of a kind with a PlainName. None in a small state.
func Named(kind log.Kind, name string) Index {
	return Index{func(s *store) *sorted[*row] {
		key := plainName{kind, name}
		if set := s.plain.many[key]; set != nil {
			return set
		}
		if r := s.plain.one[key]; r != nil {
			return &sorted[*row]{cmp: compareRows, chunks: [][]*row{{r}}, n: 1}
		}
		return nil
	}}
}

// WithPrefix yields the objects of a kind whose UUID, or MAC, begins with hexadecimal
// digits, in order, at the cost of what it yields; none if digits is something else.
func WithPrefix(s *State, kind log.Kind, digits string) iter.Seq[Record] {
	digits = strings.ToLower(digits)
	low, err := hex.DecodeString(digits[:min(len(digits), 14)/2*2])
	all := s.tableOrder(kind)
	if err != nil || all == nil {
		return func(func(Record) bool) {}
	}
	first := placeOfKey(kind, string(low))
	return func(yield func(Record) bool) {
		chunk := sort.Search(len(all.chunks), func(i int) bool { c := all.chunks[i]; return c[len(c)-1].place >= first })
		for ; chunk < len(all.chunks); chunk++ {
			c := all.chunks[chunk]
			for at := sort.Search(len(c), func(i int) bool { return c[i].place >= first }); at < len(c); at++ {
				rec := c[at].record()
				id := strings.NewReplacer("-", "", ":", "").Replace(rec.Object.ID())
				if begins := strings.HasPrefix(id, digits); begins && !yield(rec) || !begins && id > digits {
					return
				}
			}
		}
	}
}

// Records yields the objects of an index, sorted by id.
func (x Index) Records(s *State) iter.Seq[Record] { return records(x.pick(&s.store)) }
