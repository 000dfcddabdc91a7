package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// permit decides whether the author may do the operation to the object that there
// is. A CN is told the same of what is another's and of what there is not.
func (d *draft) permit(op *log.Op) bool {
	switch by := d.change.By; by.Role {
	case log.RoleTrusted:
		return true
	case log.RoleForeign:
		if !d.rules(op.Kind).Guarded {
			return true
		}
		d.deny(op, fmt.Sprintf("a program without a certificate may not write a %s", op.Kind), "use the certificate of an operator")
	case log.RoleCN:
		return d.permitCN(op)
	default:
		d.deny(op, fmt.Sprintf("the role %s may not write", by.Role), "use the certificate of an operator")
	}
	return false
}

func (d *draft) permitCN(op *log.Op) bool {
	rules := d.rules(op.Kind)
	rights := rules.CN
	if rights == nil {
		d.deny(op, fmt.Sprintf("a compute node may not write a %s", op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create && rights.Create == nil || op.Action == log.Update && rights.Update == nil || op.Action == log.Delete && !rights.Delete {
		d.deny(op, fmt.Sprintf("a compute node may not %s a %s", op.Action, op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create {
		return true // what it makes is looked at when all fields are known
	}
	if r, ok, err := d.Get(op.Kind, op.ID); err == nil && ok && d.owns(d.change.By.CN, r.Object, rules) {
		if op.Action == log.Update || !d.confined() || rules.special.mayBeTaken(d, d.change.By.CN, r.Object, r.Object) {
			return true // one that may come to it is not its own to delete yet
		}
	}
	d.notOneOf(op, op.ID)
	return false
}

// owns reports whether an object is about cn: itself, or what runs on it.
func (d *draft) owns(cn log.UUID, o log.Object, rules *kindRules) bool {
	return !cn.IsZero() && rules.special.isOf(d, cn, o)
}

// permitFields decides, for a CN, whether what the operation made of an object is
// its own still, and only in fields that it may write. before is nil for a create.
func (d *draft) permitFields(op *log.Op, before, after log.Object) {
	by := d.change.By
	if by.Role != log.RoleCN || d.refused() {
		return
	}
	rules := d.rules(op.Kind)
	if !d.owns(by.CN, after, rules) || !rules.special.mayBeTaken(d, by.CN, before, after) {
		d.notOneOf(op, after.ID())
		return
	}
	if d.permitNames(op, before, after); !d.refused() {
		d.checkOwned(op, before, after, rules)
	}
}

// permitNames refuses fields that a CN may not write.
func (d *draft) permitNames(op *log.Op, before, after log.Object) {
	by, rules := d.change.By, d.rules(op.Kind)
	var foreign []log.FieldError
	later := op.Kind.FieldsAfter(d.State().Feature())
	late := slices.DeleteFunc(slices.Clone(rules.CN.Late), func(name string) bool { return slices.Contains(later, name) })
	allowed := rules.CN.Create
	if before == nil && len(allowed) > 0 && triton(d) {
		allowed = slices.Concat(allowed, late)
	}
	if before != nil {
		allowed = slices.Concat(rules.CN.Update, rules.special.moreFields(by.CN, before), late)
		if d.confined() { // whose an object is a CN says once: of what it makes
			allowed = slices.DeleteFunc(allowed, func(name string) bool { return name == rules.TenantField })
		}
	}
	for _, name := range d.touched(op, before, after) {
		if !slices.Contains(allowed, name) {
			foreign = append(foreign, log.FieldError{
				Field: d.show(name), Code: log.ElementInvalid, Message: "not a field that a compute node may write",
				Remedy: "it may write " + strings.Join(allowed, ", "),
			})
		}
	}
	if foreign != nil {
		d.refuse(log.CodeNotAuthorized, fmt.Sprintf("compute node %s may not write these fields of a %s", by.CN, op.Kind), foreign...)
	}
}

// ownedLimit is a limit of objects of one kind. Limits of what a compute node may
// own are decided in the log's order, since of two changes at once each might be the
// last that fits.
type ownedLimit struct {
	name  string // in refusals and docs/safety.md
	most  int
	sets  []projections.Index // each of which may have so many
	owner string              // whose limit it is, in words; "": the compute node's
}

// checkOwned refuses what gives a compute node more objects than it may own: a new
// one, or one that was another's. before is nil for a create.
func (d *draft) checkOwned(op *log.Op, before, after log.Object, rules *kindRules) {
	cn := d.change.By.CN
	if d.refused() || !d.contained() || before != nil && !rules.special.isNewTo(cn, before, after) {
		return
	}
	l, ok := rules.special.limitOf(d, cn, after)
	if !ok || !slices.ContainsFunc(l.sets, func(x projections.Index) bool { return d.Count(x, l.most) >= l.most }) {
		return
	}
	if l.owner == "" {
		l.owner = "compute node " + cn.String()
	}
	message := fmt.Sprintf("%s has %d %ss, the most that it may have (limit %s)", l.owner, l.most, rules.Noun, l.name)
	d.refuse(log.CodeLimit, message, log.FieldError{
		Field: rules.IDField, Code: log.ElementInvalid, Message: message,
		Remedy: "delete what is not needed, or have an operator raise the setting " + SettingCNMaxVMs,
	})
}

// touched are the fields that the operation sets or changes. One that is sent
// with the value that it has is not touched.
func (d *draft) touched(op *log.Op, before, after log.Object) []string {
	if before == nil {
		return op.Set
	}
	var names []string
	for _, change := range log.Diff(before, after) {
		if given(op, change.Path) {
			names = append(names, change.Path)
		}
	}
	return names
}

// Which compute node (CN) an object is on is what operators, tasks, migrations and
// imports say. What follows decides what of that a CN may confirm, and what it may make
// by itself: what no other object speaks of, on networks that are open to it.
//
// It is decided before anything else of the operation is looked at. So the refusal is the
// same whether the object, the VM, the network or the address is another's or is not
// there, and a CN learns nothing from it.

// createMachine is the task that makes a VM on its CN.
const createMachine = "machine_create"

// maxMovedNICs bounds the NICs that move with their VM. A VM with more on its CN does not
// move before an operator has moved the others.
const maxMovedNICs = 256

// stripped returns a new object as a CN may send it: what its operation does not name is
// not there.
func (d *draft) stripped(op *log.Op) log.Object {
	o := log.NewObject(op.Kind)
	log.Assign(o, op.Object, op.Set)
	return o
}

// within decides whether a CN may make an object, or change one of its own so; before is
// nil on create, after is not settled yet. It notes the refusal.
func (d *draft) within(op *log.Op, before, after log.Object, rules *kindRules) bool {
	if d.change.By.Role != log.RoleCN || !d.confined() {
		return true
	}
	cn := d.change.By.CN
	if d.permitNames(op, before, after); d.refused() {
		return false // decided by what was sent and by what is its own
	}
	if before == nil {
		r, taken := d.Find(after)
		if taken && !d.owns(cn, r.Object, rules) || !taken && op.ID != "" && !projections.Is(after, op.ID) {
			d.notOneOf(op, after.ID())
			return false
		}
	}
	if !rules.special.isWithin(d, cn, before, after, op) {
		d.notOneOf(op, after.ID())
		return false
	}
	return !d.refused()
}

// notOneOf is the one refusal of what is not a CN's to write, to make or to take. It has
// nothing from the state.
func (d *draft) notOneOf(op *log.Op, id string) {
	remedy := "a compute node writes about itself, its VMs, its VMMs and its NICs only"
	if d.confined() {
		remedy = "a compute node writes about what is placed on it, and makes what no other object names, on networks that self_provision opens; an operator places the rest"
	}
	d.deny(op, fmt.Sprintf("%s %s is not one of compute node %s", op.Kind, d.show(id), d.change.By.CN), remedy)
}

// placed reports whether a VM is on cn, or may come to it: another author than a CN has
// made a VMM of it there, which has not ended, since the VM was placed last.
func placed(d *draft, cn log.UUID, vm *log.VM) bool {
	if vm == nil {
		return false
	}
	return vm.ServerUUID == cn || vmmOn(d, cn, vm.UUID, func(m *log.VMM) bool { return m.Placed && !hasEnded(m) })
}

// vmmOn reports whether cn has a VMM of a VM of which is says so.
func vmmOn(d *draft, cn, vm log.UUID, is func(*log.VMM) bool) bool {
	for o := range d.Objects(projections.VMMsOf(vm)) {
		if m := o.(*log.VMM); m.SledID == cn && is(m) {
			return true
		}
	}
	return false
}

func hasEnded(m *log.VMM) bool { return slices.Contains(endedVMM, m.State) }

// spokenFor reports whether an object that is not cn's names a VM that is not in the log.
// A task that makes the VM on cn is an operator's word for what no CN has.
func spokenFor(d *draft, cn, vm log.UUID) bool {
	unplaced := false // something on no CN names it
	for o := range d.Objects(projections.NICsOf(vm)) {
		switch projections.CNOf(o.(*log.NIC)) {
		case cn:
		case log.UUID{}:
			unplaced = true
		default:
			return true
		}
	}
	for o := range d.Objects(projections.VMMsOf(vm)) {
		switch m := o.(*log.VMM); {
		case m.SledID == cn:
		case hasEnded(m):
			unplaced = true
		default:
			return true
		}
	}
	for o := range d.Objects(projections.MigrationsOf(vm)) {
		m := o.(*log.Migration)
		for _, side := range []log.UUID{m.SourceVMM, m.TargetVMM} {
			if side.IsZero() {
				continue
			}
			switch sledOf(d, side) {
			case cn:
			case log.UUID{}:
				unplaced = true
			default:
				return true
			}
		}
	}
	for range d.Objects(projections.RoutersOf(vm)) {
		unplaced = true
		break
	}
	elsewhere, here := named(d, cn, vm, &unplaced)
	return elsewhere || unplaced && !here
}

// named looks at the tasks, tickets and addresses that name a VM. The newest task that
// has not failed decides: elsewhere, it is another CN's; here, it makes the VM on cn.
func named(d *draft, cn, vm log.UUID, unplaced *bool) (elsewhere, here bool) {
	var newest *log.Task
	for o := range d.Objects(projections.Naming(vm)) {
		switch o := o.(type) {
		case *log.IP:
			*unplaced = true
		case *log.Ticket:
			elsewhere = elsewhere || o.Waits() && o.ServerUUID != cn
		case *log.Task:
			if o.Status != log.TaskFailure && (newest == nil || newest.Created < o.Created || newest.Created == o.Created && newest.UUID.Compare(o.UUID) < 0) {
				newest = o
			}
		}
	}
	if newest == nil {
		return elsewhere, false
	}
	return elsewhere || newest.ServerUUID != cn, newest.ServerUUID == cn && newest.Task == createMachine
}

func vmWithin(d *draft, cn log.UUID, before, m *log.VM, _ *log.Op) bool {
	return m.ServerUUID == cn && (before != nil || !spokenFor(d, cn, m.UUID))
}

// vmmWithin: a CN makes VMMs of the VMs that are placed on it.
func vmmWithin(d *draft, cn log.UUID, before, m *log.VMM, _ *log.Op) bool {
	if before != nil {
		return true
	}
	vm := d.vm(m.InstanceID)
	return m.SledID == cn && vm != nil && vm.ServerUUID == cn
}

// migrationWithin: a CN speaks for its own side of a migration, of the VM of its VMM.
func migrationWithin(d *draft, cn log.UUID, before, m *log.Migration, _ *log.Op) bool {
	was := before
	if was == nil {
		was = new(log.Migration)
	}
	source := was.SourceVMM != m.SourceVMM || was.SourceState != m.SourceState || was.SourceGen != m.SourceGen
	target := was.TargetVMM != m.TargetVMM || was.TargetState != m.TargetState || was.TargetGen != m.TargetGen
	mine := func(before, after log.UUID) bool {
		r, ok := d.ByUUID(log.KindVMM, after)
		if !ok || r.Object.(*log.VMM).SledID != cn || r.Object.(*log.VMM).InstanceID != m.InstanceID {
			return false
		}
		return before.IsZero() || sledOf(d, before) == cn
	}
	return (source || target || before != nil) && (!source || mine(was.SourceVMM, m.SourceVMM)) && (!target || mine(was.TargetVMM, m.TargetVMM))
}

// aggregationWithin: a bond is of NICs of the CN itself.
func aggregationWithin(d *draft, cn log.UUID, _, a *log.Aggregation, _ *log.Op) bool {
	for _, mac := range a.MACs {
		if n := d.nic(mac); n == nil || !isHostNIC(cn, n) {
			return false
		}
	}
	return a.BelongsToUUID == cn || a.BelongsToUUID.IsZero()
}

func serverWithin(_ *draft, cn log.UUID, _, s *log.Server, _ *log.Op) bool { return s.UUID == cn }

// comes reports whether a NIC that is not on cn may come to it: it is on none, and its VM
// is on cn; or the VM may come to cn, and the NIC is where the VM is, or on none.
func comes(d *draft, cn log.UUID, n *log.NIC) bool {
	vm := vmOfNIC(d, n)
	if vm == nil {
		return false
	}
	at := projections.CNOf(n)
	return at.IsZero() && vm.ServerUUID == cn || (at.IsZero() || at == vm.ServerUUID) && vm.ServerUUID != cn && placed(d, cn, vm)
}

func nicWithin(d *draft, cn log.UUID, before, n *log.NIC, op *log.Op) bool {
	if !n.CNUUID.IsZero() && n.CNUUID != cn || before != nil && projections.CNOf(n) != cn {
		return false
	}
	if before == nil && !isHostNIC(cn, n) {
		if vm := vmOfNIC(d, n); vm == nil || vm.ServerUUID != cn {
			return false
		}
	}
	if n.Primary && (before == nil || !before.Primary) && marksElsewhere(d, cn, n) {
		return false
	}
	return nicFits(d, before, n, op)
}

// marksElsewhere reports whether a NIC that becomes primary takes the mark from one that
// is not on cn.
func marksElsewhere(d *draft, cn log.UUID, n *log.NIC) bool {
	for o := range d.Objects(projections.NICsOf(n.BelongsToUUID)) {
		if other := o.(*log.NIC); other.Primary && other.MAC != n.MAC && projections.CNOf(other) != cn {
			return true
		}
	}
	return false
}

// nicFits decides whether a CN may put a NIC where it would be: on a network that is
// open to it, at an address that is free to all.
func nicFits(d *draft, before, n *log.NIC, op *log.Op) bool {
	network, ip := n.NetworkUUID, n.IP.Unmap()
	if network.IsZero() {
		if !ip.IsValid() || n.NICTag == "" || op.Action == log.Create && !given(op, "vlan_id") && n.VLANID == 0 {
			return true // on none; or a field is missing, which is said later
		}
		var found []*log.Network
		if found = networksAt(d, n, ip); len(found) != 1 {
			return false
		}
		network = found[0].UUID
	}
	if p := d.pool(network); p != nil {
		return slices.ContainsFunc(p.Networks, func(id log.UUID) bool { return mayProvision(d, n, d.Network(id)) })
	}
	stays := before != nil && before.NetworkUUID == network
	if stays && before.IP == ip {
		return true
	}
	net := d.Network(network)
	if net == nil || !stays && !mayProvision(d, n, net) {
		return false
	}
	if ip.IsValid() && !isFree(d, net, n, ip) {
		d.bad("ip", "a compute node takes only an address of the provision range that is neither gateway, resolver nor reserved", "leave it out to have one chosen, or have an operator place the NIC")
	}
	return true
}

// mayProvision reports whether the author may put a NIC on a network: of CNs, those to
// which it is open. The admin network is every CN's own.
func mayProvision(d *draft, n *log.NIC, net *log.Network) bool {
	cn := d.change.By.CN
	if d.change.By.Role != log.RoleCN || !d.confined() {
		return true
	}
	if net == nil || isHostNIC(cn, n) && isAdmin(d, net.UUID) {
		return net != nil
	}
	open := net.SelfProvision
	switch {
	case open != "":
	case net.Fabric:
		open = d.setting(SettingFabricSelfProvision)
	default:
		open = log.SelfProvisionJoined
	}
	return open == log.SelfProvisionAny || open == log.SelfProvisionJoined && d.State().Interested(cn, []log.Scope{log.ScopeOf(net)})
}

// isFree reports whether an address is one that a network hands out, and kept for
// nothing but what the NIC belongs to.
func isFree(d *draft, net *log.Network, n *log.NIC, ip netip.Addr) bool {
	if misplaced(net.Subnet, ip) != "" || ip.Less(net.ProvisionStart) || net.ProvisionEnd.Less(ip) || keeps(d, net, ip) {
		return false
	}
	if o := ipObject(d, net.UUID, ip); o != nil && (o.BelongsToUUID.IsZero() || o.BelongsToUUID != n.BelongsToUUID) {
		return false
	}
	return !isAdmin(d, net.UUID) || reachedAt(d, n.BelongsToUUID, ip) == nil
}

// checkSelfProvision checks the field of a network.
func checkSelfProvision(d *draft, n *log.Network) {
	if d.confined() && n.SelfProvision != "" && !slices.Contains(log.SelfProvisions, n.SelfProvision) {
		d.bad("self_provision", fmt.Sprintf("\"%s\" is not known", d.show(n.SelfProvision)), "send off, joined or any, or nothing for the default")
	}
}

// movedVM makes the events that follow where a VM goes to another CN, or to none: the NICs
// that were where it was go with it, all or none, and no VMM gives its CN a claim any more.
// So a VM that leaves its CN first, and is placed later, does not leave its NICs behind.
func movedVM(d *draft, before, after *log.VM) {
	if before == nil || after == nil || before.ServerUUID == after.ServerUUID || !d.confined() {
		return
	}
	var moved []log.Object
	for o := range d.Objects(projections.NICsOf(after.UUID)) {
		if n := o.(*log.NIC); n.BelongsToType == "zone" && n.CNUUID == before.ServerUUID {
			moved = append(moved, n)
		}
		if len(moved) > maxMovedNICs {
			d.bad("server_uuid", fmt.Sprintf("the VM has more NICs on CN %s than the limit moved_nics", before.ServerUUID), fmt.Sprintf("%d are the most that go with their VM: set cn_uuid of the others first", maxMovedNICs))
			return
		}
	}
	for o := range d.Objects(projections.VMMsOf(after.UUID)) {
		if o.(*log.VMM).Placed {
			moved = append(moved, o)
		}
	}
	for _, o := range moved {
		r, _ := d.Find(o)
		o = log.Clone(o)
		switch o := o.(type) {
		case *log.NIC:
			o.CNUUID, o.Modified = after.ServerUUID, d.time
		case *log.VMM:
			o.Placed = false
		}
		d.emit(r, o)
	}
}
