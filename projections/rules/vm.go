package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var vmRules = hooks[*log.VM]{
	fill:  fillVM,
	check: checkVM,
	remove: func(d *draft, m *log.VM) {
		d.unused(m, "vm is in use", "delete its NICs and VMMs first", projections.NICsOf(m.UUID), projections.VMMsOf(m.UUID))
	},
	follow: func(d *draft, before, after *log.VM, _ *log.Op) {
		movedVM(d, before, after)
		if after == nil {
			followVM(d, before.UUID, log.UUID{})
			return
		}
		followVM(d, after.UUID, after.ServerUUID)
	},
	owns:    hosts,
	within:  vmWithin,
	mayTake: func(_ *draft, cn log.UUID, _, after *log.VM) bool { return after.ServerUUID == cn },
	limit: func(d *draft, cn log.UUID, _ *log.VM) ownedLimit {
		return ownedLimit{name: "cn_vms", most: cnMaxVMs(d), sets: []projections.Index{projections.VMsOnCN(cn)}}
	},
	comesTo: func(cn log.UUID, before, after *log.VM) bool {
		return after.ServerUUID == cn && before.ServerUUID != cn
	},
}

func fillVM(d *draft, m *log.VM, _ *log.Op) {
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

func checkVM(d *draft, before, m *log.VM, op *log.Op) {
	if m.State == "" || len(m.State) > projections.MaxNameBytes || strings.ContainsFunc(m.State, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		d.bad("state", fmt.Sprintf("\"%s\" is not a state", d.show(m.State)), "send a word such as provisioning, running or stopped")
	}
	d.checkText("alias", m.Alias)
	d.checkText("brand", m.Brand)
	d.checkText("zone_state", m.ZoneState)
	checkProperties(d, before, m)
	checkZonename(d, m)
	if before != nil && !given(op, "last_modified") {
		m.LastModified = d.time
	}
}

// checkProperties: every server holds them in memory, so that a compute node, which may
// report as many VMs as it likes up to a limit, has less room for each than other authors.
func checkProperties(d *draft, before, m *log.VM) {
	if !triton(d) || before != nil && before.Properties == m.Properties {
		return
	}
	d.checkJSON("properties", m.Properties, log.MaxProperties, '{')
	if deeper(m.Properties, maxPropertiesDepth) {
		d.bad("properties", fmt.Sprintf("they are nested deeper than %d", maxPropertiesDepth), "send what VMAPI shows of a VM")
	}
	if d.change.By.Role != log.RoleCN {
		return
	}
	was, own := "", len(m.Properties)
	if before != nil {
		was = before.Properties
		own -= keptProperties(was, m.Properties)
	}
	if roleTags(was) != roleTags(m.Properties) {
		d.bad("properties", "role_tags say who may use the VM, which is not a compute node's to say", "send those that the log has")
	}
	if own > log.MaxNodeProperties {
		d.bad("properties", fmt.Sprintf("%d bytes are over %d", own, log.MaxNodeProperties), "send less")
	}
}

// maxPropertiesDepth bounds the nesting of a VM's properties: lists of VMs have them, and
// programs that read JSON give up a whole list for one value that is deeper than they read.
const maxPropertiesDepth = 32

// deeper reports whether JSON in text has more than most objects and arrays in each other.
func deeper(text string, most int) bool {
	if len(text) <= most {
		return false // each of them is a byte at least
	}
	depth, dec := 0, json.NewDecoder(strings.NewReader(text))
	for {
		token, err := dec.Token()
		if err != nil {
			return false // checkJSON refuses what is no JSON
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > most {
				return true
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// roleTags are the role tags in properties, in text; "" if there are none.
func roleTags(properties string) string {
	var is map[string]json.RawMessage           // of a struct, ROLE_TAGS would be the same field
	_ = json.Unmarshal([]byte(properties), &is) // checkJSON refuses what is no object
	return string(is["role_tags"])
}

// keptProperties is the length of the properties that other authors wrote, and that a
// compute node's report leaves as they are: they do not count as the node's.
func keptProperties(before, after string) (n int) {
	var was, is map[string]json.RawMessage
	if json.Unmarshal([]byte(before), &was) != nil || json.Unmarshal([]byte(after), &is) != nil {
		return 0
	}
	for _, name := range []string{"customer_metadata", "internal_metadata", "role_tags"} {
		if text, kept := is[name]; kept && string(was[name]) == string(text) {
			n += len(name) + len(text) + 4 // its quotes, colon and comma
		}
	}
	return n
}

// checkZonename: the name becomes that of a network namespace, and so a part of
// a path; two VMs in one would see each other's NICs.
func checkZonename(d *draft, m *log.VM) {
	name := m.Zonename
	odd := strings.ContainsFunc(name, func(r rune) bool { return !isWordRune(r) && r != '-' && r != '.' })
	if name == "" || len(name) > projections.MaxNameBytes || odd || name[0] == '.' || name[0] == '-' {
		d.bad("zonename", fmt.Sprintf("\"%s\" cannot name a network namespace", d.show(name)),
			fmt.Sprintf("use 1 to %d letters, digits, dots, dashes and underscores, a letter or digit first; or leave it out for the UUID", projections.MaxNameBytes))
		return
	}
	if m.ServerUUID.IsZero() {
		return
	}
	for o := range d.ZoneBeside(m) {
		if other := o.(*log.VM); other.ServerUUID == m.ServerUUID {
			d.problem(log.FieldError{
				Field: "zonename", Code: log.ElementDuplicate, Message: "another VM of the server has it",
				Remedy: "choose another, or leave it out for the UUID", Type: "vm", ID: other.ID(),
			})
			return
		}
	}
}

// hosts reports whether a VM is on cn or may come to it: an operator has
// registered a VMM of it there.
func hosts(d *draft, cn log.UUID, vm *log.VM) bool {
	if vm == nil {
		return false
	}
	if d.confined() {
		return placed(d, cn, vm)
	}
	if vm.ServerUUID == cn {
		return true
	}
	for o := range d.Objects(projections.VMMsOf(vm.UUID)) {
		vmm := o.(*log.VMM)
		if vmm.SledID == cn && !slices.Contains(endedVMM, vmm.State) {
			return true
		}
	}
	return false
}
