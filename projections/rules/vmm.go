package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// vmmsPerVM: one that runs, and those that ended in the last hour, when upkeep
// deletes them.
const vmmsPerVM = 4

var vmmRules = hooks[*log.VMM]{
	fill:   fillVMM,
	check:  checkVMM,
	stale:  staleVMM,
	owns:   func(_ *draft, cn log.UUID, m *log.VMM) bool { return m.SledID == cn },
	within: vmmWithin,
	// A CN makes VMMs of its own VMs only.
	mayTake: func(d *draft, cn log.UUID, before, after *log.VMM) bool {
		vm := d.vm(after.InstanceID)
		return before != nil || vm == nil || vm.ServerUUID == cn
	},
	limit: func(d *draft, cn log.UUID, _ *log.VMM) ownedLimit {
		return ownedLimit{name: "cn_vmms", most: vmmsPerVM * cnMaxVMs(d), sets: []projections.Index{projections.VMMsOnCN(cn)}}
	},
}

func fillVMM(d *draft, m *log.VMM, op *log.Op) {
	if m.Gen == 0 && !given(op, "gen") {
		m.Gen = 1
	}
	if m.TimeUpdated == 0 {
		m.TimeUpdated = d.time
	}
	if d.confined() {
		vm := d.vm(m.InstanceID)
		m.Placed = d.change.By.Role != log.RoleCN && (vm == nil || vm.ServerUUID != m.SledID)
	}
}

// vmmStates are those of Omicron (spec/vmm-doorbell.md section 7.1).
var vmmStates = []string{
	"creating", "starting", "running", "stopping", "stopped", "rebooting", "migrating", "failed", "destroyed", "saga_unwound",
}

func checkVMM(d *draft, before, m *log.VMM, op *log.Op) {
	if !slices.Contains(vmmStates, m.State) {
		d.bad("state", fmt.Sprintf("\"%s\" is not known", d.show(m.State)), "send one of "+strings.Join(vmmStates, ", "))
	}
	if m.Gen == 0 {
		d.bad("gen", "a generation is 1 or more", "send the generation of the CN's observation")
	}
	d.checkText("reason", m.Reason)
	if d.confined() && hasEnded(m) {
		m.Placed = false // what has ended gives no claim again, whatever is reported later
	}
	if before != nil && !given(op, "time_updated") {
		m.TimeUpdated = d.time
	}
}

// staleVMM reports whether an update is accepted without effect because it is
// not newer than what is stored: the reports of a CN may come twice or out of
// order (spec/vmm-doorbell.md section 7.2). What is stored as creating is no
// observation of a CN, so the first one counts with the same generation.
func staleVMM(d *draft, m *log.VMM, op *log.Op) bool {
	if !given(op, "gen") {
		d.missing("gen", "send the generation of the CN's observation")
		return false
	}
	gen := op.Object.(*log.VMM).Gen
	return gen < m.Gen || gen == m.Gen && (m.State != "creating" || !given(op, "state"))
}

// endedVMM are the states in which a VMM gives its CN no claim to the VM any more.
var endedVMM = []string{"destroyed", "failed", "saga_unwound"}

func sledOf(d *draft, vmm log.UUID) (sled log.UUID) {
	if r, ok := d.ByUUID(log.KindVMM, vmm); ok && !vmm.IsZero() {
		sled = r.Object.(*log.VMM).SledID
	}
	return sled
}
