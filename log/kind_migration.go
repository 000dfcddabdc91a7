package log

// KindMigration is the kind of migrations.
const KindMigration Kind = 12

// Migration is a VM's move from one VMM to another. Each of the two CNs owns the
// generation of its side, which only grows. Field names: Omicron's migration
// record (spec/vmm-doorbell.md section 7.1).
type Migration struct {
	UUID          UUID   `json:"id"`                           // the id
	InstanceID    UUID   `json:"instance_id"`                  // the VM
	SourceVMM     UUID   `json:"source_propolis_id,omitzero"`  // the VMM that it leaves, once its CN spoke of it
	SourceState   string `json:"source_state,omitempty"`       // pending, in_progress, failed or completed
	SourceGen     uint64 `json:"source_gen,omitempty"`         // 0: nothing was heard of this side
	SourceUpdated Time   `json:"time_source_updated,omitzero"` // of SourceGen
	TargetVMM     UUID   `json:"target_propolis_id,omitzero"`  // the VMM that it comes to
	TargetState   string `json:"target_state,omitempty"`       // as SourceState
	TargetGen     uint64 `json:"target_gen,omitempty"`         // as SourceGen
	TargetUpdated Time   `json:"time_target_updated,omitzero"` // of TargetGen
	extra
}

// migrationKind is the row of migrations in the table of kinds.
var migrationKind = kind{
	Description: Description{
		Name: "migration", Noun: "migration", Title: "Migration",
		IDField: "id", IDForm: IDUUID,
		Immutable: []string{"id", "instance_id"},
		Final:     "a migration records what was done to a VM",
		Required:  []Required{{"instance_id", "send the UUID of the VM"}},
		CN: &Rights{
			Create: []string{
				"id", "instance_id", "source_gen", "source_propolis_id", "source_state", "target_gen", "target_propolis_id",
				"target_state", "time_source_updated", "time_target_updated",
			},
			Update: []string{
				"source_gen", "source_propolis_id", "source_state", "target_gen", "target_propolis_id", "target_state",
				"time_source_updated", "time_target_updated",
			},
			Why: "each side is told by the CN of its VMM, of the VM of that VMM",
		},
		Path:    "migrations",
		Filters: []string{"instance_id", "source_propolis_id", "target_propolis_id"},
		Command: Command{
			Name: "migration", Usage: "moves of VMs from one VMM to another",
			Columns: []Column{{"ID", "id"}, {"VM", "instance_id"}, {"FROM", "source_propolis_id"}, {"STATE", "source_state"}, {"TO", "target_propolis_id"}, {"STATE", "target_state"}},
			Example: Example{
				ID:     "0e70de36-a40b-4ac0-9429-819f5ff82014",
				Pick:   "instance_id=VM",
				Create: "instance_id=VM source_propolis_id=VMM source_gen=1 source_state=pending",
				Change: "source_gen=2 source_state=failed",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "id", Text: "The id of the migration.", Default: "one that the servers choose"},
		{Name: "instance_id", Text: "The VM that moves.", Refers: KindVM},
		{Name: "source_propolis_id", Text: "The VMM that the VM leaves.", Default: "none", Refers: KindVMM},
		{Name: "source_state", Text: "How far the side that it leaves is.", Values: []string{"pending", "in_progress", "failed", "completed"}, By: SetByNodes},
		{Name: "source_gen", Text: "How often that side was reported; it only grows.", By: SetByNodes},
		{Name: "time_source_updated", Text: "When that side was last reported.", By: SetByNodes},
		{Name: "target_propolis_id", Text: "The VMM that the VM comes to.", Default: "none", Refers: KindVMM},
		{Name: "target_state", Text: "How far the side that it comes to is.", Values: []string{"pending", "in_progress", "failed", "completed"}, By: SetByNodes},
		{Name: "target_gen", Text: "How often that side was reported; it only grows.", By: SetByNodes},
		{Name: "time_target_updated", Text: "When that side was last reported.", By: SetByNodes},
	},
	fields: fields[Migration](func(m *Migration, v visitor) {
		v.uuid("id", &m.UUID)
		v.uuid("instance_id", &m.InstanceID)
		v.uuid("source_propolis_id", &m.SourceVMM)
		v.str("source_state", &m.SourceState)
		v.u64("source_gen", &m.SourceGen)
		v.time("time_source_updated", &m.SourceUpdated)
		v.uuid("target_propolis_id", &m.TargetVMM)
		v.str("target_state", &m.TargetState)
		v.u64("target_gen", &m.TargetGen)
		v.time("time_target_updated", &m.TargetUpdated)
	}),
}

// Kind implements Object.
func (*Migration) Kind() Kind { return KindMigration }

// ID implements Object: the migration's UUID.
func (m *Migration) ID() string { return m.UUID.String() }
