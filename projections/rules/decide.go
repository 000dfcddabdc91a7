package rules

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Bounds on what one object may hold; others are those of package projections.
const (
	maxResolvers   = 16
	maxRoutes      = 256
	maxOwners      = 256
	maxTagsOnOne   = 32 // nic_tags_provided of one NIC
	maxUsedBy      = 32 // objects that an InUse refusal names
	maxDraws       = 256
	maxTagName     = 31 // spec/napi.md section 3.1
	maxMTU         = 9000
	minNetworkMTU  = 576
	minNetwork6MTU = 1280 // RFC 8200, section 5
)

// Decide turns a change into events, all fields filled in, or into a Result
// with a Refusal that names every problem of the first operation that cannot be
// accepted. It only reads s, and gives the same answer on every server.
//
// Each operation sees the effect of those before it. An update that alters
// nothing, and an update of a VMM whose gen is not higher than what is stored,
// are accepted without an event. Result.IDs names the object of each operation;
// First and Last are left to the store, which knows the seqs.
//
// An operation of a kind or action that this program does not know is refused.
// The store must ensure that all servers refuse it the same way: it stops before a
// change of a higher feature version is decided (SAFETY D1).
func Decide(s *projections.State, c *log.Change) ([]*log.Event, log.Result) {
	d := newDraft(s, c, &byKind)
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
		if err := projections.Check(op.Object); err != nil || op.Object.Kind() != op.Kind {
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
	rules := d.rules(op.Kind)
	if id, ok := rules.special.whole(d, op); ok {
		return id
	}
	switch op.Action {
	case log.Create:
		return d.create(op, rules)
	case log.Update:
		return d.update(op, rules)
	case log.Delete:
		return d.delete(op, rules)
	}
	d.bad("action", fmt.Sprintf("%s is not known to this program", op.Action), "use create, update or delete")
	return ""
}

func (d *draft) create(op *log.Op, rules *kindRules) string {
	o := log.Clone(op.Object)
	if d.change.By.Role == log.RoleCN && d.confined() {
		o = d.stripped(op)
	}
	if !d.within(op, nil, o, rules) {
		return ""
	}
	if want, _, met := op.Condition(0, 0); !met {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("if-match '%s' didn't match: the %s does not exist", want, op.Kind))
		return ""
	}
	if field := rules.DrawnField(); field != "" {
		if field == rules.IDField {
			d.fillUUID(projections.UUIDOf(o))
		} else {
			d.fillUUID(log.UUIDField(o, field))
		}
	}
	rules.special.fillIn(d, o, op)
	settleLabels(d, nil, o)
	rules.special.settleUpdate(d, nil, o, op)
	d.checkDeclared(nil, o, rules)
	rules.special.checkUpdate(d, nil, o, op)
	if d.Holds(o) {
		d.duplicate(o, rules)
	}
	if op.ID != "" && !projections.Is(o, op.ID) {
		d.bad(rules.IDField, fmt.Sprintf("the operation names %s, its object %s", d.quote(op.ID), d.quote(o.ID())), "name the object once")
	}
	d.permitFields(op, nil, o)
	if d.refused() {
		return ""
	}
	return d.commit(op, projections.Record{}, o, rules)
}

// duplicate refuses a new object whose id is taken, in NAPI's words where it has some.
func (d *draft) duplicate(o log.Object, rules *kindRules) {
	e := log.FieldError{
		Field: rules.IDField, Code: log.ElementDuplicate, Message: "Already exists",
		Remedy: "choose another, or update the one there", Type: o.Kind().String(), ID: o.ID(),
	}
	rules.special.takenID(d, o, &e)
	d.problem(e)
}

// commit makes the event of an operation that was accepted, among those that
// follow from it. after is nil on delete.
func (d *draft) commit(op *log.Op, before projections.Record, after log.Object, rules *kindRules) string {
	rules.special.before(d, before.Object, after)
	id := d.emit(before, after)
	rules.special.after(d, before.Object, after, op)
	return id
}

// target returns the object of an update or a delete.
func (d *draft) target(op *log.Op, rules *kindRules) (projections.Record, bool) {
	r, ok, err := d.Get(op.Kind, op.ID)
	if err != nil {
		d.bad(rules.IDField, d.showError(err), "name the object as a list of its kind shows it")
		return projections.Record{}, false
	}
	if !ok {
		d.refuse(log.CodeResourceNotFound, rules.Noun+" not found", log.FieldError{
			Field: rules.IDField, Code: log.ElementInvalid, Message: fmt.Sprintf("there is no %s %s", rules.Noun, d.show(op.ID)),
			Remedy: "list what there is, or create it first",
		})
		return projections.Record{}, false
	}
	return r, d.meets(op, r)
}

func (d *draft) update(op *log.Op, rules *kindRules) string {
	before, ok := d.target(op, rules)
	if !ok {
		return ""
	}
	if rules.special.isStale(d, before.Object, op) {
		return before.Object.ID()
	}
	after := log.Clone(before.Object)
	unknown := log.Assign(after, op.Object, op.Set)
	if late := op.Kind.FieldsAfter(d.State().Feature()); len(late) > 0 { // programs of before do not know them
		if i := slices.IndexFunc(op.Set, func(name string) bool { return name == unknown || slices.Contains(late, name) }); i >= 0 {
			unknown = op.Set[i] // the first of them
		}
	}
	if unknown != "" {
		d.problem(log.FieldError{
			Field: d.show(unknown), Code: log.ElementUnknown, Message: fmt.Sprintf("%s has no field %s", op.Kind, d.quote(unknown)), Remedy: "leave it out",
		})
		return ""
	}
	if !d.within(op, before.Object, after, rules) {
		return ""
	}
	d.keepImmutable(before.Object, after, op.Set, rules)
	settleLabels(d, before.Object, after)
	rules.special.settleUpdate(d, before.Object, after, op)
	if !d.refused() && log.Equal(before.Object, after) {
		rules.special.withoutEffect(d, after, op)
		return after.ID() // nothing to do
	}
	d.permitFields(op, before.Object, after)
	d.checkDeclared(before.Object, after, rules)
	rules.special.checkUpdate(d, before.Object, after, op)
	if d.refused() {
		return ""
	}
	return d.commit(op, before, after, rules)
}

// keepImmutable notes each immutable field that after has changed, and puts the
// old value back, so that the checks that follow speak of the rest. set names
// the fields in which the two may differ.
func (d *draft) keepImmutable(before, after log.Object, set []string, rules *kindRules) {
	fixed := rules.Immutable
	if more := rules.special.alsoFixed(d, before); more != nil {
		fixed = slices.Concat(fixed, more)
	}
	if !slices.ContainsFunc(set, func(name string) bool { return slices.Contains(fixed, name) }) {
		return
	}
	for _, change := range log.Diff(before, after) {
		if !slices.Contains(fixed, change.Path) {
			continue
		}
		message, is := rules.special.sayFixed(before, after, change.Path, rules.Title+" updates for this field are not supported")
		if !is {
			continue
		}
		d.bad(change.Path, message, fmt.Sprintf("leave it out, or create another %s", rules.Noun))
		log.Assign(after, before, []string{change.Path})
	}
}

func (d *draft) delete(op *log.Op, rules *kindRules) string {
	r, ok := d.target(op, rules)
	if !ok {
		return ""
	}
	d.unreferenced(r.Object)
	if rules.special.mayRemove(d, r.Object); d.refused() {
		return ""
	}
	return d.commit(op, r, nil, rules)
}

// unused refuses the deletion of an object that any of the indexes shows to be
// in use; it names the first few users.
func (d *draft) unused(o log.Object, message, remedy string, by ...projections.Index) {
	type user struct {
		kind log.Kind
		id   string
	}
	var users []log.FieldError
	named := make(map[user]bool)
	for _, x := range by {
		for holder := range d.Objects(x) {
			k := user{holder.Kind(), holder.ID()}
			if named[k] {
				continue // a server's own NIC is both on it and of it
			}
			if len(users) == maxUsedBy {
				d.refuse(log.CodeInUse, message+"; the first users are named", users...)
				return
			}
			named[k] = true
			users = append(users, usedBy(d.rules(o.Kind()).IDField, holder.Kind().String(), holder.ID(), remedy))
		}
	}
	if users != nil {
		d.refuse(log.CodeInUse, message, users...)
	}
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
	checkReverts(d)
}

// meets reports whether an object is what the operation was made for, and refuses
// it if the object has changed, or is not there.
func (d *draft) meets(op *log.Op, r projections.Record) bool {
	want, got, met := op.Condition(r.Revision, r.Seq)
	if !met {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("if-match '%s' didn't match etag '%s'", want, got), log.FieldError{
			Field: "if-match", Code: log.ElementInvalid, Message: fmt.Sprintf("the object is at revision %s", r.Revision),
			Remedy: "read the object again and repeat the update on what it is now",
		})
	}
	return met
}

func newDraft(s *projections.State, c *log.Change, kinds *[256]*kindRules) *draft {
	// The last operation of a change leaves no trace on the overlay.
	d := &draft{Overlay: projections.NewOverlay(s, len(c.Ops) > 1), change: c, time: max(s.Time(), c.Time), kinds: kinds}
	if to, _, ok := MendOf(s, c); ok {
		d.time = to
	}
	return d
}

// withinLimits reports whether an operation is so small that it can be decided,
// whatever else is wrong with it: nothing that it holds was looked at before.
func (d *draft) withinLimits(op *log.Op) bool {
	if !d.contained() {
		return true
	}
	field := d.rules(op.Kind).IDField
	if field == "" {
		field = "id"
	}
	d.over(field, len(op.ID), log.MaxIDBytes, "id_bytes")
	d.over("set", len(op.Set), log.MaxSetNames, "set_names")
	d.over("options", len(op.Options), log.MaxOptions, "options")
	if op.Object != nil {
		d.objectFits(op.Object)
	}
	return !d.refused()
}

// resultFits notes that the ids of an accepted change are more than a result has room for.
func (d *draft) resultFits(ids []string) {
	if !d.contained() {
		return
	}
	n := log.EmptyResultBytes
	for _, id := range ids {
		n += log.IDHeaderBytes + len(id)
	}
	d.over("ops", n, log.MaxResultBytes, "result_bytes")
}

func (d *draft) checkOptions(op *log.Op) {
	for _, o := range op.Options {
		if !optionFits(d, op, o) {
			d.bad("options", fmt.Sprintf("\"%s\" does not fit a %s of a %s", d.show(string(o)), op.Action, op.Kind), "leave it out")
		}
	}
	if d.change.By.Role == log.RoleCN && (asks(op, log.OptionReserveIP) || asks(op, log.OptionReleaseIP)) {
		d.deny(op, "a compute node may not reserve or release an address", "use the certificate of an operator")
	}
	if asks(op, log.OptionReserveIP) && asks(op, log.OptionReleaseIP) {
		d.bad("options", "an address cannot be reserved and released", "choose one")
	}
}

// optionFits reports whether an option is one of the operation's kind and action, at this
// feature version: before the one that brought it, it is one that programs do not know.
func optionFits(d *draft, op *log.Op, o log.Option) bool {
	switch {
	case !slices.Contains(d.rules(op.Kind).Options, o) || op.Action == log.Delete:
		return false
	case o == log.OptionLockOut:
		return d.confined()
	case o == log.OptionNoNIC:
		return triton(d)
	case o == log.OptionAllocateSubnet:
		return triton(d) && op.Action == log.Create
	}
	return true
}
