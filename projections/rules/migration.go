package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// maxMigrationsOfVM: one at a time, and those that failed in the last hour.
const maxMigrationsOfVM = 64

var migrationRules = hooks[*log.Migration]{
	settle: keepNewerSides,
	check:  checkMigration,
	owns: func(d *draft, cn log.UUID, m *log.Migration) bool {
		if d.confined() && vmmOn(d, cn, m.InstanceID, func(*log.VMM) bool { return true }) {
			return true
		}
		return sledOf(d, m.SourceVMM) == cn || sledOf(d, m.TargetVMM) == cn || hosts(d, cn, d.vm(m.InstanceID))
	},
	within:  migrationWithin,
	mayTake: mayTakeMigration,
	limit: func(_ *draft, _ log.UUID, m *log.Migration) ownedLimit {
		return ownedLimit{
			name: "vm_migrations", most: maxMigrationsOfVM, owner: "vm " + m.InstanceID.String(), sets: []projections.Index{projections.MigrationsOf(m.InstanceID)},
		}
	},
}

// mayTakeMigration: a CN speaks for its own side of a migration.
func mayTakeMigration(d *draft, cn log.UUID, before, after *log.Migration) bool {
	if before == nil {
		before = new(log.Migration)
	}
	source := before.SourceVMM == after.SourceVMM && before.SourceState == after.SourceState && before.SourceGen == after.SourceGen
	target := before.TargetVMM == after.TargetVMM && before.TargetState == after.TargetState && before.TargetGen == after.TargetGen
	return (source || sledOf(d, after.SourceVMM) == cn) && (target || sledOf(d, after.TargetVMM) == cn)
}

// migrationStates are those of Omicron (spec/vmm-doorbell.md section 7.1).
var migrationStates = []string{"pending", "in_progress", "failed", "completed"}

// checkMigration: a side is given whole, by its CN, or not at all.
func checkMigration(d *draft, _, m *log.Migration, _ *log.Op) {
	if m.SourceGen == 0 && m.TargetGen == 0 {
		d.missing("target_gen", "send what one of the two CNs says: source_gen and source_state, or target_gen and target_state")
	}
	checkMigrationSide(d, "source", m.SourceVMM, m.SourceState, m.SourceGen)
	checkMigrationSide(d, "target", m.TargetVMM, m.TargetState, m.TargetGen)
	if !m.SourceVMM.IsZero() && m.SourceVMM == m.TargetVMM {
		d.bad("target_propolis_id", "a VMM cannot migrate to itself", "send the UUID of the other CN's VMM")
	}
}

func checkMigrationSide(d *draft, side string, vmm log.UUID, state string, gen uint64) {
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
func keepNewerSides(_ *draft, before, after *log.Migration, _ *log.Op) {
	if before == nil {
		return
	}
	if after.SourceGen <= before.SourceGen {
		after.SourceVMM, after.SourceState = before.SourceVMM, before.SourceState
		after.SourceGen, after.SourceUpdated = before.SourceGen, before.SourceUpdated
	}
	if after.TargetGen <= before.TargetGen {
		after.TargetVMM, after.TargetState = before.TargetVMM, before.TargetState
		after.TargetGen, after.TargetUpdated = before.TargetGen, before.TargetUpdated
	}
}
