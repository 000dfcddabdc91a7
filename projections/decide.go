package projections

import (
	"fmt"
	"slices"

	"rutter/log"
)

// Bounds on what one object may hold. They keep every event far below
// log.MaxEventBytes, even one that shows all old values beside the new ones.
const (
	MaxNameBytes   = log.MaxNameBytes
	MaxTextBytes   = log.MaxTextBytes
	MaxResolvers   = 16
	MaxRoutes      = 256
	MaxOwners      = 256
	MaxTagsOnOne   = 32 // nic_tags_provided of one NIC
	maxUsedBy      = 32 // objects that an InUse refusal names
	maxDraws       = 256
	maxTagName     = 31 // spec/napi.md section 3.1
	minTagMTU      = 1500
	maxMTU         = 9000
	minNetworkMTU  = 576
	minNetwork6MTU = 1280 // RFC 8200, section 5
)

// Decide turns a change into events, all fields filled in, or into a Result
// with a Refusal that names every problem of the first operation that cannot be
// accepted. It changes nothing, and gives the same answer on every server.
//
// Each operation sees the effect of those before it. An update that alters
// nothing, and an update of a VMM whose gen is not higher than what is stored,
// are accepted without an event. Result.IDs names the object of each operation;
// First and Last are left to the store, which knows the seqs.
//
// An operation of a kind or action that this program does not know is refused.
// The store must see to it that all servers refuse alike: it stops before a
// change of a higher feature version is decided (SAFETY D1).
func (s *State) Decide(c *log.Change) ([]*log.Event, log.Result) {
	d := newDraft(s, c)
	result := log.Result{ChangeID: c.ID}
	d.checkChange()
	ids := make([]string, 0, len(c.Ops))
	for d.at = 0; d.at < len(c.Ops) && !d.refused(); d.at++ {
		ids = append(ids, d.op(&c.Ops[d.at]))
		if d.refused() {
			break // d.at stays with the operation that is refused
		}
	}
	if !d.refused() {
		d.resultFits(ids)
	}
	if result.Refusal = d.verdict(); result.Refusal != nil {
		return nil, result
	}
	for i, e := range d.events {
		e.More = uint32(len(d.events) - 1 - i)
	}
	result.IDs, result.Events = ids, uint32(len(d.events))
	return d.events, result
}

func (d *draft) checkChange() {
	c := d.change
	if c.ID.IsZero() {
		d.missing("id", "choose a version 7 UUID, and send the same one when you retry")
	}
	if len(c.Ops) == 0 || len(c.Ops) > log.MaxOps {
		d.bad("ops", fmt.Sprintf("a change has 1 to %d operations, not %d", log.MaxOps, len(c.Ops)), "send several changes")
	}
	if len(c.Actor) > log.MaxActorBytes {
		d.bad("actor", fmt.Sprintf("the actor's name has %d bytes", len(c.Actor)), fmt.Sprintf("use at most %d", log.MaxActorBytes))
	}
}

// op decides one operation and returns the id of its object.
func (d *draft) op(op *log.Op) string {
	if !d.withinLimits(op) {
		return ""
	}
	if !op.Kind.Known() {
		d.bad("kind", fmt.Sprintf("kind %s is not known to this program", op.Kind), "use one of nic_tag, network, nic, server, vm, vmm, migration")
		return ""
	}
	if op.Action != log.Delete {
		if err := check(op.Object); err != nil || op.Object.Kind() != op.Kind {
			d.missing("object", fmt.Sprintf("send the %s to %s", op.Kind, op.Action))
			return ""
		}
	}
	if !d.permit(op) {
		return ""
	}
	if d.checkOptions(op); d.refused() {
		return ""
	}
	if op.Kind == log.KindIP && op.Action >= log.Create && op.Action <= log.Delete {
		return d.opIP(op)
	}
	switch op.Action {
	case log.Create:
		return d.create(op)
	case log.Update:
		return d.update(op)
	case log.Delete:
		return d.delete(op)
	}
	d.bad("action", fmt.Sprintf("%s is not known to this program", op.Action), "use create, update or delete")
	return ""
}

// given reports whether the operation names the field.
func given(op *log.Op, field string) bool { return slices.Contains(op.Set, field) }

func (d *draft) create(op *log.Op) string {
	o := log.Clone(op.Object)
	if want, _, met := op.Condition(0, 0); !met {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("if-match '%s' didn't match: the %s does not exist", want, op.Kind))
		return ""
	}
	if a, ok := o.(*log.Aggregation); ok {
		d.settleAggregation(a, op) // its server is part of its id
	}
	d.fillID(o)
	switch o := o.(type) {
	case *log.NICTag:
		d.fillTag(o, op)
		d.checkTag(o)
	case *log.Network:
		d.settleNetwork(o, op)
		d.checkNetwork(o)
	case *log.NIC:
		d.fillNIC(o)
		d.settleNIC(nil, o, op)
		d.checkNIC(nil, o, op)
	case *log.Server:
		d.fillServer(o)
		d.checkServer(o)
	case *log.VM:
		d.fillVM(o)
		d.checkVM(o)
	case *log.VMM:
		d.fillVMM(o, op)
		d.checkVMM(o)
	case *log.Migration:
		d.checkMigration(o)
	case *log.Task:
		d.fillTask(o)
		d.checkTask(o)
	case *log.Ticket:
		d.fillTicket(o)
		d.checkTicket(o)
	default:
		d.fillTrust(o)
		d.createNet(o, op)
	}
	if d.holds(o) {
		d.duplicate(o)
	}
	if op.ID != "" && !sameID(op, o) {
		d.bad(idField[op.Kind], fmt.Sprintf("the operation names %s, its object %s", d.quote(op.ID), d.quote(o.ID())), "name the object once")
	}
	d.permitFields(op, nil, o)
	if d.refused() {
		return ""
	}
	return d.commit(op, Record{}, o)
}

func sameID(op *log.Op, o log.Object) bool {
	key, err := keyOf(op.Kind, op.ID)
	return err == nil && key == keyOfObject(o)
}

// commit makes the event of an operation that was accepted, among those that
// follow from it.
func (d *draft) commit(op *log.Op, before Record, after log.Object) string {
	if nic, ok := after.(*log.NIC); ok {
		d.clearPrimary(nic)
	}
	id := d.emit(before, after)
	d.follow(before.Object, after)
	d.followNet(op, before.Object, after)
	return id
}

// target returns the object of an update or a delete.
func (d *draft) target(op *log.Op) (Record, bool) {
	key, err := keyOf(op.Kind, op.ID)
	if err != nil {
		d.bad(idField[op.Kind], d.showError(err), "name the object as a list of its kind shows it")
		return Record{}, false
	}
	r, ok := d.find(op.Kind, key)
	if !ok {
		d.refuse(log.CodeResourceNotFound, kindWords[op.Kind]+" not found", log.FieldError{
			Field: idField[op.Kind], Code: log.ElementInvalid, Message: fmt.Sprintf("there is no %s %s", kindWords[op.Kind], d.show(op.ID)),
			Remedy: "list what there is, or create it first",
		})
		return Record{}, false
	}
	return r, d.meets(op, r)
}

// meets reports whether an object is what the operation was made for, and refuses
// it if the object has changed, or is not there.
func (d *draft) meets(op *log.Op, r Record) bool {
	want, got, met := op.Condition(r.Revision, r.Seq)
	if !met {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("if-match '%s' didn't match etag '%s'", want, got), log.FieldError{
			Field: "if-match", Code: log.ElementInvalid, Message: fmt.Sprintf("the object is at revision %s", r.Revision),
			Remedy: "read the object again and repeat the update on what it is now",
		})
	}
	return met
}

func (d *draft) update(op *log.Op) string {
	before, ok := d.target(op)
	if !ok {
		return ""
	}
	if vmm, is := before.Object.(*log.VMM); is && d.staleVMM(vmm, op) {
		return vmm.ID()
	}
	after := log.Clone(before.Object)
	if unknown := log.Assign(after, op.Object, op.Set); unknown != "" {
		d.problem(log.FieldError{
			Field: d.show(unknown), Code: log.ElementUnknown, Message: fmt.Sprintf("%s has no field %s", op.Kind, d.quote(unknown)), Remedy: "leave it out",
		})
		return ""
	}
	d.keepImmutable(before.Object, after, op.Set)
	switch o := after.(type) {
	case *log.Network:
		d.settleNetwork(o, op)
	case *log.NIC:
		d.settleNIC(before.Object.(*log.NIC), o, op)
	case *log.Migration:
		keepNewerSides(before.Object.(*log.Migration), o)
	case *log.Task:
		d.settleTask(before.Object.(*log.Task), o, op)
	case *log.Ticket:
		d.settleTicket(before.Object.(*log.Ticket), o)
	default:
		d.settleNetUpdate(before.Object, o, op)
	}
	if !d.refused() && log.Equal(before.Object, after) {
		if n, ok := after.(*log.NIC); ok {
			d.followNIC(op, n) // what its options ask for
		}
		return after.ID() // nothing to do
	}
	d.permitFields(op, before.Object, after)
	d.checkUpdate(before.Object, after, op)
	if d.refused() {
		return ""
	}
	return d.commit(op, before, after)
}

func (d *draft) checkUpdate(before, after log.Object, op *log.Op) {
	switch o := after.(type) {
	case *log.NICTag:
		d.checkTag(o)
		d.checkTagUpdate(before.(*log.NICTag), o)
	case *log.Network:
		d.checkNetwork(o)
		d.checkPoolsOf(o)
	case *log.NIC:
		d.checkNIC(before.(*log.NIC), o, op)
		d.keepAggregated(before.(*log.NIC), o)
		o.Modified = d.time
	case *log.Server:
		d.checkServer(o)
	case *log.VM:
		d.checkVM(o)
		if !given(op, "last_modified") {
			o.LastModified = d.time
		}
	case *log.VMM:
		d.checkVMM(o)
		if !given(op, "time_updated") {
			o.TimeUpdated = d.time
		}
	case *log.Migration:
		d.checkMigration(o)
	case *log.Task:
		d.checkTask(o)
	case *log.Ticket:
		d.checkTicket(o)
	default:
		d.checkTrustUpdate(before, after)
		d.checkNetUpdate(before, after, op)
	}
}

// idField is the field of each kind that holds its id.
var idField = map[log.Kind]string{
	log.KindNICTag: "name", log.KindNetwork: "uuid", log.KindNIC: "mac",
	log.KindServer: "uuid", log.KindVM: "uuid", log.KindVMM: "id",
	log.KindMigration: "id", log.KindTask: "id", log.KindTicket: "uuid",
	log.KindIP: "ip", log.KindNetworkPool: "uuid", log.KindFabricVLAN: "vlan_id", log.KindAggregation: "id", log.KindRouter: "uuid", log.KindSetting: "name",
	log.KindToken: "uuid", log.KindRevocation: "subject", log.KindAuthority: "name", log.KindCertificate: "serial", log.KindGrant: "subject",
}

// kindWords are the kinds as NAPI's messages have them (spec/napi.md section 3.3).
var kindWords = map[log.Kind]string{
	log.KindNICTag: "nic tag", log.KindNetwork: "network", log.KindNIC: "nic",
	log.KindServer: "server", log.KindVM: "vm", log.KindVMM: "vmm",
	log.KindMigration: "migration", log.KindTask: "task", log.KindTicket: "ticket",
	log.KindIP: "IP", log.KindNetworkPool: "network pool", log.KindFabricVLAN: "vlan", log.KindAggregation: "aggregation", log.KindRouter: "router", log.KindSetting: "setting",
	log.KindToken: "token", log.KindRevocation: "revocation", log.KindAuthority: "authority", log.KindCertificate: "certificate", log.KindGrant: "grant",
}

// immutable are the fields that no update may change; one that is sent with the
// value that it has is accepted (spec/napi.md section 3.4). A fabric's
// owner_uuids are besides.
var immutable = map[log.Kind][]string{
	log.KindNICTag:  {"name", "uuid"},
	log.KindNetwork: {"uuid", "family", "subnet", "fabric", "vnet_id", "internet_nat", "gateway_provisioned"},
	log.KindNIC:     {"mac", "created_timestamp", "modified_timestamp"},
	log.KindServer:  {"uuid"},
	log.KindVM:      {"uuid", "create_timestamp"},
	log.KindVMM:     {"id", "instance_id", "sled_id"},

	log.KindMigration: {"id", "instance_id"},

	log.KindNetworkPool: {"uuid"},
	log.KindFabricVLAN:  {"owner_uuid", "vlan_id", "vnet_id"},
	log.KindAggregation: {"name", "belongs_to_uuid"},
	log.KindRouter:      {"uuid", "owner_uuid"},
	log.KindSetting:     {"name"},

	log.KindTask:   {"id", "req_id", "task", "params", "server_uuid", "via", "created", "deadline", "timeout", "started", "finished"},
	log.KindTicket: {"uuid", "server_uuid", "scope", "id", "place", "created_at", "updated_at"},

	log.KindToken:       {"uuid", "hash", "cn_uuid", "created", "expires", "used"},
	log.KindRevocation:  {"subject", "identity", "created"},
	log.KindAuthority:   {"name", "generation"},
	log.KindGrant:       {"subject"},
	log.KindCertificate: {"serial", "identity", "authority", "issuer", "key", "not_before", "not_after"},
}

// keepImmutable notes each immutable field that after has changed, and puts the
// old value back, so that the checks that follow speak of the rest. set names
// the fields in which the two may differ.
func (d *draft) keepImmutable(before, after log.Object, set []string) {
	fixed := immutable[before.Kind()]
	network, isNetwork := before.(*log.Network)
	if isNetwork {
		fixed = d.fixedOf(network, fixed)
	}
	if !slices.ContainsFunc(set, func(name string) bool { return slices.Contains(fixed, name) }) {
		return
	}
	message := fmt.Sprintf("%s updates for this field are not supported", kindTitles[before.Kind()])
	for _, change := range log.Diff(before, after) {
		if !slices.Contains(fixed, change.Path) {
			continue
		}
		m := message
		if isNetwork && network.Fabric && (change.Path == "owner_uuids" || change.Path == "gateway") {
			m += " on fabrics"
			if change.Path == "owner_uuids" && sameOwners(network, after.(*log.Network)) {
				continue
			}
		}
		if tag, ok := before.(*log.NICTag); ok && change.Path == "name" && (tag.Name == adminTag || tag.Name == "external") {
			m = tag.Name + " nic tag cannot be renamed"
		}
		d.bad(change.Path, m, fmt.Sprintf("leave it out, or create another %s", kindWords[before.Kind()]))
		log.Assign(after, before, []string{change.Path})
	}
}

// fixedOf adds to the immutable fields what only some networks may not change.
func (d *draft) fixedOf(n *log.Network, fixed []string) []string {
	fixed = slices.Clone(fixed)
	strict := d.setting(SettingNetworkImmutable) == "true"
	if strict {
		fixed = append(fixed, "nic_tag", "vlan_id")
	}
	if n.Fabric {
		fixed = append(fixed, "owner_uuids")
		if strict {
			fixed = append(fixed, "gateway")
		}
	}
	return fixed
}

// kindTitles begin the messages about immutable fields; NAPI's is "Network
// updates for this field are not supported".
var kindTitles = map[log.Kind]string{
	log.KindNICTag: "NIC tag", log.KindNetwork: "Network", log.KindNIC: "NIC",
	log.KindServer: "Server", log.KindVM: "VM", log.KindVMM: "VMM",
	log.KindMigration: "Migration", log.KindTask: "Task", log.KindTicket: "Ticket",
	log.KindIP: "IP", log.KindNetworkPool: "Network pool", log.KindFabricVLAN: "VLAN", log.KindAggregation: "Aggregation", log.KindRouter: "Router", log.KindSetting: "Setting",
	log.KindToken: "Token", log.KindRevocation: "Revocation", log.KindAuthority: "Authority", log.KindCertificate: "Certificate", log.KindGrant: "Grant",
}
