package projections

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
)

// migrationStates are those of Omicron (spec/vmm-doorbell.md section 7.1).
var migrationStates = []string{"pending", "in_progress", "failed", "completed"}

// checkMigration: a side is given whole, by its CN, or not at all.
func (d *draft) checkMigration(m *log.Migration) {
	if m.InstanceID.IsZero() {
		d.missing("instance_id", "send the UUID of the VM")
	}
	if m.SourceGen == 0 && m.TargetGen == 0 {
		d.missing("target_gen", "send what one of the two CNs says: source_gen and source_state, or target_gen and target_state")
	}
	d.checkMigrationSide("source", m.SourceVMM, m.SourceState, m.SourceGen)
	d.checkMigrationSide("target", m.TargetVMM, m.TargetState, m.TargetGen)
	if !m.SourceVMM.IsZero() && m.SourceVMM == m.TargetVMM {
		d.bad("target_propolis_id", "a VMM cannot migrate to itself", "send the UUID of the other CN's VMM")
	}
}

func (d *draft) checkMigrationSide(side string, vmm log.UUID, state string, gen uint64) {
	if gen == 0 && state == "" && vmm.IsZero() {
		return
	}
	if gen == 0 {
		d.bad(side+"_gen", "a generation is 1 or more", "send the generation of the CN's observation")
	}
	if !slices.Contains(migrationStates, state) {
		d.bad(side+"_state", fmt.Sprintf("\"%s\" is not known", d.show(state)), "send one of "+strings.Join(migrationStates, ", "))
	}
	if vmm.IsZero() {
		d.missing(side+"_propolis_id", "send the UUID of the VMM")
	}
}

// keepNewerSides puts back each side of a migration that the update does not
// know newer: like a VMM's, the reports of its CN may come twice or out of order.
func keepNewerSides(before, after *log.Migration) {
	if after.SourceGen <= before.SourceGen {
		after.SourceVMM, after.SourceState = before.SourceVMM, before.SourceState
		after.SourceGen, after.SourceUpdated = before.SourceGen, before.SourceUpdated
	}
	if after.TargetGen <= before.TargetGen {
		after.TargetVMM, after.TargetState = before.TargetVMM, before.TargetState
		after.TargetGen, after.TargetUpdated = before.TargetGen, before.TargetUpdated
	}
}
