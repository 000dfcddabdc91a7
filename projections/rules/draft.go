package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"

	"rutter/log"
	"rutter/projections"
)

// draft is one change being decided: the state, what the operations so far have
// made of it, and what came of them. It ends as events or as a refusal.
type draft struct {
	projections.Overlay
	change  *log.Change
	time    log.Time
	kinds   *[256]*kindRules // by number
	reverts log.Reverts      // of the change, where its events have them
	events  []*log.Event

	at       int              // place of the operation at hand
	problems []log.FieldError // of the operation at hand
	refusal  *log.Refusal     // what ends it at once

	vnets map[uint32]*vnetBlocks // of which a subnet was chosen
}

// rules returns the rules of a kind.
func (d *draft) rules(kind log.Kind) *kindRules {
	if r := d.kinds[kind]; r != nil {
		return r
	}
	return &noRules
}

// emit adds the event that turns before (nil on create) into after (nil on
// delete), and returns the object's id.
func (d *draft) emit(before projections.Record, after log.Object) string {
	if after != nil {
		after = log.Settled(after)
	}
	e := &log.Event{
		Revision: before.Revision + 1, Time: d.time, Actor: d.change.Actor, ChangeID: d.change.ID, Object: after,
		Reverts: d.reverts,
	}
	var scopes, now []log.Scope
	if before.Object != nil {
		scopes = d.ScopesOf(before.Object)
	}
	switch {
	case before.Object == nil:
		e.Action = log.Create
	case after == nil:
		e.Action, e.Object = log.Delete, before.Object
	default:
		e.Action, e.Changed = log.Update, log.Diff(before.Object, after)
	}
	if after != nil {
		// A new fabric network is not yet to be found, but is its own scope.
		now = d.ScopesOf(after)
	}
	switch {
	case before.Object == nil:
		scopes = now
	case !slices.Equal(scopes, now):
		scopes = tidyScopes(append(scopes, now...))
	}
	if after != nil && d.contained() {
		d.objectFits(after)
	}
	e.Kind, e.ID, e.Scopes = e.Object.Kind(), e.Object.ID(), scopes
	if d.at < len(d.change.Ops)-1 {
		d.Put(before, projections.Record{Object: after, Revision: e.Revision, Seq: before.Seq})
	}
	if d.vnets != nil {
		followBlocks(d, before.Object, after)
	}
	d.events = append(d.events, e)
	return e.ID
}

func tidyScopes(scopes []log.Scope) []log.Scope {
	slices.SortFunc(scopes, log.Scope.Compare)
	return slices.Compact(scopes)
}

// problem notes what is wrong with a field of the operation at hand.
func (d *draft) problem(e log.FieldError) { d.problems = append(d.problems, e) }

// bad notes a field whose value is refused.
func (d *draft) bad(field, message, remedy string) {
	d.problem(log.FieldError{Field: field, Code: log.ElementInvalid, Message: message, Remedy: remedy})
}

// missing notes a field that must be given.
func (d *draft) missing(field, remedy string) {
	d.problem(log.FieldError{Field: field, Code: log.ElementMissing, Message: "Missing parameter", Remedy: remedy})
}

// refuse ends the change at once.
func (d *draft) refuse(code, message string, errors ...log.FieldError) {
	if d.refusal == nil {
		d.refusal = &log.Refusal{Code: code, Message: message, Errors: errors}
	}
}

// refused reports whether the operation at hand cannot be accepted.
func (d *draft) refused() bool { return d.refusal != nil || len(d.problems) > 0 }

// verdict returns why the change is refused, or nil. In a change of several
// operations each field is named as ops.N.field, N from 0.
func (d *draft) verdict() *log.Refusal {
	r := d.refusal
	if r == nil && len(d.problems) > 0 {
		r = &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: d.problems}
	}
	if r == nil || len(d.change.Ops) < 2 || len(d.change.Ops) > log.MaxOps {
		return d.bounded(r)
	}
	r.Errors = slices.Clone(r.Errors)
	for i := range r.Errors {
		r.Errors[i].Field = fmt.Sprintf("ops.%d.%s", d.at, r.Errors[i].Field)
	}
	return d.bounded(r)
}

// draw gives bytes that look random and are the same on every server: a hash of
// what is drawn, the seed that the leader stamped, the change's id, the place
// of the operation, and the number of the try.
func (d *draft) draw(what string, seed uint64, try uint64) [sha256.Size]byte {
	b := make([]byte, 0, 64)
	b = append(b, "rutter "...)
	b = append(b, what...)
	b = binary.BigEndian.AppendUint64(b, seed)
	b = append(b, d.change.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(d.at))
	b = binary.BigEndian.AppendUint64(b, try)
	return sha256.Sum256(b)
}

// fillUUID derives a UUID of version 8 (RFC 9562, section 5.8).
func (d *draft) fillUUID(u *log.UUID) {
	if !u.IsZero() {
		return
	}
	sum := d.draw("uuid", 0, 0)
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
}

// tag returns a NIC tag by its name, or nil.
func (d *draft) tag(name string) *log.NICTag {
	if r, ok := d.ByName(log.KindNICTag, name); ok {
		return r.Object.(*log.NICTag)
	}
	return nil
}

// nic returns a NIC by its MAC, or nil.
func (d *draft) nic(mac log.MAC) *log.NIC {
	if r, ok := d.NIC(mac); ok {
		return r.Object.(*log.NIC)
	}
	return nil
}

// pool returns a network pool, or nil.
func (d *draft) pool(uuid log.UUID) *log.NetworkPool {
	if r, ok := d.ByUUID(log.KindNetworkPool, uuid); ok {
		return r.Object.(*log.NetworkPool)
	}
	return nil
}

func (d *draft) vm(id log.UUID) *log.VM {
	if r, ok := d.ByUUID(log.KindVM, id); ok {
		return r.Object.(*log.VM)
	}
	return nil
}

// given reports whether the operation names the field.
func given(op *log.Op, field string) bool { return slices.Contains(op.Set, field) }

// asks reports whether the operation has the option.
func asks(op *log.Op, option log.Option) bool { return slices.Contains(op.Options, option) }

// contained reports whether the change is decided by the limits of log.Limits.
// Before that feature version all servers answer as the first programs did, byte
// for byte (SAFETY D1): a refusal's text is part of what they agree on.
func (d *draft) contained() bool { return d.State().Feature() >= log.FeatureContained }

// confined reports whether log.FeatureConfined holds.
func (d *draft) confined() bool { return d.State().Feature() >= log.FeatureConfined }

// perNode reports whether log.FeaturePerNode holds.
func perNode(d *draft) bool { return d.State().Feature() >= log.FeaturePerNode }

// wire reports whether log.FeatureWire holds.
func wire(d *draft) bool { return d.State().Feature() >= log.FeatureWire }

// triton reports whether log.FeatureTriton holds.
func triton(d *draft) bool { return d.State().Feature() >= log.FeatureTriton }

// show returns what a client sent as a message shows it.
func (d *draft) show(input string) string {
	if !d.contained() {
		return input
	}
	return log.Quote(input)
}

// quote is show with quotes around it.
func (d *draft) quote(input string) string {
	if !d.contained() {
		return strconv.Quote(input)
	}
	return `"` + log.Quote(input) + `"`
}

// showError is what a message says of an id that cannot be read.
func (d *draft) showError(err error) string {
	var form *log.FormError
	if d.contained() && errors.As(err, &form) {
		return form.Short()
	}
	return err.Error()
}

// over notes that something is over a limit, if it is, and reports that.
func (d *draft) over(field string, n, most int, limit string) bool {
	if n <= most {
		return false
	}
	d.bad(field, fmt.Sprintf("%d is over the limit %s", n, limit), fmt.Sprintf("%d are the most", most))
	return true
}

// objectFits reports whether an object is within the limits of any, and notes
// those that it is over.
func (d *draft) objectFits(o log.Object) bool {
	m := log.Measure(o, d.State().Feature())
	if d.over("object", m.Unknown, log.MaxUnknownBytes, "unknown_bytes") {
		return false
	}
	long := d.over(m.LongestField, m.Longest, log.MaxListElements, "list_elements")
	return !d.over("object", m.Bytes, log.MaxObjectBytes, "object_bytes") && !long
}

// bounded returns a refusal as it is answered and remembered.
func (d *draft) bounded(r *log.Refusal) *log.Refusal {
	if !d.contained() {
		return r
	}
	return r.Bounded()
}

func (d *draft) deny(op *log.Op, message, remedy string) {
	field := d.rules(op.Kind).IDField
	if field == "" {
		field = "kind"
	}
	d.refuse(log.CodeNotAuthorized, message, log.FieldError{Field: field, Code: log.ElementInvalid, Message: message, Remedy: remedy})
}

// checkText bounds a text that may be empty.
func (d *draft) checkText(field, text string) {
	if len(text) > projections.MaxTextBytes {
		d.bad(field, fmt.Sprintf("must not be longer than %d bytes", projections.MaxTextBytes), "shorten it")
	}
}

// maxDescription bounds a description where NAPI does, in characters as it counts them:
// units of UTF-16 (sdc-napi, MAX_STR_LEN).
const maxDescription = 64

// checkDescription is checkText for what NAPI describes. A longer one that a log has from
// before log.FeatureTriton stays until it is changed; was is "" on create.
func checkDescription(d *draft, was, now string) {
	if d.checkText("description", now); triton(d) && now != was && len(utf16.Encode([]rune(now))) > maxDescription {
		d.bad("description", fmt.Sprintf("must not be longer than %d characters", maxDescription), "shorten it")
	}
}

func (d *draft) checkName(name string) {
	if name == "" || len(name) > projections.MaxNameBytes {
		d.bad("name", fmt.Sprintf("must have 1 to %d characters", projections.MaxNameBytes), "choose a name")
	}
}

// checkJSON: text that readers take for JSON must be; first, if not 0, is what it
// begins with.
func (d *draft) checkJSON(field, text string, most int, first byte) {
	switch {
	case text == "":
	case len(text) > most:
		d.bad(field, fmt.Sprintf("%d bytes are over %d", len(text), most), "send less")
	case !json.Valid([]byte(text)) || first != 0 && text[0] != first:
		d.bad(field, "it is not JSON of the form that is wanted", "send the text of a JSON value, an object where the field's name is a plural or params")
	}
}

// checkTexts: a list of JSON objects in text.
func (d *draft) checkTexts(field string, list []string, most int) {
	if len(list) > most {
		d.bad(field, fmt.Sprintf("%d entries are over %d", len(list), most), "send fewer")
		return
	}
	for i, text := range list {
		d.checkJSON(fmt.Sprintf("%s.%d", field, i), text, projections.MaxFieldJSON, '{')
	}
}

func usedBy(field, kind, id, remedy string) log.FieldError {
	return log.FieldError{
		Field: field, Code: log.ElementUsedBy, Message: fmt.Sprintf("In use by %s \"%s\"", kind, id),
		Remedy: remedy, Type: kind, ID: id,
	}
}

// declared reports whether log.FeatureDeclared holds.
func declared(d *draft) bool { return d.State().Feature() >= log.FeatureDeclared }

// settleLabels brings the labels of an object that an operation sets into their one form,
// and notes what is wrong with them. after is the draft's own. Labels that a log has from
// before log.FeatureDeclared, which no program checked, stay until they are set.
func settleLabels(d *draft, before, after log.Object) {
	labels := log.LabelsOf(after)
	if labels == nil || len(*labels) == 0 || !declared(d) {
		return
	}
	if before != nil && slices.Equal(*labels, *log.LabelsOf(before)) {
		return
	}
	sorted := slices.Clone(*labels)
	log.SortLabels(sorted)
	*labels = sorted
	if problem, remedy := log.CheckLabels(sorted); problem != "" {
		d.bad(log.FieldLabels, problem, remedy)
	}
}

// checkReverts notes what is wrong with the entries that a change names. Programs of before
// log.FeatureDeclared pass over them, so that this one decides then as if there were none.
func checkReverts(d *draft) {
	if !declared(d) || len(d.change.Reverts) == 0 {
		return
	}
	if err := d.change.Reverts.Check(); err != nil {
		d.bad("reverts", err.Error(), "send seqs and ranges of them in order, as in #1042,#1050-#1060")
		return
	}
	if d.change.By.Role == log.RoleCN {
		d.bad("reverts", "a compute node takes back nothing", "use the certificate of an operator")
	}
	d.reverts = d.change.Reverts
}
