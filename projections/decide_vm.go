package projections

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"rutter/log"
)

func (d *draft) fillServer(s *log.Server) {
	if s.Status == "" {
		s.Status = "unknown" // until a session of its agent says more
	}
	if s.Created == 0 {
		s.Created = d.time
	}
}

func (d *draft) checkServer(s *log.Server) {
	switch s.Status {
	case "running", "unknown", "expunged":
	default:
		d.bad("status", fmt.Sprintf("\"%s\" is not known", d.show(s.Status)), "send running, unknown, or expunged for one that will not come back")
	}
	d.checkText("hostname", s.Hostname)
	d.checkText("datacenter", s.Datacenter)
	d.checkText("comments", s.Comments)
	d.checkText("rack_identifier", s.RackIdentifier)
	d.checkText("serial", s.Serial)
	d.checkText("current_platform", s.CurrentPlatform)
	d.checkServerForms(s)
}

func (d *draft) fillVM(m *log.VM) {
	if m.State == "" {
		m.State = "provisioning"
	}
	if m.Zonename == "" {
		m.Zonename = m.UUID.String()
	}
	if m.CreateTimestamp == 0 {
		m.CreateTimestamp = d.time
	}
	if m.LastModified == 0 {
		m.LastModified = d.time
	}
}

func (d *draft) checkVM(m *log.VM) {
	if m.OwnerUUID.IsZero() {
		d.missing("owner_uuid", "send the UUID of the owner")
	}
	if m.State == "" || len(m.State) > MaxNameBytes || strings.ContainsFunc(m.State, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		d.bad("state", fmt.Sprintf("\"%s\" is not a state", d.show(m.State)), "send a word such as provisioning, running or stopped")
	}
	d.checkText("alias", m.Alias)
	d.checkText("brand", m.Brand)
	d.checkText("zone_state", m.ZoneState)
	d.checkZonename(m)
}

// checkZonename: the name becomes that of a network namespace, and so a part of
// a path; two VMs in one would see each other's NICs.
func (d *draft) checkZonename(m *log.VM) {
	name := m.Zonename
	odd := strings.ContainsFunc(name, func(r rune) bool { return !isWordRune(r) && r != '-' && r != '.' })
	if name == "" || len(name) > MaxNameBytes || odd || name[0] == '.' || name[0] == '-' {
		d.bad("zonename", fmt.Sprintf("\"%s\" cannot name a network namespace", d.show(name)),
			fmt.Sprintf("use 1 to %d letters, digits, dots, dashes and underscores, a letter or digit first; or leave it out for the UUID", MaxNameBytes))
		return
	}
	for o := range d.live(func(s *store) iter.Seq[*row] { return s.zone(name) }) {
		if other := o.(*log.VM); other.UUID != m.UUID && other.ServerUUID == m.ServerUUID && !m.ServerUUID.IsZero() {
			d.problem(log.FieldError{
				Field: "zonename", Code: log.ElementDuplicate, Message: "another VM of the server has it",
				Remedy: "choose another, or leave it out for the UUID", Type: "vm", ID: other.ID(),
			})
			return
		}
	}
}

func (d *draft) fillVMM(m *log.VMM, op *log.Op) {
	if m.Gen == 0 && !given(op, "gen") {
		m.Gen = 1
	}
	if m.TimeUpdated == 0 {
		m.TimeUpdated = d.time
	}
}

// vmmStates are those of Omicron (spec/vmm-doorbell.md section 7.1).
var vmmStates = []string{
	"creating", "starting", "running", "stopping", "stopped", "rebooting", "migrating", "failed", "destroyed", "saga_unwound",
}

func (d *draft) checkVMM(m *log.VMM) {
	if m.InstanceID.IsZero() {
		d.missing("instance_id", "send the UUID of the VM")
	}
	if m.SledID.IsZero() {
		d.missing("sled_id", "send the UUID of the CN")
	}
	if !slices.Contains(vmmStates, m.State) {
		d.bad("state", fmt.Sprintf("\"%s\" is not known", d.show(m.State)), "send one of "+strings.Join(vmmStates, ", "))
	}
	if m.Gen == 0 {
		d.bad("gen", "a generation is 1 or more", "send the generation of the CN's observation")
	}
	d.checkText("reason", m.Reason)
}

// staleVMM reports whether an update is accepted without effect because it is
// not newer than what is stored: the reports of a CN may come twice or out of
// order (spec/vmm-doorbell.md section 7.2). What is stored as creating is no
// observation of a CN, so the first one counts with the same generation.
func (d *draft) staleVMM(m *log.VMM, op *log.Op) bool {
	if !given(op, "gen") {
		d.missing("gen", "send the generation of the CN's observation")
		return false
	}
	gen := op.Object.(*log.VMM).Gen
	return gen < m.Gen || gen == m.Gen && (m.State != "creating" || !given(op, "state"))
}
