// Package rules decides changes: Decide turns one into events, or into a refusal
// that names what is wrong with it.
//
// It owns what a valid object of each kind is, what follows from an operation, what
// a compute node (CN) may write and how many objects it may own, and the choice of ids
// and addresses. What needs no state is declared in package log; table.go has the kinds
// with rules beyond that, each of which has a file. What a state is, and how it keeps
// its objects, is left to package projections.
//
// The package is pure: no clock, randomness, goroutine, file, socket or logger, and
// no iteration over a map in an order that could be seen. All servers decide the
// same, also what a refusal says. Decide only reads the state, and may run beside other
// readers.
//
// DESIGN.md of package projections lists the rules of validation that depart from
// NAPI's, with their reasons.
package rules

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// kindRules is what is decided about one kind of object.
type kindRules struct {
	// What package log says of it: its words, its immutable fields, who may write it.
	*log.Description
	special special // what is not declared there
}

// table has the rules of the kinds that need the state or more than log declares, by
// kind. A kind that is not here has only what is declared.
var table = [...]special{
	log.KindNICTag:      nicTagRules,
	log.KindNetwork:     networkRules,
	log.KindNIC:         nicRules,
	log.KindServer:      serverRules,
	log.KindVM:          vmRules,
	log.KindVMM:         vmmRules,
	log.KindNetworkPool: poolRules,
	log.KindFabricVLAN:  vlanRules,
	log.KindIP:          ipRules,
	log.KindAggregation: aggregationRules,
	log.KindRouter:      routerRules,
	log.KindMigration:   migrationRules,
	log.KindTask:        taskRules,
	log.KindSetting:     settingRules,
	log.KindToken:       tokenRules,
	log.KindRevocation:  revocationRules,
	log.KindGrant:       grantRules,
	log.KindTicket:      ticketRules,
	log.KindAuthority:   authorityRules,
	log.KindCertificate: certificateRules,
}

// byKind has the rules of each kind that package log knows, by number.
var byKind = func() (rules [256]*kindRules) {
	for _, kind := range log.Kinds() {
		r := &kindRules{Description: kind.Describe(), special: hooks[log.Object]{}}
		if int(kind) < len(table) && table[kind] != nil {
			r.special = table[kind]
		}
		rules[kind] = r
	}
	return rules
}()

// noRules are those of a kind that this program does not know.
var noRules = kindRules{Description: new(log.Description), special: hooks[log.Object]{}}

// hooks are what is special about a kind whose Go type is T. Each may be nil. They
// note what is wrong in the draft. before is nil on create, after on delete.
type hooks[T log.Object] struct {
	// decide decides a whole operation, and returns its object's id; then no other
	// hook is called.
	decide func(d *draft, op *log.Op) string

	// instead decides an operation that the kind decides in another way, if ok; no other
	// hook is called then.
	instead func(d *draft, op *log.Op) (id string, ok bool)

	// fill fills in what a client may leave open in a new object.
	fill func(d *draft, o T, op *log.Op)
	// settle brings an object into its one form; after is a clone of the draft's own.
	settle func(d *draft, before, after T, op *log.Op)
	// check checks an object as it would stand, and may complete it.
	check func(d *draft, before, after T, op *log.Op)
	// duplicate completes what is said of a new object whose id is taken.
	duplicate func(d *draft, o T, e *log.FieldError)

	// stale reports whether an update is accepted without a look at it.
	stale func(d *draft, before T, op *log.Op) bool
	// fixed are further immutable fields of an object.
	fixed func(d *draft, before T) []string
	// isFixed returns what is said of an update of an immutable field, and whether
	// it is one.
	isFixed func(before, after T, field, message string) (string, bool)
	// unchanged makes the events of an update that alters nothing.
	unchanged func(d *draft, o T, op *log.Op)

	// remove refuses the deletion of an object that is needed.
	remove func(d *draft, o T)
	// precede makes the events that must stand before the object's own.
	precede func(d *draft, before, after T)
	// follow makes the events that follow from the object's own.
	follow func(d *draft, before, after T, op *log.Op)

	// owns reports whether an object is about a CN: itself, or what runs on it.
	owns func(d *draft, cn log.UUID, o T) bool
	// within decides, from log.FeatureConfined on, whether a CN may make an object, or
	// change one of its own so, before after is settled; see rights.go.
	within func(d *draft, cn log.UUID, before, after T, op *log.Op) bool
	// mayTake decides what ownership alone does not.
	mayTake func(d *draft, cn log.UUID, before, after T) bool
	// ownFields are further fields that a CN may update of its own.
	ownFields func(cn log.UUID, before T) []string
	// limit is the limit that another object of a CN's meets.
	limit func(d *draft, cn log.UUID, o T) ownedLimit
	// comesTo reports whether an update makes an object cn's that was another's.
	comesTo func(cn log.UUID, before, after T) bool
}

// special is hooks without its type.
type special interface {
	whole(d *draft, op *log.Op) (id string, ok bool)
	fillIn(d *draft, o log.Object, op *log.Op)
	takenID(d *draft, o log.Object, e *log.FieldError)
	isStale(d *draft, before log.Object, op *log.Op) bool
	alsoFixed(d *draft, before log.Object) []string
	sayFixed(before, after log.Object, field, message string) (string, bool)
	settleUpdate(d *draft, before, after log.Object, op *log.Op)
	checkUpdate(d *draft, before, after log.Object, op *log.Op)
	withoutEffect(d *draft, o log.Object, op *log.Op)
	mayRemove(d *draft, o log.Object)
	before(d *draft, before, after log.Object)
	after(d *draft, before, after log.Object, op *log.Op)
	isOf(d *draft, cn log.UUID, o log.Object) bool
	isWithin(d *draft, cn log.UUID, before, after log.Object, op *log.Op) bool
	mayBeTaken(d *draft, cn log.UUID, before, after log.Object) bool
	moreFields(cn log.UUID, before log.Object) []string
	limitOf(d *draft, cn log.UUID, o log.Object) (ownedLimit, bool)
	isNewTo(cn log.UUID, before, after log.Object) bool
}

// as returns an object as what it is; nil stays nil.
func as[T log.Object](o log.Object) T {
	t, _ := o.(T)
	return t
}

func (h hooks[T]) whole(d *draft, op *log.Op) (id string, ok bool) {
	if h.instead != nil {
		return h.instead(d, op)
	}
	if h.decide == nil || op.Action < log.Create || op.Action > log.Delete {
		return "", false
	}
	return h.decide(d, op), true
}

func (h hooks[T]) fillIn(d *draft, o log.Object, op *log.Op) {
	if h.fill != nil {
		h.fill(d, as[T](o), op)
	}
}

func (h hooks[T]) takenID(d *draft, o log.Object, e *log.FieldError) {
	if h.duplicate != nil {
		h.duplicate(d, as[T](o), e)
	}
}

func (h hooks[T]) isStale(d *draft, before log.Object, op *log.Op) bool {
	return h.stale != nil && h.stale(d, as[T](before), op)
}

func (h hooks[T]) alsoFixed(d *draft, before log.Object) []string {
	if h.fixed == nil {
		return nil
	}
	return h.fixed(d, as[T](before))
}

func (h hooks[T]) sayFixed(before, after log.Object, field, message string) (string, bool) {
	if h.isFixed == nil {
		return message, true
	}
	return h.isFixed(as[T](before), as[T](after), field, message)
}

func (h hooks[T]) settleUpdate(d *draft, before, after log.Object, op *log.Op) {
	if h.settle != nil {
		h.settle(d, as[T](before), as[T](after), op)
	}
}

func (h hooks[T]) checkUpdate(d *draft, before, after log.Object, op *log.Op) {
	if h.check != nil {
		h.check(d, as[T](before), as[T](after), op)
	}
}

func (h hooks[T]) withoutEffect(d *draft, o log.Object, op *log.Op) {
	if h.unchanged != nil {
		h.unchanged(d, as[T](o), op)
	}
}

func (h hooks[T]) mayRemove(d *draft, o log.Object) {
	if h.remove != nil {
		h.remove(d, as[T](o))
	}
}

func (h hooks[T]) before(d *draft, before, after log.Object) {
	if h.precede != nil {
		h.precede(d, as[T](before), as[T](after))
	}
}

func (h hooks[T]) after(d *draft, before, after log.Object, op *log.Op) {
	if h.follow != nil {
		h.follow(d, as[T](before), as[T](after), op)
	}
}

func (h hooks[T]) isOf(d *draft, cn log.UUID, o log.Object) bool {
	return h.owns != nil && h.owns(d, cn, as[T](o))
}

func (h hooks[T]) isWithin(d *draft, cn log.UUID, before, after log.Object, op *log.Op) bool {
	return h.within == nil || h.within(d, cn, as[T](before), as[T](after), op)
}

func (h hooks[T]) mayBeTaken(d *draft, cn log.UUID, before, after log.Object) bool {
	return h.mayTake == nil || h.mayTake(d, cn, as[T](before), as[T](after))
}

func (h hooks[T]) moreFields(cn log.UUID, before log.Object) []string {
	if h.ownFields == nil {
		return nil
	}
	return h.ownFields(cn, as[T](before))
}

func (h hooks[T]) limitOf(d *draft, cn log.UUID, o log.Object) (l ownedLimit, ok bool) {
	if h.limit == nil {
		return l, false
	}
	return h.limit(d, cn, as[T](o)), true
}

func (h hooks[T]) isNewTo(cn log.UUID, before, after log.Object) bool {
	return h.comesTo != nil && h.comesTo(cn, as[T](before), as[T](after))
}

// checkDeclared checks what a kind declares of its fields in package log. before is
// nil on create.
func (d *draft) checkDeclared(before, after log.Object, rules *kindRules) {
	for _, r := range rules.Required {
		if uuid := projections.UUIDOf(after); uuid != nil && r.Field == rules.IDField {
			if !uuid.IsZero() {
				continue
			}
		} else if v, _ := log.Field(after, r.Field); v != nil && v != uint64(0) {
			continue
		}
		if r.Remedy == "" {
			r.Remedy = "send it"
		}
		d.missing(r.Field, r.Remedy)
	}
	for _, r := range rules.References {
		for _, id := range log.FieldTexts(after, r.Field) {
			if _, ok, err := d.Get(r.Kind, id); !ok || err != nil {
				noun := r.Kind.Describe().Noun
				d.bad(r.Field, fmt.Sprintf("%s \"%s\" does not exist", noun, d.show(id)), fmt.Sprintf("create the %s first", noun))
			}
		}
	}
	for _, field := range rules.Unique {
		values := log.FieldTexts(after, field)
		if before != nil && slices.Equal(values, log.FieldTexts(before, field)) {
			continue
		}
		for _, value := range values {
			d.onlyOne(before, after, field, value)
		}
	}
}

// onlyOne refuses a value of a field that another object of the kind has.
func (d *draft) onlyOne(before, after log.Object, field, value string) {
	for other := range d.Objects(projections.With(after.Kind(), field, value)) {
		if before == nil || other.ID() != before.ID() {
			d.problem(log.FieldError{
				Field: field, Code: log.ElementDuplicate, Message: "Already exists",
				Remedy: "choose another, or update the one there", Type: other.Kind().String(), ID: other.ID(),
			})
			return
		}
	}
}

// referrer is a field whose values are ids of objects of another kind.
type referrer struct {
	kind  log.Kind
	field string
}

// referring are the fields by which objects of any kind name those of a kind.
var referring = func() (by [256][]referrer) {
	for _, kind := range log.Kinds() {
		for _, r := range kind.Describe().References {
			by[r.Kind] = append(by[r.Kind], referrer{kind, r.Field})
		}
	}
	return by
}()

// unreferenced refuses the deletion of an object that others name in a field that is
// declared to be a reference.
func (d *draft) unreferenced(o log.Object) {
	var by []projections.Index
	for _, r := range referring[o.Kind()] {
		by = append(by, projections.With(r.kind, r.field, o.ID()))
	}
	if len(by) > 0 {
		d.unused(o, d.rules(o.Kind()).Noun+" is in use", "take it out of what uses it first", by...)
	}
}
