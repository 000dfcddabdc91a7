package log

import "net/netip"

// KindNIC is the kind of NICs.
const KindNIC Kind = 3

// NIC is a network interface of a VM or of a server. What it takes from its
// network (gateway, netmask, MTU, resolvers, routes) is not kept here: the
// readers of the state add it. Field names: NAPI (spec/napi.md section 3.1).
type NIC struct {
	MAC                    MAC        `json:"mac"`             // the id
	BelongsToType          string     `json:"belongs_to_type"` // zone, server or other
	BelongsToUUID          UUID       `json:"belongs_to_uuid"`
	OwnerUUID              UUID       `json:"owner_uuid"`
	Primary                bool       `json:"primary"`
	State                  string     `json:"state"` // provisioning, stopped or running
	Created                Time       `json:"created_timestamp,omitzero"`
	Modified               Time       `json:"modified_timestamp,omitzero"`
	NetworkUUID            UUID       `json:"network_uuid,omitzero"`
	IP                     netip.Addr `json:"ip,omitzero"`
	CNUUID                 UUID       `json:"cn_uuid,omitzero"` // the CN that it is on
	Model                  string     `json:"model,omitempty"`
	NICTag                 string     `json:"nic_tag,omitempty"` // without a network; else the network's
	VLANID                 uint32     `json:"vlan_id"`           // without a network; else the network's
	NICTagsProvided        []string   `json:"nic_tags_provided,omitempty"`
	AllowDHCPSpoofing      bool       `json:"allow_dhcp_spoofing,omitempty"`
	AllowIPSpoofing        bool       `json:"allow_ip_spoofing,omitempty"`
	AllowMACSpoofing       bool       `json:"allow_mac_spoofing,omitempty"`
	AllowRestrictedTraffic bool       `json:"allow_restricted_traffic,omitempty"`
	AllowUnfilteredPromisc bool       `json:"allow_unfiltered_promisc,omitempty"`
	Underlay               bool       `json:"underlay,omitempty"` // carries VXLAN; server NICs only
	// Of underlay NICs, from FeaturePerNode on: what the server says, which writes them.
	VXLANPort   uint32 `json:"vxlan_port,omitempty"`
	UnderlayMTU uint32 `json:"underlay_mtu,omitempty"`
	// AllowedIPs: further source addresses of a VM's frames on a fabric, such as one that a
	// pair of VMs shares, from FeatureWire on: sorted, at most MaxAllowedIPs.
	AllowedIPs Addresses `json:"allowed_ips,omitempty"`
	Labels     []string  `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// MaxAllowedIPs bounds NIC.AllowedIPs: each is a rule in the kernel of the NIC's node.
const MaxAllowedIPs = 16

// nicKind is the row of NICs in the table of kinds.
var nicKind = kind{
	Description: Description{
		Name: "nic", Noun: "nic", Title: "NIC",
		IDField: "mac", IDForm: IDMAC,
		Immutable:   []string{"mac", "created_timestamp", "modified_timestamp", "vxlan_port", "underlay_mtu"},
		TenantField: "owner_uuid",
		Options:     []Option{OptionAnyOwner, OptionReserveIP, OptionReleaseIP},
		CN: &Rights{
			Create: []string{
				"allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc",
				"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "mac", "model", "network_uuid", "nic_tag", "nic_tags_provided",
				"owner_uuid", "primary", "state", "vlan_id",
			},
			Update: []string{
				"allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc",
				"cn_uuid", "model", "primary", "state",
			},
			Delete: true,
			Why:    "of the VMs that are placed on it, as net-agent does; a new one only on a network that self_provision opens, with an address that is free to all",
		},
		Path:    "nics",
		Filters: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "ip", "labels", "network_uuid", "owner_uuid", "primary", "state", "underlay"},
		Command: Command{
			Name: "nic", Usage: "network interfaces of VMs and servers",
			Columns: []Column{{"MAC", "mac"}, {"IP", "ip"}, {"TYPE", "belongs_to_type"}, {"BELONGS TO", "belongs_to_uuid"}, {"NETWORK", "network_uuid"}, {"CN", "cn_uuid"}, {"STATE", "state"}},
			Example: Example{
				ID:     "90:b8:d0:10:02:00",
				Pick:   "cn_uuid=564d69b1-a178-4fbe-b36f-3f2b7fd7ed01",
				Create: "belongs_to_type=zone belongs_to_uuid=VM owner_uuid=OWNER cn_uuid=CN network_uuid=NETWORK",
				Change: "state=running",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "mac", Text: "The MAC address, which is the id.", Default: "a free one"},
		{Name: "belongs_to_type", Text: "What the NIC belongs to: a VM (zone), a server, or something else; in documents the fields vm and server say it.", Values: []string{"zone", "server", "other"}},
		{Name: "belongs_to_uuid", Text: "The UUID of the VM, the server or the other thing."},
		{Name: "owner_uuid", Text: "The owner of the NIC.", Default: "in documents the owner of the VM"},
		{Name: "primary", Text: "The NIC has the default route of its VM; only one does.", Default: "false"},
		{Name: "state", Text: "Whether the NIC is in use.", Values: []string{"provisioning", "stopped", "running"}, By: SetByNodes},
		{Name: "created_timestamp", Text: "When the NIC was created.", By: SetByDeciding},
		{Name: "modified_timestamp", Text: "When the NIC last changed.", By: SetByDeciding},
		{Name: "network_uuid", Text: "The network, or at first a network pool, of which the first network with room is taken.", Default: "none", Document: "network", Refers: KindNetwork},
		{Name: "ip", Text: "The address on the network.", Default: "a free one of the provision range"},
		{Name: "cn_uuid", Text: "The compute node that the NIC is on.", Default: "that of the VM", Document: "cn", Refers: KindServer},
		{Name: "model", Text: "The virtual hardware, as in virtio.", Default: "none"},
		{Name: "nic_tag", Text: "The NIC tag of a NIC without a network.", Default: "none", Refers: KindNICTag},
		{Name: "vlan_id", Text: "The VLAN of a NIC without a network; 0 is untagged.", Default: "0"},
		{Name: "nic_tags_provided", Text: "The NIC tags that a server's NIC carries.", Default: "none", Refers: KindNICTag},
		{Name: "allow_dhcp_spoofing", Text: "The VM may answer DHCP requests of others.", Default: "false"},
		{Name: "allow_ip_spoofing", Text: "The VM may send from any IP address.", Default: "false"},
		{Name: "allow_mac_spoofing", Text: "The VM may send from any MAC address.", Default: "false"},
		{Name: "allow_restricted_traffic", Text: "The VM may send frames that are neither IP nor ARP.", Default: "false"},
		{Name: "allow_unfiltered_promisc", Text: "The VM may receive frames that are for others.", Default: "false"},
		{Name: "underlay", Text: "A server's NIC that carries VXLAN.", Default: "false"},
		{Name: "vxlan_port", Text: "The UDP port at which the NIC's server receives VXLAN.", By: SetByDeciding},
		{Name: "underlay_mtu", Text: "The MTU of the underlay, as the NIC's server has it.", Unit: "bytes", By: SetByDeciding},
		{Name: "allowed_ips", Text: "Further addresses from which the VM may send on a fabric, at most 16.", Default: "none"},
	},
	fields: fields[NIC](func(n *NIC, v visitor) {
		v.mac("mac", &n.MAC)
		v.str("belongs_to_type", &n.BelongsToType)
		v.uuid("belongs_to_uuid", &n.BelongsToUUID)
		v.uuid("owner_uuid", &n.OwnerUUID)
		v.boolean("primary", &n.Primary)
		v.str("state", &n.State)
		v.time("created_timestamp", &n.Created)
		v.time("modified_timestamp", &n.Modified)
		v.uuid("network_uuid", &n.NetworkUUID)
		v.addr("ip", &n.IP)
		v.uuid("cn_uuid", &n.CNUUID)
		v.str("model", &n.Model)
		v.str("nic_tag", &n.NICTag)
		v.u32("vlan_id", &n.VLANID)
		v.strs("nic_tags_provided", &n.NICTagsProvided)
		v.boolean("allow_dhcp_spoofing", &n.AllowDHCPSpoofing)
		v.boolean("allow_ip_spoofing", &n.AllowIPSpoofing)
		v.boolean("allow_mac_spoofing", &n.AllowMACSpoofing)
		v.boolean("allow_restricted_traffic", &n.AllowRestrictedTraffic)
		v.boolean("allow_unfiltered_promisc", &n.AllowUnfilteredPromisc)
		v.boolean("underlay", &n.Underlay)
		if takes(v, FeaturePerNode) {
			v.u32("vxlan_port", &n.VXLANPort)
			v.u32("underlay_mtu", &n.UnderlayMTU)
		}
		if takes(v, FeatureWire) {
			v.addrs("allowed_ips", (*[]netip.Addr)(&n.AllowedIPs))
		}
		labels(v, &n.Labels)
	}),
	late: late[NIC]{
		{2, FeaturePerNode, func(n *NIC) bool { return n.VXLANPort == 0 && n.UnderlayMTU == 0 }},
		{1, FeatureWire, func(n *NIC) bool { return len(n.AllowedIPs) == 0 }},
		{1, FeatureDeclared, func(n *NIC) bool { return len(n.Labels) == 0 }},
	},
}

// Kind implements Object.
func (*NIC) Kind() Kind { return KindNIC }

// ID implements Object: the MAC with colons.
func (n *NIC) ID() string { return n.MAC.String() }

// LabelList implements Labelled.
func (n *NIC) LabelList() *[]string { return &n.Labels }
