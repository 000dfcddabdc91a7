package log

import "fmt"

// This file has what a kind declares and packages projections and rules carry out.

// Required is a field that every object of a kind must have, by its JSON name. Remedy
// is what a client without it is told to do; "": to send it.
type Required struct{ Field, Remedy string }

// Reference is a field, by its JSON name, whose values are ids of objects of Kind: one
// id, or a list of them. A change that names an object that there is not is refused,
// and so is the deletion of an object that is named.
type Reference struct {
	Field string
	Kind  Kind
}

// scopes is the part of a kind's row that says to which scope an object belongs by its
// own fields; Type is 0 if to none.
type scopes[T any] func(o *T) Scope

// scopeTable is scopes[T] of any T. An object that it is given is a *T.
type scopeTable interface{ of(o Object) Scope }

func (s scopes[T]) of(o Object) Scope { return s(any(o).(*T)) }

// onCN is the scope of what is on a compute node; of Type 0 if cn is not set.
func onCN(cn UUID) (scope Scope) {
	if !cn.IsZero() {
		scope = CNScope(cn)
	}
	return scope
}

// ScopeOf returns the scope to which an object belongs by its own fields, of Type 0 if
// to none. NICs and routers, which may belong to several scopes, and objects of
// kinds that this program does not know have none here.
func ScopeOf(o Object) Scope {
	if row := rowOf(o); row != nil && row.scope != nil {
		return row.scope.of(o)
	}
	return Scope{}
}

// HasScope reports whether the kind declares a scope, which is what ScopeOf returns.
func (k Kind) HasScope() bool { return k.row() != nil && k.row().scope != nil }

// DrawnField is the JSON name of the UUID that deciding chooses where a client leaves
// it open in a new object; "": there is none.
func (d *Description) DrawnField() string {
	if d.Drawn == "" && d.IDForm == IDUUID {
		return d.IDField
	}
	return d.Drawn
}

// UUIDField returns o's own field of that JSON name, or nil if it is not a UUID.
func UUIDField(o Object, name string) *UUID {
	s, _ := fieldOf(o, name)
	uuid, _ := s.p.(*UUID)
	return uuid
}

// FieldTexts returns the values of o's field by its JSON name, in text: the elements of
// a list, or the one value. Nil if it is not set or there is no such field.
func FieldTexts(o Object, name string) []string {
	switch v, _ := Field(o, name); v := v.(type) {
	case nil:
		return nil
	case []string:
		return v
	case string:
		return []string{v}
	default:
		return []string{fmt.Sprint(v)}
	}
}
