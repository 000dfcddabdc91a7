package log

import (
	"fmt"
	"net/netip"
	"slices"
)

// Object is a thing with an id: one of *NICTag, *Network, *NIC, *Server, *VM,
// *VMM, *Migration, *IP, *NetworkPool, *FabricVLAN, *Aggregation, *Router and
// those of other files, or *Unknown for a kind that a newer program wrote.
//
// An object is written by whoever made it until it is handed to an event or a
// state; from then on nobody changes it (Clone first).
type Object interface {
	// Kind says which of the types it is.
	Kind() Kind
	// ID is the object's key within its kind, in text: a MAC with colons, a
	// tag's name, a UUID.
	ID() string
	// visit shows every field, in the order of the codec, to v. New fields are
	// only ever appended.
	visit(v visitor)
	// tail holds the encoded fields that this program does not know.
	tail() *extra
}

// extra carries the trailing fields of a newer program, so that a round trip
// loses nothing. They have no JSON form.
type extra struct{ raw [][]byte }

func (e *extra) tail() *extra { return e }

// HasUnknownFields reports whether an object carries fields of a newer program,
// which a copy of the fields that are known would lose.
func HasUnknownFields(o Object) bool { return len(o.tail().raw) > 0 }

// Route is one static route of a network: packets to Dst (an address or a
// prefix, in text) leave through Gateway (an address, or "linklocal").
type Route struct{ Dst, Gateway string }

// Addresses is a list of addresses. None and an empty one, which the codec does
// not tell apart, have one JSON form: [].
type Addresses []netip.Addr

// NICTag names a physical network; it bounds the MTU of the networks on it.
// Field names: NAPI (spec/napi.md section 3.1).
type NICTag struct {
	Name string `json:"name"` // the id: 1 to 31 of [A-Za-z0-9_]
	UUID UUID   `json:"uuid"`
	MTU  uint32 `json:"mtu"` // bytes, 1500 to 9000
	extra
}

// Kind implements Object.
func (*NICTag) Kind() Kind { return KindNICTag }

// ID implements Object: the tag's name.
func (t *NICTag) ID() string { return t.Name }

func (t *NICTag) visit(v visitor) {
	v.str("name", &t.Name)
	v.uuid("uuid", &t.UUID)
	v.u32("mtu", &t.MTU)
}

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
	extra
}

// Kind implements Object.
func (*Network) Kind() Kind { return KindNetwork }

// ID implements Object: the network's UUID.
func (n *Network) ID() string { return n.UUID.String() }

func (n *Network) visit(v visitor) {
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
}

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
	extra
}

// Kind implements Object.
func (*NIC) Kind() Kind { return KindNIC }

// ID implements Object: the MAC with colons.
func (n *NIC) ID() string { return n.MAC.String() }

func (n *NIC) visit(v visitor) {
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
}

// Server is a compute node (CN). Its NICs are NIC objects that belong to it.
// Field names: CNAPI (spec/cnapi.md section 4.3).
type Server struct {
	UUID            UUID   `json:"uuid"` // the id
	Hostname        string `json:"hostname"`
	Datacenter      string `json:"datacenter,omitempty"`
	Status          string `json:"status"` // running or unknown
	Setup           bool   `json:"setup"`
	Headnode        bool   `json:"headnode"`
	Comments        string `json:"comments,omitempty"`
	RackIdentifier  string `json:"rack_identifier,omitempty"`
	Serial          string `json:"serial,omitempty"`
	RAM             uint64 `json:"ram,omitempty"` // MiB
	Created         Time   `json:"created,omitzero"`
	LastBoot        Time   `json:"last_boot,omitzero"`
	CurrentPlatform string `json:"current_platform,omitempty"`

	// What is JSON is canonical, in text: api/triton/cnapi shows it as CNAPI does.
	Sysinfo            string     `json:"sysinfo,omitempty"` // what the CN last said of itself, in SmartOS's keys; a JSON object
	Agents             []string   `json:"agents,omitempty"`  // JSON objects {name, version, uuid, image_uuid}
	BootParams         string     `json:"boot_params,omitempty"`
	BootPlatform       string     `json:"boot_platform,omitempty"`
	BootModules        string     `json:"boot_modules,omitempty"`
	KernelFlags        string     `json:"kernel_flags,omitempty"`
	DefaultConsole     string     `json:"default_console,omitempty"`
	OverprovisionRatio string     `json:"overprovision_ratios,omitempty"`
	ReservationRatio   string     `json:"reservation_ratio,omitempty"` // as in 0.15: a number, in text
	Traits             string     `json:"traits,omitempty"`
	Reserved           bool       `json:"reserved,omitempty"`  // takes no new VMs
	Reservoir          bool       `json:"reservoir,omitempty"` // takes them last
	SettingUp          bool       `json:"setting_up,omitempty"`
	TransitionalStatus string     `json:"transitional_status,omitempty"` // rebooting, or none
	AdminIP            netip.Addr `json:"admin_ip,omitzero"`             // where its agent is reached, of its sysinfo
	AgentPort          uint32     `json:"agent_port,omitempty"`          // there; 0: the default
	extra
}

// Kind implements Object.
func (*Server) Kind() Kind { return KindServer }

// ID implements Object: the CN's UUID.
func (s *Server) ID() string { return s.UUID.String() }

func (s *Server) visit(v visitor) {
	v.uuid("uuid", &s.UUID)
	v.str("hostname", &s.Hostname)
	v.str("datacenter", &s.Datacenter)
	v.str("status", &s.Status)
	v.boolean("setup", &s.Setup)
	v.boolean("headnode", &s.Headnode)
	v.str("comments", &s.Comments)
	v.str("rack_identifier", &s.RackIdentifier)
	v.str("serial", &s.Serial)
	v.u64("ram", &s.RAM)
	v.time("created", &s.Created)
	v.time("last_boot", &s.LastBoot)
	v.str("current_platform", &s.CurrentPlatform)
	v.str("sysinfo", &s.Sysinfo)
	v.strs("agents", &s.Agents)
	v.str("boot_params", &s.BootParams)
	v.str("boot_platform", &s.BootPlatform)
	v.str("boot_modules", &s.BootModules)
	v.str("kernel_flags", &s.KernelFlags)
	v.str("default_console", &s.DefaultConsole)
	v.str("overprovision_ratios", &s.OverprovisionRatio)
	v.str("reservation_ratio", &s.ReservationRatio)
	v.str("traits", &s.Traits)
	v.boolean("reserved", &s.Reserved)
	v.boolean("reservoir", &s.Reservoir)
	v.boolean("setting_up", &s.SettingUp)
	v.str("transitional_status", &s.TransitionalStatus)
	v.addr("admin_ip", &s.AdminIP)
	v.u32("agent_port", &s.AgentPort)
}

// VM is the inventory object of an instance. Field names: VMAPI.
type VM struct {
	UUID              UUID   `json:"uuid"` // the id
	Alias             string `json:"alias,omitempty"`
	OwnerUUID         UUID   `json:"owner_uuid"`
	Brand             string `json:"brand,omitempty"`
	State             string `json:"state"` // provisioning, running, stopped, …
	ZoneState         string `json:"zone_state,omitempty"`
	ServerUUID        UUID   `json:"server_uuid,omitzero"`          // the CN that it is on
	Zonename          string `json:"zonename"`                      // name of its network namespace; the UUID unless given
	MaxPhysicalMemory uint64 `json:"max_physical_memory,omitempty"` // MiB
	Quota             uint64 `json:"quota,omitempty"`               // GiB
	CPUCap            uint64 `json:"cpu_cap,omitempty"`             // percent of one CPU
	ImageUUID         UUID   `json:"image_uuid,omitzero"`
	CreateTimestamp   Time   `json:"create_timestamp,omitzero"`
	LastModified      Time   `json:"last_modified,omitzero"`
	DoNotInventory    bool   `json:"do_not_inventory,omitempty"`
	extra
}

// Kind implements Object.
func (*VM) Kind() Kind { return KindVM }

// ID implements Object: the VM's UUID.
func (m *VM) ID() string { return m.UUID.String() }

func (m *VM) visit(v visitor) {
	v.uuid("uuid", &m.UUID)
	v.str("alias", &m.Alias)
	v.uuid("owner_uuid", &m.OwnerUUID)
	v.str("brand", &m.Brand)
	v.str("state", &m.State)
	v.str("zone_state", &m.ZoneState)
	v.uuid("server_uuid", &m.ServerUUID)
	v.str("zonename", &m.Zonename)
	v.u64("max_physical_memory", &m.MaxPhysicalMemory)
	v.u64("quota", &m.Quota)
	v.u64("cpu_cap", &m.CPUCap)
	v.uuid("image_uuid", &m.ImageUUID)
	v.time("create_timestamp", &m.CreateTimestamp)
	v.time("last_modified", &m.LastModified)
	v.boolean("do_not_inventory", &m.DoNotInventory)
}

// VMM is one running incarnation of a VM. Gen is owned by the VMM's CN and only
// grows. Field names: Omicron (spec/vmm-doorbell.md section 7.1).
type VMM struct {
	UUID        UUID   `json:"id"`          // the id: propolis_id in Omicron
	InstanceID  UUID   `json:"instance_id"` // the VM
	SledID      UUID   `json:"sled_id"`     // the CN
	State       string `json:"state"`       // starting, running, stopping, …
	Gen         uint64 `json:"gen"`
	TimeUpdated Time   `json:"time_updated,omitzero"`
	Reason      string `json:"reason,omitempty"` // of a failure
	extra
}

// Kind implements Object.
func (*VMM) Kind() Kind { return KindVMM }

// ID implements Object: the VMM's UUID.
func (m *VMM) ID() string { return m.UUID.String() }

func (m *VMM) visit(v visitor) {
	v.uuid("id", &m.UUID)
	v.uuid("instance_id", &m.InstanceID)
	v.uuid("sled_id", &m.SledID)
	v.str("state", &m.State)
	v.u64("gen", &m.Gen)
	v.time("time_updated", &m.TimeUpdated)
	v.str("reason", &m.Reason)
}

// Unknown is an object of a kind that this program does not know: its bytes are
// carried as they came.
type Unknown struct {
	OfKind Kind   `json:"kind"`
	Key    string `json:"id"`
	extra
}

// Kind implements Object.
func (u *Unknown) Kind() Kind { return u.OfKind }

// ID implements Object.
func (u *Unknown) ID() string { return u.Key }

func (*Unknown) visit(visitor) {}

// known says of each kind whether NewObject makes one.
var known = func() (known [len(kindNames)]bool) {
	for k := range known {
		known[k] = NewObject(Kind(k)) != nil
	}
	return known
}()

// Known reports whether this program knows the kind: whether NewObject makes one.
func (k Kind) Known() bool { return int(k) < len(known) && known[k] }

// NewObject returns an empty object of kind k, or nil if this program does not
// know the kind.
func NewObject(k Kind) Object {
	switch k {
	case KindNICTag:
		return new(NICTag)
	case KindNetwork:
		return new(Network)
	case KindNIC:
		return new(NIC)
	case KindServer:
		return new(Server)
	case KindVM:
		return new(VM)
	case KindVMM:
		return new(VMM)
	case KindMigration:
		return new(Migration)
	case KindToken:
		return new(Token)
	case KindRevocation:
		return new(Revocation)
	case KindAuthority:
		return new(Authority)
	case KindCertificate:
		return new(Certificate)
	case KindGrant:
		return new(Grant)
	case KindIP:
		return new(IP)
	case KindNetworkPool:
		return new(NetworkPool)
	case KindFabricVLAN:
		return new(FabricVLAN)
	case KindAggregation:
		return new(Aggregation)
	case KindRouter:
		return new(Router)
	case KindSetting:
		return new(Setting)
	case KindTask:
		return new(Task)
	case KindTicket:
		return new(Ticket)
	default:
		return nil
	}
}

// Clone returns a copy of o that shares nothing which a writer of fields could
// change: slices are copied.
func Clone(o Object) Object {
	c := shallow(o)
	c.visit(unshare{})
	return c
}

func shallow(o Object) Object {
	switch o := o.(type) {
	case *NICTag:
		c := *o
		return &c
	case *Network:
		c := *o
		return &c
	case *NIC:
		c := *o
		return &c
	case *Server:
		c := *o
		return &c
	case *VM:
		c := *o
		return &c
	case *VMM:
		c := *o
		return &c
	case *Migration:
		c := *o
		return &c
	case *Token:
		c := *o
		return &c
	case *Revocation:
		c := *o
		return &c
	case *Authority:
		c := *o
		return &c
	case *Certificate:
		c := *o
		return &c
	case *Grant:
		c := *o
		return &c
	case *IP:
		c := *o
		return &c
	case *NetworkPool:
		c := *o
		return &c
	case *FabricVLAN:
		c := *o
		return &c
	case *Aggregation:
		c := *o
		return &c
	case *Router:
		c := *o
		return &c
	case *Setting:
		c := *o
		return &c
	case *Task:
		c := *o
		return &c
	case *Ticket:
		c := *o
		return &c
	case *Unknown:
		c := *o
		return &c
	}
	panic(fmt.Sprintf("log: object of type %T cannot be cloned", o))
}

// unshare is the visitor that gives every slice memory of its own.
type unshare struct{}

func (unshare) str(string, *string)             {}
func (unshare) boolean(string, *bool)           {}
func (unshare) u32(string, *uint32)             {}
func (unshare) u64(string, *uint64)             {}
func (unshare) time(string, *Time)              {}
func (unshare) uuid(string, *UUID)              {}
func (unshare) mac(string, *MAC)                {}
func (unshare) addr(string, *netip.Addr)        {}
func (unshare) prefix(string, *netip.Prefix)    {}
func (unshare) strs(_ string, p *[]string)      { *p = slices.Clone(*p) }
func (unshare) uuids(_ string, p *[]UUID)       { *p = slices.Clone(*p) }
func (unshare) macs(_ string, p *[]MAC)         { *p = slices.Clone(*p) }
func (unshare) u32s(_ string, p *[]uint32)      { *p = slices.Clone(*p) }
func (unshare) addrs(_ string, p *[]netip.Addr) { *p = slices.Clone(*p) }
func (unshare) routes(_ string, p *Routes)      { *p = slices.Clone(*p) }
