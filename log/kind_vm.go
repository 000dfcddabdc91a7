package log

// KindVM is the kind of VMs.
const KindVM Kind = 5

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

	// Properties are the VM's other fields as VMAPI has them (tags, metadata, disks,
	// billing_id, …): one canonical JSON object in text, at most MaxProperties bytes, from
	// FeatureTriton on. api/triton/vmapi shows them beside the fields above.
	Properties string   `json:"properties,omitempty"`
	Labels     []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// Bounds of VM.Properties, in bytes. An update's event has it twice.
const (
	MaxProperties     = 128 << 10
	MaxNodeProperties = 16 << 10 // of what a compute node reports itself
)

// vmKind is the row of VMs in the table of kinds.
var vmKind = kind{
	Description: Description{
		Name: "vm", Noun: "vm", Title: "VM",
		IDField: "uuid", IDForm: IDUUID,
		Immutable:   []string{"uuid", "create_timestamp"},
		Required:    []Required{{"owner_uuid", "send the UUID of the owner"}},
		TenantField: "owner_uuid",
		CN: &Rights{
			Create: []string{
				"alias", "brand", "cpu_cap", "create_timestamp", "do_not_inventory", "image_uuid", "last_modified", "max_physical_memory",
				"owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state", "zonename",
			},
			Update: []string{
				"alias", "brand", "cpu_cap", "create_timestamp", "do_not_inventory", "image_uuid", "last_modified", "max_physical_memory",
				"owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state", "zonename",
			},
			Late:   []string{"properties"},
			Delete: true,
			Why:    "the machine is the source of truth for the VMs that are placed on it; it makes one that no other object names, and takes one of which an operator registered a VMM there; it says once, of a VM that it makes, whose it is",
		},
		Path:    "vms",
		Filters: []string{"alias", "brand", "labels", "owner_uuid", "server_uuid", "uuid"},
		Command: Command{
			Name: "inventory", Usage: "VMs as the log has them, of all compute nodes",
			Columns: []Column{{"UUID", "uuid"}, {"ALIAS", "alias"}, {"STATE", "state"}, {"CN", "server_uuid"}, {"OWNER", "owner_uuid"}},
			Example: Example{
				ID:     "5595d88c-6e4d-4bda-b58e-97dd02e30001",
				Pick:   "state=running",
				Create: "alias=web0 owner_uuid=OWNER server_uuid=CN",
				Change: "alias=web1",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the VM.", Default: "one that the servers choose"},
		{Name: "alias", Text: "The name of the VM.", Default: "none"},
		{Name: "owner_uuid", Text: "The owner of the VM."},
		{Name: "brand", Text: "What kind of VM it is, as in kvm.", Default: "none"},
		{Name: "state", Text: "What the VM does, as in running or stopped.", By: SetByNodes},
		{Name: "zone_state", Text: "What its zone does.", By: SetByNodes},
		{Name: "server_uuid", Text: "The compute node that the VM is on.", Default: "none", Document: "server", Refers: KindServer},
		{Name: "zonename", Text: "The name of its network namespace.", Default: "the UUID"},
		{Name: "max_physical_memory", Text: "The memory of the VM.", Unit: "MiB", Default: "none"},
		{Name: "quota", Text: "The disk space of the VM.", Unit: "GiB", Default: "none"},
		{Name: "cpu_cap", Text: "How much processor time the VM may use.", Unit: "percent of one CPU", Default: "no limit"},
		{Name: "image_uuid", Text: "The image that it was made from.", Default: "none"},
		{Name: "create_timestamp", Text: "When the VM was created.", By: SetByDeciding},
		{Name: "last_modified", Text: "When the VM last changed.", By: SetByDeciding},
		{Name: "do_not_inventory", Text: "The VM is left out of lists of VMAPI.", Default: "false"},
		{Name: "properties", Text: "The VM's other fields, as VMAPI has them: tags, metadata, disks and more.", Default: "none", JSON: true},
	},
	fields: fields[VM](func(m *VM, v visitor) {
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
		if takes(v, FeatureTriton) {
			v.str("properties", &m.Properties)
		}
		labels(v, &m.Labels)
	}),
	late:  late[VM]{{1, FeatureTriton, func(m *VM) bool { return m.Properties == "" }}, {1, FeatureDeclared, func(m *VM) bool { return len(m.Labels) == 0 }}},
	scope: scopes[VM](func(m *VM) Scope { return onCN(m.ServerUUID) }),
}

// Kind implements Object.
func (*VM) Kind() Kind { return KindVM }

// ID implements Object: the VM's UUID.
func (m *VM) ID() string { return m.UUID.String() }

// LabelList implements Labelled.
func (m *VM) LabelList() *[]string { return &m.Labels }
