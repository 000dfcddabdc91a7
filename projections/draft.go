package projections

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"rutter/log"
)

// rowKey names an object within a state.
type rowKey struct {
	kind log.Kind
	key  string
}

// draft is one change being decided: the state below, which is only read, and
// over it what the operations so far have made of it, so that each sees those
// before it. It ends as events or as a refusal.
type draft struct {
	base   *State
	change *log.Change
	time   log.Time

	top *store
	// gone are the objects of base that are deleted, or stand in top.
	gone map[rowKey]bool
	// freed are, by network, the addresses that base has in use and that the
	// change has given back; some may be in use again in top.
	freed  map[log.UUID]*sorted[netip.Addr]
	events []*log.Event

	at       int              // place of the operation at hand
	problems []log.FieldError // of the operation at hand
	refusal  *log.Refusal     // what ends it at once
}

// nothing is the top of a draft that puts nothing there.
var nothing = new(store)

func newDraft(s *State, c *log.Change) *draft {
	d := &draft{base: s, change: c, time: max(s.time, c.Time)}
	if to, _, ok := s.MendOf(c); ok {
		d.time = to
	}
	if len(c.Ops) > 1 {
		d.top = newStore() // the last operation of a change leaves no trace here
		d.top.under = &s.store
		d.gone, d.freed = map[rowKey]bool{}, map[log.UUID]*sorted[netip.Addr]{}
	} else {
		d.top = nothing
	}
	return d
}

// find returns an object as the operations so far left it.
func (d *draft) find(kind log.Kind, key string) (Record, bool) {
	if r := d.top.row(kind, key); r != nil {
		return r.record(), true
	}
	if r := d.base.row(kind, key); r != nil && !d.gone[rowKey{kind, key}] {
		return r.record(), true
	}
	return Record{}, false
}

// holds reports whether there is an object of o's kind and id by now.
func (d *draft) holds(o log.Object) bool {
	if d.top.rowOfObject(o) != nil {
		return true
	}
	r := d.base.rowOfObject(o)
	return r != nil && !d.isGone(r)
}

// isGone reports whether a row of base does not stand there any more.
func (d *draft) isGone(r *row) bool { return len(d.gone) > 0 && d.gone[rowKey{r.kind(), r.key()}] }

// network returns a network by its UUID, or nil.
func (d *draft) network(uuid log.UUID) *log.Network {
	if r, ok := d.find(log.KindNetwork, string(uuid[:])); ok {
		return r.Object.(*log.Network)
	}
	return nil
}

// tag returns a NIC tag by its name, or nil.
func (d *draft) tag(name string) *log.NICTag {
	if r, ok := d.find(log.KindNICTag, name); ok {
		return r.Object.(*log.NICTag)
	}
	return nil
}

// rows yields the objects of an index as the operations so far left them.
func (d *draft) rows(pick func(*store) *sorted[*row]) iter.Seq[log.Object] {
	return d.live(func(s *store) iter.Seq[*row] { return pick(s).all() })
}

// live yields the objects that pick finds in the state below and that still
// stand there, then those that it finds in what the change made.
func (d *draft) live(pick func(*store) iter.Seq[*row]) iter.Seq[log.Object] {
	return func(yield func(log.Object) bool) {
		for r := range pick(&d.base.store) {
			if !d.isGone(r) && !yield(r.object()) {
				return
			}
		}
		for r := range pick(d.top) {
			if !yield(r.object()) {
				return
			}
		}
	}
}

// holder returns the NIC that has an address of a network, or nil.
func (d *draft) holder(network log.UUID, ip netip.Addr) *log.NIC {
	if r := d.top.nicAt(network, ip); r != nil {
		return r.nic()
	}
	if r := d.base.nicAt(network, ip); r != nil && !d.isGone(r) {
		return r.nic()
	}
	return nil
}

func (d *draft) scopeOn(network log.UUID) log.Scope {
	if n := d.network(network); n != nil {
		return scopeOfNetwork(n)
	}
	return log.Scope{}
}

// vnetsOf yields the scopes of the vnets on which cn has a NIC by now.
func (d *draft) vnetsOf(cn log.UUID) iter.Seq[log.Scope] {
	if len(d.events) == 0 {
		return d.base.vnetsOf(cn)
	}
	return func(yield func(log.Scope) bool) {
		for o := range d.rows(func(s *store) *sorted[*row] { return s.nicsOnCN[cn] }) {
			scope := d.scopeOn(o.(*log.NIC).NetworkUUID)
			if scope.Type == log.ScopeVNet && !yield(scope) {
				return
			}
		}
	}
}

// emit adds the event that turns before (nil on create) into after (nil on
// delete), and returns the object's id.
func (d *draft) emit(before Record, after log.Object) string {
	e := &log.Event{
		Revision: before.Revision + 1, Time: d.time, Actor: d.change.Actor, ChangeID: d.change.ID, Object: after,
	}
	var scopes, now []log.Scope
	if before.Object != nil {
		scopes = scopesOf(before.Object, d.scopeOn, d.vnetsOf)
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
		now = scopesOf(after, d.scopeOn, d.vnetsOf)
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
		d.remember(before, Record{Object: after, Revision: e.Revision, Seq: before.Seq})
	}
	d.events = append(d.events, e)
	return e.ID
}

// remember lays what an event does over the state below.
func (d *draft) remember(before, after Record) {
	if o := before.Object; o != nil {
		k := rowKey{o.Kind(), keyOfObject(o)}
		if d.base.row(k.kind, k.key) != nil && !d.gone[k] {
			d.gone[k] = true
			d.free(o)
		}
		if r := d.top.row(k.kind, k.key); r != nil && after.Object == nil {
			d.top.remove(r)
		}
	}
	if after.Object != nil {
		d.top.put(after, nil)
	}
}

// free notes the address of a NIC, or of an IP object, of base that is taken out
// of sight.
func (d *draft) free(o log.Object) {
	var network log.UUID
	var ip netip.Addr
	switch o := o.(type) {
	case *log.NIC:
		network, ip = o.NetworkUUID, o.IP
	case *log.IP:
		network, ip = o.NetworkUUID, o.IP
	}
	if !ip.IsValid() {
		return
	}
	if d.freed[network] == nil {
		d.freed[network] = newSorted(netip.Addr.Compare)
	}
	d.freed[network].insert(ip)
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
