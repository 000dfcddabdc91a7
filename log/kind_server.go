package log

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// KindServer is the kind of servers.
const KindServer Kind = 4

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

	// From FeaturePerNode on. The underlay NICs of the server repeat the first two, where
	// the other CNs read them.
	VXLANPort   uint32 `json:"vxlan_port,omitempty"`   // UDP, where it receives VXLAN packets; 0: 4789
	UnderlayMTU uint32 `json:"underlay_mtu,omitempty"` // bytes, of the interface to the other VTEPs, as the CN last reported; 0: not known
	// UnderlayPaths are paths to other VTEPs that carry less than UnderlayMTU, as the CN
	// last reported: PathTo in text, the narrowest first, at most MaxPaths.
	UnderlayPaths []string `json:"underlay_paths,omitempty"`
	Labels        []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// serverKind is the row of servers in the table of kinds.
var serverKind = kind{
	Description: Description{
		Name: "server", Noun: "server", Title: "Server",
		IDField: "uuid", IDForm: IDUUID,
		Immutable: []string{"uuid"},
		CN: &Rights{
			Create: []string{
				"agents", "created", "current_platform", "headnode", "hostname", "last_boot", "ram", "serial", "setup", "sysinfo", "uuid",
			},
			Update: []string{"agents", "created", "current_platform", "headnode", "hostname", "last_boot", "ram", "serial", "setup", "sysinfo"},
			Late:   []string{"underlay_mtu", "underlay_paths"},
			Why:    "what it finds in its own machine; its status is judged by the servers, all else is the operators'",
		},
		Path:    "servers",
		Filters: []string{"datacenter", "headnode", "hostname", "labels", "setup", "status", "uuid"},
		Command: Command{
			Name: "cn", Usage: "compute nodes (CNs): their objects and sessions",
			Columns: []Column{{"UUID", "uuid"}, {"HOSTNAME", "hostname"}, {"STATUS", "status"}, {"SETUP", "setup"}},
			Example: Example{
				ID:     "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01",
				Pick:   "status=unknown",
				Create: "uuid=CN hostname=cn1",
				Change: "reserved=true",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the compute node (CN), which its hardware has."},
		{Name: "hostname", Text: "The name of the compute node."},
		{Name: "datacenter", Text: "The datacenter that it stands in.", Default: "none"},
		{Name: "status", Text: "Whether its agent is connected; expunged of one that will not come back.", Values: []string{"running", "unknown", "expunged"}, By: SetByNodes},
		{Name: "setup", Text: "The compute node is ready for VMs.", By: SetByNodes},
		{Name: "headnode", Text: "The compute node runs the cloud's own services.", By: SetByNodes},
		{Name: "comments", Text: "What people want to remember.", Default: "none"},
		{Name: "rack_identifier", Text: "The rack that it stands in.", Default: "none"},
		{Name: "serial", Text: "The serial number of its hardware.", By: SetByNodes},
		{Name: "ram", Text: "The memory of the machine.", Unit: "MiB", By: SetByNodes},
		{Name: "created", Text: "When it first reported itself.", By: SetByNodes},
		{Name: "last_boot", Text: "When it was last booted.", By: SetByNodes},
		{Name: "current_platform", Text: "The system that it runs.", By: SetByNodes},
		{Name: "sysinfo", Text: "What it last reported of itself, in SmartOS's keys.", By: SetByNodes, JSON: true},
		{Name: "agents", Text: "The programs that run on it.", By: SetByNodes},
		{Name: "boot_params", Text: "What it is booted with.", Default: "none", JSON: true},
		{Name: "boot_platform", Text: "The system that it boots next.", Default: "none"},
		{Name: "boot_modules", Text: "The modules that it loads when it boots.", Default: "none", JSON: true},
		{Name: "kernel_flags", Text: "The kernel's flags when it boots.", Default: "none", JSON: true},
		{Name: "default_console", Text: "The console that it boots with.", Default: "none"},
		{Name: "overprovision_ratios", Text: "How much more of each resource may be promised than there is.", Default: "none", JSON: true},
		{Name: "reservation_ratio", Text: "The part of its memory that VMs do not get, a number from 0 to 1.", Default: "none"},
		{Name: "traits", Text: "What VMs may ask their compute node to have.", Default: "none", JSON: true},
		{Name: "reserved", Text: "It takes no new VMs.", Default: "false"},
		{Name: "reservoir", Text: "It takes new VMs only if no other can.", Default: "false"},
		{Name: "setting_up", Text: "It is being set up.", By: SetByNodes},
		{Name: "transitional_status", Text: "What it is about to do.", Values: []string{"rebooting"}, By: SetByNodes},
		{Name: "admin_ip", Text: "The address at which its agent is reached.", By: SetByNodes},
		{Name: "agent_port", Text: "The TCP port at which its agent is reached.", By: SetByNodes},
		{Name: "vxlan_port", Text: "The UDP port at which it receives VXLAN.", Default: "4789"},
		{Name: "underlay_mtu", Text: "The MTU of its interface to the other nodes.", Unit: "bytes", By: SetByNodes},
		{Name: "underlay_paths", Text: "Paths to other nodes that carry less, each an address and a number of bytes, the narrowest first.", By: SetByNodes},
	},
	fields: fields[Server](func(s *Server, v visitor) {
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
		if takes(v, FeaturePerNode) {
			v.u32("vxlan_port", &s.VXLANPort)
			v.u32("underlay_mtu", &s.UnderlayMTU)
			v.strs("underlay_paths", &s.UnderlayPaths)
		}
		labels(v, &s.Labels)
	}),
	late: late[Server]{{3, FeaturePerNode, func(s *Server) bool {
		return s.VXLANPort == 0 && s.UnderlayMTU == 0 && len(s.UnderlayPaths) == 0
	}}, {1, FeatureDeclared, func(s *Server) bool { return len(s.Labels) == 0 }}},
	scope: scopes[Server](func(s *Server) Scope { return onCN(s.UUID) }),
}

// Kind implements Object.
func (*Server) Kind() Kind { return KindServer }

// ID implements Object: the CN's UUID.
func (s *Server) ID() string { return s.UUID.String() }

// MaxPaths bounds Server.UnderlayPaths: the narrowest say what a network may have.
const MaxPaths = 16

// PathTo is a path to another VTEP: the largest IP packet, in bytes, that arrives there
// whole.
type PathTo struct {
	Addr netip.Addr
	MTU  uint32
}

// String returns the form of Server.UnderlayPaths, as in "192.0.2.7 1400".
func (p PathTo) String() string { return p.Addr.String() + " " + strconv.FormatUint(uint64(p.MTU), 10) }

// ParsePathTo reads what String returns.
func ParsePathTo(text string) (p PathTo, err error) {
	addr, number, _ := strings.Cut(text, " ")
	mtu, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return p, fmt.Errorf("%s is no path: an address, a blank and a number of bytes are wanted, as in 192.0.2.7 1400", Quote(text))
	}
	p.MTU = uint32(mtu)
	if p.Addr, err = netip.ParseAddr(addr); err != nil || p.String() != text || p.Addr.Zone() != "" || p.Addr.Is4In6() {
		return PathTo{}, fmt.Errorf("%s is no path: an address, a blank and a number of bytes are wanted, as in 192.0.2.7 1400", Quote(text))
	}
	return p, nil
}

// LabelList implements Labelled.
func (s *Server) LabelList() *[]string { return &s.Labels }
