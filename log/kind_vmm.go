package log

// KindVMM is the kind of VMMs.
const KindVMM Kind = 6

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
	// Placed: it was made for its CN, which may take the VM from where it is. Deciding
	// sets it, from FeatureConfined on, in one that another author than the CN made, and
	// clears it when the VM is placed.
	Placed bool `json:"placed,omitempty"`
	extra
}

// vmmKind is the row of VMMs in the table of kinds.
var vmmKind = kind{
	Description: Description{
		Name: "vmm", Noun: "vmm", Title: "VMM",
		IDField: "id", IDForm: IDUUID,
		Immutable: []string{"id", "instance_id", "placed", "sled_id"},
		Final:     "a VMM is what a compute node says of an incarnation of a VM",
		Required:  []Required{{"instance_id", "send the UUID of the VM"}, {"sled_id", "send the UUID of the CN"}},
		CN: &Rights{
			Create: []string{"gen", "id", "instance_id", "reason", "sled_id", "state", "time_updated"},
			Update: []string{"gen", "reason", "state", "time_updated"},
			Why:    "a VMM's state is owned by the CN that runs it; it makes those of the VMs that are placed on it",
		},
		Path:    "vmms",
		Filters: []string{"instance_id", "sled_id", "state"},
		Command: Command{
			Name: "vmm", Usage: "VMMs: running incarnations of VMs",
			Columns: []Column{{"ID", "id"}, {"VM", "instance_id"}, {"CN", "sled_id"}, {"STATE", "state"}, {"GEN", "gen"}},
			Example: Example{
				ID:     "5595d88c-6e4d-4bda-b58e-97dd02e30001",
				Pick:   "state=running",
				Create: "instance_id=VM sled_id=CN state=running gen=1",
				Change: "state=stopped gen=2",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "id", Text: "The id of the VMM.", Default: "one that the servers choose"},
		{Name: "instance_id", Text: "The VM that it runs.", Refers: KindVM},
		{Name: "sled_id", Text: "The compute node that runs it.", Refers: KindServer},
		{Name: "state", Text: "What the VMM does, as in starting or running.", By: SetByNodes},
		{Name: "gen", Text: "How often its compute node changed its state; it only grows.", By: SetByNodes},
		{Name: "time_updated", Text: "When its compute node last changed its state.", By: SetByNodes},
		{Name: "reason", Text: "Why it failed.", By: SetByNodes},
		{Name: "placed", Text: "It was made for its compute node, which may take the VM.", By: SetByDeciding},
	},
	fields: fields[VMM](func(m *VMM, v visitor) {
		v.uuid("id", &m.UUID)
		v.uuid("instance_id", &m.InstanceID)
		v.uuid("sled_id", &m.SledID)
		v.str("state", &m.State)
		v.u64("gen", &m.Gen)
		v.time("time_updated", &m.TimeUpdated)
		v.str("reason", &m.Reason)
		if takes(v, FeatureConfined) {
			v.boolean("placed", &m.Placed)
		}
	}),
	late:  late[VMM]{{1, FeatureConfined, func(m *VMM) bool { return !m.Placed }}},
	scope: scopes[VMM](func(m *VMM) Scope { return onCN(m.SledID) }),
}

// Kind implements Object.
func (*VMM) Kind() Kind { return KindVMM }

// ID implements Object: the VMM's UUID.
func (m *VMM) ID() string { return m.UUID.String() }
