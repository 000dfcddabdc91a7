package log

import "net/netip"

// KindNetwork is the kind of networks.
const KindNetwork Kind = 2

// Network is a logical network: a subnet on a tag and VLAN, or a fabric
// network, which lies on a vnet. Field names: NAPI (spec/napi.md section 3.1).
type Network struct {
	UUID               UUID         `json:"uuid"` // the id
	Name               string       `json:"name"`
	Family             string       `json:"family"`  // ipv4 or ipv6, that of Subnet
	VLANID             uint32       `json:"vlan_id"` // 0 (untagged), 2 to 4094
	NICTag             string       `json:"nic_tag"`
	Subnet             netip.Prefix `json:"subnet"`
	ProvisionStart     netip.Addr   `json:"provision_start_ip,omitzero"`
	ProvisionEnd       netip.Addr   `json:"provision_end_ip,omitzero"`
	Gateway            netip.Addr   `json:"gateway,omitzero"`
	Resolvers          Addresses    `json:"resolvers"`
	Routes             Routes       `json:"routes,omitempty"` // sorted by Dst
	MTU                uint32       `json:"mtu"`              // bytes, 576 to 9000
	OwnerUUIDs         []UUID       `json:"owner_uuids,omitempty"`
	Description        string       `json:"description,omitempty"`
	Fabric             bool         `json:"fabric,omitempty"`
	VNetID             uint32       `json:"vnet_id,omitempty"` // VXLAN network id, 24 bits; fabrics only
	InternetNAT        bool         `json:"internet_nat,omitempty"`
	GatewayProvisioned bool         `json:"gateway_provisioned,omitempty"`
	// SelfProvision: which compute nodes may make NICs on the network by themselves, from
	// FeatureConfined on: one of SelfProvisions, or "" for the default.
	SelfProvision string `json:"self_provision,omitempty"`
	// Of fabric networks, from FeatureWire on.
	DHCP      bool     `json:"dhcp,omitempty"`      // nodes answer DHCP requests of its VMs
	Broadcast bool     `json:"broadcast,omitempty"` // broadcast and multicast reach its VMs on all nodes
	Labels    []string `json:"labels,omitempty"`    // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// Which compute nodes (CNs) may make NICs on a network by themselves. What operators
// and programs with their rights place is not concerned. A network that says nothing
// has SelfProvisionJoined; a fabric, what the setting fabric.self_provision says.
const (
	SelfProvisionOff    = "off"    // none
	SelfProvisionJoined = "joined" // CNs that have a NIC on it already, or on its vnet
	SelfProvisionAny    = "any"    // all
)

// SelfProvisions are the values of self_provision.
var SelfProvisions = []string{SelfProvisionOff, SelfProvisionJoined, SelfProvisionAny}

// networkKind is the row of networks in the table of kinds.
var networkKind = kind{
	Description: Description{
		Name: "network", Noun: "network", Title: "Network",
		IDField: "uuid", IDForm: IDUUID,
		Immutable:   []string{"uuid", "family", "subnet", "fabric", "vnet_id", "internet_nat", "gateway_provisioned"},
		TenantField: "owner_uuids",
		Options:     []Option{OptionAllocateSubnet},
		Path:        "networks",
		Filters:     []string{"fabric", "family", "labels", "name", "nic_tag", "uuid", "vlan_id", "vnet_id"},
		Command: Command{
			Name: "network", Usage: "networks, fabric networks among them",
			Columns: []Column{{"UUID", "uuid"}, {"NAME", "name"}, {"SUBNET", "subnet"}, {"TAG", "nic_tag"}, {"VLAN", "vlan_id"}, {"VNET", "vnet_id"}, {"GATEWAY", "gateway"}, {"MTU", "mtu"}},
			Example: Example{
				ID:     "0e70de36-a40b-4ac0-9429-819f5ff82011",
				Pick:   "fabric=true",
				Create: "name=blue nic_tag=external vlan_id=0 subnet=10.1.0.0/24 provision_start_ip=10.1.0.5 provision_end_ip=10.1.0.250",
				Change: "dhcp=true",
			},
		},
	},
	fields: fields[Network](func(n *Network, v visitor) {
		v.uuid("uuid", &n.UUID)
		v.str("name", &n.Name)
		v.str("family", &n.Family)
		v.u32("vlan_id", &n.VLANID)
		v.str("nic_tag", &n.NICTag)
		v.prefix("subnet", &n.Subnet)
		v.addr("provision_start_ip", &n.ProvisionStart)
		v.addr("provision_end_ip", &n.ProvisionEnd)
		v.addr("gateway", &n.Gateway)
		v.addrs("resolvers", (*[]netip.Addr)(&n.Resolvers))
		v.routes("routes", &n.Routes)
		v.u32("mtu", &n.MTU)
		v.uuids("owner_uuids", &n.OwnerUUIDs)
		v.str("description", &n.Description)
		v.boolean("fabric", &n.Fabric)
		v.u32("vnet_id", &n.VNetID)
		v.boolean("internet_nat", &n.InternetNAT)
		v.boolean("gateway_provisioned", &n.GatewayProvisioned)
		if takes(v, FeatureConfined) {
			v.str("self_provision", &n.SelfProvision)
		}
		if takes(v, FeatureWire) {
			v.boolean("dhcp", &n.DHCP)
			v.boolean("broadcast", &n.Broadcast)
		}
		labels(v, &n.Labels)
	}),
	late: late[Network]{
		{1, FeatureConfined, func(n *Network) bool { return n.SelfProvision == "" }},
		{2, FeatureWire, func(n *Network) bool { return !n.DHCP && !n.Broadcast }},
		{1, FeatureDeclared, func(n *Network) bool { return len(n.Labels) == 0 }},
	},
	scope: scopes[Network](func(n *Network) Scope {
		if n.Fabric {
			return VNetScope(n.VNetID)
		}
		return NetworkScope(n.UUID)
	}),
}

// Kind implements Object.
func (*Network) Kind() Kind { return KindNetwork }

// ID implements Object: the network's UUID.
func (n *Network) ID() string { return n.UUID.String() }

// LabelList implements Labelled.
func (n *Network) LabelList() *[]string { return &n.Labels }
