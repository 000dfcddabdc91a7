package log

import (
	"net/netip"
	"strconv"
)

// IP is what an address of a network carries beyond "a NIC uses it": that it is
// reserved, or belongs to something that has no NIC. An address without any of
// this has no object. Field names: NAPI (spec/napi.md section 3.1).
type IP struct {
	NetworkUUID   UUID       `json:"network_uuid"`
	IP            netip.Addr `json:"ip"`
	Reserved      bool       `json:"reserved"` // never handed out by provisioning
	BelongsToType string     `json:"belongs_to_type,omitempty"`
	BelongsToUUID UUID       `json:"belongs_to_uuid,omitzero"` // empty while a NIC has the address
	OwnerUUID     UUID       `json:"owner_uuid,omitzero"`
	extra
}

// Kind implements Object.
func (*IP) Kind() Kind { return KindIP }

// ID implements Object: NETWORK:ADDRESS.
func (i *IP) ID() string { return IPID(i.NetworkUUID, i.IP) }

// IPID is the id of the IP object of a network's address.
func IPID(network UUID, ip netip.Addr) string { return network.String() + ":" + ip.String() }

func (i *IP) visit(v visitor) {
	v.uuid("network_uuid", &i.NetworkUUID)
	v.addr("ip", &i.IP)
	v.boolean("reserved", &i.Reserved)
	v.str("belongs_to_type", &i.BelongsToType)
	v.uuid("belongs_to_uuid", &i.BelongsToUUID)
	v.uuid("owner_uuid", &i.OwnerUUID)
}

// NetworkPool is a list of networks of one family from which a NIC gets the
// first that has room. Its NIC tags are those of its networks. Field names:
// NAPI (spec/napi.md section 3.1).
type NetworkPool struct {
	UUID        UUID   `json:"uuid"` // the id
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Family      string `json:"family"`   // that of its networks
	Networks    []UUID `json:"networks"` // in the order in which they are filled
	OwnerUUIDs  []UUID `json:"owner_uuids,omitempty"`
	extra
}

// Kind implements Object.
func (*NetworkPool) Kind() Kind { return KindNetworkPool }

// ID implements Object: the pool's UUID.
func (p *NetworkPool) ID() string { return p.UUID.String() }

func (p *NetworkPool) visit(v visitor) {
	v.uuid("uuid", &p.UUID)
	v.str("name", &p.Name)
	v.str("description", &p.Description)
	v.str("family", &p.Family)
	v.uuids("networks", &p.Networks)
	v.uuids("owner_uuids", &p.OwnerUUIDs)
}

// FabricVLAN is a VLAN of an owner's fabric, which is one vnet. Field names:
// NAPI (spec/napi.md section 3.1).
type FabricVLAN struct {
	OwnerUUID   UUID   `json:"owner_uuid"`
	VLANID      uint32 `json:"vlan_id"` // 0, 2 to 4094
	VNetID      uint32 `json:"vnet_id"` // the owner's
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	extra
}

// Kind implements Object.
func (*FabricVLAN) Kind() Kind { return KindFabricVLAN }

// ID implements Object: OWNER:VLAN.
func (f *FabricVLAN) ID() string { return FabricVLANID(f.OwnerUUID, f.VLANID) }

// FabricVLANID is the id of an owner's VLAN.
func FabricVLANID(owner UUID, vlan uint32) string {
	return owner.String() + ":" + strconv.FormatUint(uint64(vlan), 10)
}

func (f *FabricVLAN) visit(v visitor) {
	v.uuid("owner_uuid", &f.OwnerUUID)
	v.u32("vlan_id", &f.VLANID)
	v.u32("vnet_id", &f.VNetID)
	v.str("name", &f.Name)
	v.str("description", &f.Description)
}

// Aggregation is a group of a server's NICs that act as one link. Field names:
// NAPI (spec/napi.md section 3.1).
type Aggregation struct {
	BelongsToUUID   UUID     `json:"belongs_to_uuid"` // the server: that of its NICs
	Name            string   `json:"name"`            // ends in a digit
	LACPMode        string   `json:"lacp_mode"`       // off, active or passive
	MACs            []MAC    `json:"macs"`            // of NICs
	NICTagsProvided []string `json:"nic_tags_provided,omitempty"`
	extra
}

// Kind implements Object.
func (*Aggregation) Kind() Kind { return KindAggregation }

// ID implements Object: SERVER-NAME, as NAPI has it.
func (a *Aggregation) ID() string { return a.BelongsToUUID.String() + "-" + a.Name }

func (a *Aggregation) visit(v visitor) {
	v.uuid("belongs_to_uuid", &a.BelongsToUUID)
	v.str("name", &a.Name)
	v.str("lacp_mode", &a.LACPMode)
	v.macs("macs", &a.MACs)
	v.strs("nic_tags_provided", &a.NICTagsProvided)
}

// Router joins fabric networks of one owner: each gets routes to the subnets of
// the others through the router's address on it. Field names: RFD 120; what it
// has none for are ours.
type Router struct {
	UUID        UUID      `json:"uuid"` // the id
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	OwnerUUID   UUID      `json:"owner_uuid"`
	Family      string    `json:"family"`           // that of its networks
	Networks    []UUID    `json:"networks"`         // two or more
	Addresses   Addresses `json:"addresses"`        // the router's own, one on each of Networks
	VNets       []uint32  `json:"vnet_ids"`         // those of Networks, sorted
	VMUUID      UUID      `json:"vm_uuid,omitzero"` // the VM that forwards, if it is known
	CNUUID      UUID      `json:"cn_uuid,omitzero"` // the CN that this VM is on
	extra
}

// Kind implements Object.
func (*Router) Kind() Kind { return KindRouter }

// ID implements Object: the router's UUID.
func (r *Router) ID() string { return r.UUID.String() }

func (r *Router) visit(v visitor) {
	v.uuid("uuid", &r.UUID)
	v.str("name", &r.Name)
	v.str("description", &r.Description)
	v.uuid("owner_uuid", &r.OwnerUUID)
	v.str("family", &r.Family)
	v.uuids("networks", &r.Networks)
	v.addrs("addresses", (*[]netip.Addr)(&r.Addresses))
	v.u32s("vnet_ids", &r.VNets)
	v.uuid("vm_uuid", &r.VMUUID)
	v.uuid("cn_uuid", &r.CNUUID)
}
