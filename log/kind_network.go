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
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the network.", Default: "one that the servers choose"},
		{Name: "name", Text: "The name, which only this network has; of fabrics, only this one of its owner."},
		{Name: "family", Text: "The family of the subnet.", Values: []string{"ipv4", "ipv6"}, By: SetByDeciding},
		{Name: "vlan_id", Text: "The VLAN that carries the network; 0 is untagged, 1 is refused.", Default: "0"},
		{Name: "nic_tag", Text: "The NIC tag that the network lies on.", Refers: KindNICTag},
		{Name: "subnet", Text: "The addresses of the network, without host bits, as in 10.1.0.0/24."},
		{Name: "provision_start_ip", Text: "The first address that is given to a NIC that names none.", Default: "the first usable one"},
		{Name: "provision_end_ip", Text: "The last address that is given to a NIC that names none.", Default: "the last usable one"},
		{Name: "gateway", Text: "The address of the default gateway, which VMs are told.", Default: "none"},
		{Name: "resolvers", Text: "The DNS servers that VMs are told, in this order, at most 16.", Default: "none"},
		{Name: "routes", Text: "Static routes that VMs are told: a destination, and its gateway or linklocal; those of routers are not among them in documents.", Default: "none"},
		{Name: "mtu", Text: "The MTU of the links of the network.", Unit: "bytes", Default: "that of the NIC tag, on fabrics less what VXLAN takes"},
		{Name: "owner_uuids", Text: "The owners whose VMs may use the network; none: all may.", Default: "none"},
		{Name: "description", Text: "What people want to remember.", Default: "none"},
		{Name: "fabric", Text: "The network lies on a vnet of its owner, which VXLAN carries.", Default: "false"},
		{Name: "vnet_id", Text: "The VXLAN network id of a fabric network, 1 to 16777215.", Default: "that of the owner's other fabrics, else a free one"},
		{Name: "internet_nat", Text: "The gateway of a fabric network translates to the internet.", Default: "false"},
		{Name: "gateway_provisioned", Text: "A NIC of a fabric network has the address of its gateway.", By: SetByDeciding},
		{Name: "self_provision", Text: "Which compute nodes may make NICs on the network by themselves.", Default: "joined, on fabrics the setting fabric.self_provision", Values: []string{"off", "joined", "any"}},
		{Name: "dhcp", Text: "Compute nodes answer the DHCP requests of VMs on a fabric network.", Default: "false"},
		{Name: "broadcast", Text: "Broadcast and multicast reach the VMs of a fabric network on all nodes.", Default: "false"},
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
