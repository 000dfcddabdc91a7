package matrix

import (
	"slices"

	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// Sees reports whether an identity whose answer is a may see an object. The object must
// be in the state.
func Sees(id Identity, a Decision, state *projections.State, o log.Object) bool {
	switch {
	case a == Allow:
		return true
	case a != Own:
		return false
	case id.Role == CN:
		return state.InAny(o, func(scope log.Scope) bool { return state.Interested(id.UUID, []log.Scope{scope}) })
	case id.Role == Reader:
		return ownedBy(o, id.Owners)
	}
	return false
}

// SeesEvent reports the same of an event: for a tenant's reader, whether the object
// belongs or belonged to one of its owners. A CN gets events only by the feed.
func SeesEvent(id Identity, a Decision, e *log.Event) bool {
	if a == Allow {
		return true
	}
	if a != Own || id.Role != Reader || e.Object == nil {
		return false
	}
	if ownedBy(e.Object, id.Owners) {
		return true
	}
	before, err := log.Revert(e.Object, e.Changed)
	return err == nil && ownedBy(before, id.Owners)
}

// ownedBy reports whether the object belongs to one of the owners. An object without an
// owner belongs to none.
func ownedBy(o log.Object, owners []log.UUID) bool {
	field := o.Kind().Describe().TenantField
	return slices.ContainsFunc(owners, func(u log.UUID) bool { return log.FieldHas(o, field, u.String()) })
}

// Shown returns an object that Sees says an identity sees, as it sees it: a tenant's reader
// sees its VMs without internal_metadata, which is the operators'.
func Shown(id Identity, a Decision, o log.Object) log.Object {
	if vm, is := o.(*log.VM); is && a == Own && id.Role == Reader {
		return vmobject.Public(vm)
	}
	return o
}

// ShownEvent is Shown of an event of SeesEvent.
func ShownEvent(id Identity, a Decision, e *log.Event) *log.Event {
	if a == Own && id.Role == Reader {
		return vmobject.PublicEvent(e)
	}
	return e
}
