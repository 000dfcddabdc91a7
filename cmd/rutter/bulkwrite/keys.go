package bulkwrite

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"rutter/log"
)

// Touch is an object that a change creates, updates or deletes.
type Touch struct {
	Kind   log.Kind
	Action log.Action
	ID     string
	// Before and After are the object as it was and as it will be, as far as the caller
	// knows: After has at least the fields that the change sets. An update whose Before
	// is nil must not change a field that refers to another object, or that no other
	// object may have, such as a name or an address.
	Before, After log.Object
}

// key stands for something that the order of changes can matter for: an object, a name,
// an address. It is a hash. Two things with one hash make changes wait that need not.
type key uint64

// seed is of this process: keys are never kept.
var seed = maphash.MakeSeed()

// The classes of keys. Things of different classes are different things.
const (
	ofID      byte = iota + 1 // an object, by its UUID, MAC or other id
	ofTag                     // a NIC tag
	ofAddress                 // an address of a network
	ofName                    // a name that no two objects may have
	ofSubnets                 // the subnets of one wire, which must not overlap
	ofVLAN                    // a VLAN of an owner
	ofMembers                 // the NICs, or VMMs, of one VM or server, which follow each other
	ofKind                    // all objects of a kind
)

// keys are what a change needs. It follows all earlier changes that write something that
// it needs, and all that read something that it writes.
type keys struct {
	writes, reads []key
}

// keyOf returns the key of some bytes in a class.
func keyOf(class byte, parts ...[]byte) key {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteByte(class)
	for _, part := range parts {
		h.WriteByte(byte(len(part)))
		h.Write(part)
	}
	return key(h.Sum64())
}

func textKey(class byte, parts ...string) key {
	all := make([][]byte, len(parts))
	for i, part := range parts {
		all[i] = []byte(part)
	}
	return keyOf(class, all...)
}

// add adds what one object of the change needs.
func (k *keys) add(t Touch) {
	switch t.Kind {
	case log.KindNICTag:
		k.writes = append(k.writes, textKey(ofTag, t.ID))
	case log.KindNIC, log.KindNetwork, log.KindServer, log.KindVM, log.KindVMM, log.KindNetworkPool,
		log.KindFabricVLAN, log.KindIP, log.KindAggregation, log.KindRouter, log.KindMigration:
		k.writes = append(k.writes, textKey(ofID, t.ID))
	default: // of kinds that are about the cluster there are few, and their rules look at all of them
		k.writes = append(k.writes, textKey(ofID, t.ID), keyOf(ofKind, []byte{byte(t.Kind)}))
	}
	how := changes
	switch {
	case t.Action == log.Create:
		how = creates
	case t.Action == log.Update && t.Before == nil:
		how = keeps
	}
	for _, o := range [...]log.Object{t.Before, t.After} {
		if o != nil {
			k.refer(o, how)
		}
	}
}

// how is what a change does to what an object refers to, and has.
type how byte

const (
	keeps   how = iota // an update that leaves it as it is
	creates            // the object is new
	changes            // it is given up, or another is taken
)

// uuids reads the objects of UUIDs, of which zero is none.
func (k *keys) uuids(all ...log.UUID) {
	for _, u := range all {
		if !u.IsZero() {
			k.reads = append(k.reads, textKey(ofID, u.String()))
		}
	}
}

func (k *keys) tags(all ...string) {
	for _, tag := range all {
		if tag != "" {
			k.reads = append(k.reads, textKey(ofTag, tag))
		}
	}
}

// taken notes something that no two objects can have. Of two new objects neither can have
// what the other has, so that they need not wait for each other; they wait for one that
// gives it up.
func (k *keys) taken(h how, taken key) {
	switch h {
	case creates:
		k.reads = append(k.reads, taken)
	case changes:
		k.writes = append(k.writes, taken)
	}
}

func (k *keys) address(h how, network log.UUID, ip netip.Addr) {
	if ip.IsValid() && h != keeps {
		k.writes = append(k.writes, keyOf(ofAddress, network[:], ip.AsSlice()))
	}
}

func (k *keys) member(h how, kind log.Kind, of log.UUID) {
	if !of.IsZero() && h != keeps {
		k.writes = append(k.writes, keyOf(ofMembers, []byte{byte(kind)}, of[:]))
	}
}

func numbers(all ...uint32) (b []byte) {
	for _, n := range all {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// refer adds what an object refers to, and what it has that others cannot have.
func (k *keys) refer(o log.Object, h how) {
	switch o := o.(type) {
	case *log.NICTag:
		k.taken(h, keyOf(ofName, o.UUID[:]))
	case *log.NIC:
		k.uuids(o.BelongsToUUID, o.NetworkUUID, o.CNUUID)
		k.tags(o.NICTag)
		k.tags(o.NICTagsProvided...)
		k.address(h, o.NetworkUUID, o.IP)
		k.member(h, log.KindNIC, o.BelongsToUUID)
	case *log.IP:
		k.uuids(o.NetworkUUID, o.BelongsToUUID)
		k.address(h, o.NetworkUUID, o.IP)
	case *log.Network:
		k.tags(o.NICTag)
		k.taken(h, textKey(ofName, "network", o.Name))
		k.taken(h, keyOf(ofSubnets, []byte(o.NICTag), numbers(o.VLANID, o.VNetID)))
		for _, owner := range o.OwnerUUIDs {
			if o.Fabric {
				k.reads = append(k.reads, keyOf(ofVLAN, owner[:], numbers(o.VLANID)))
				k.taken(h, keyOf(ofVLAN, owner[:])) // the last one gives up the owner's vnet
			}
		}
		if o.Fabric {
			k.taken(h, keyOf(ofVLAN, numbers(o.VNetID)))
		}
	case *log.FabricVLAN:
		k.writes = append(k.writes, keyOf(ofVLAN, o.OwnerUUID[:], numbers(o.VLANID)))
		if h != keeps { // its vnet is compared with those of the owner's networks, and not theirs with its own
			k.writes = append(k.writes, keyOf(ofVLAN, o.OwnerUUID[:]))
		}
		k.taken(h, keyOf(ofVLAN, numbers(o.VNetID)))
	case *log.NetworkPool:
		k.uuids(o.Networks...)
		k.taken(h, textKey(ofName, "network_pool", o.Name))
	case *log.Router:
		k.uuids(o.Networks...)
		k.uuids(o.VMUUID)
		k.taken(h, textKey(ofName, "router", o.Name))
		for _, network := range o.Networks {
			k.member(h, log.KindRouter, network)
			for _, ip := range o.Addresses {
				k.address(h, network, ip)
			}
		}
	case *log.Aggregation:
		k.uuids(o.BelongsToUUID)
		k.tags(o.NICTagsProvided...)
		k.member(h, log.KindAggregation, o.BelongsToUUID)
		for _, mac := range o.MACs {
			k.reads = append(k.reads, textKey(ofID, mac.String()))
		}
	case *log.Server:
		k.address(h, log.UUID{}, o.AdminIP)
	case *log.VM:
		k.uuids(o.ServerUUID)
		if o.Zonename != "" {
			k.taken(h, textKey(ofName, "zonename", o.Zonename))
		}
	case *log.VMM:
		k.uuids(o.InstanceID, o.SledID)
		k.member(h, log.KindVMM, o.InstanceID)
	case *log.Migration:
		k.uuids(o.InstanceID)
		k.member(h, log.KindVMM, o.InstanceID)
	}
}

// touches are those of a change of which nothing more is known.
func touches(c *log.Change) []Touch {
	all := make([]Touch, len(c.Ops))
	for i, op := range c.Ops {
		all[i] = Touch{Kind: op.Kind, Action: op.Action, ID: op.ID, After: op.Object}
		if op.ID == "" && op.Object != nil {
			all[i].ID = op.Object.ID()
		}
	}
	return all
}

func keysOf(c *log.Change, known []Touch) (k keys) {
	if known == nil {
		known = touches(c)
	}
	for _, t := range known {
		k.add(t)
	}
	return k
}

// plain are fields of updates that no rule compares with those of another object.
var plain = map[string]bool{
	"alias": true, "comments": true, "cpu_cap": true, "created_timestamp": true, "description": true, "gen": true,
	"hostname": true, "labels": true, "last_boot": true, "last_modified": true, "max_physical_memory": true,
	"modified_timestamp": true, "mtu": true, "properties": true, "quota": true, "reason": true, "resolvers": true,
	"state": true, "sysinfo": true, "time_updated": true, "zone_state": true,
}

// IsPlain reports whether an update of a field, by its JSON name, needs no Touch.Before.
func IsPlain(field string) bool { return plain[field] }
