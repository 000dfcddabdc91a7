package agent

import (
	"slices"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// heldScopes are the scopes of which a replica holds the objects.
type heldScopes map[log.Scope]heldScope

// sorted returns the scopes in order.
func (s heldScopes) sorted() []feed.HeldScope {
	scopes := make([]feed.HeldScope, 0, len(s))
	for scope, held := range s {
		scopes = append(scopes, feed.HeldScope{Scope: scope, AsOf: held.AsOf})
	}
	slices.SortFunc(scopes, func(a, b feed.HeldScope) int { return a.Scope.Compare(b.Scope) })
	return scopes
}

// behind returns a function that reports whether a scope is held as of a seq before
// this one.
func (s heldScopes) behind(seq log.Seq) func(log.Scope) bool {
	return func(scope log.Scope) bool {
		held, ok := s[scope]
		return ok && held.AsOf < seq
	}
}

// contain reports whether a held scope contains the object, not counting one scope
// (zero: all count). The scopes of an object of an unknown kind are unknown here: it is
// held until it is deleted.
func (s heldScopes) contain(state *projections.State, key objectKey, except log.Scope) bool {
	if log.NewObject(key.Kind) == nil {
		return true
	}
	rec, known := state.Get(key.Kind, key.ID)
	return known && state.InAny(rec.Object, func(scope log.Scope) bool {
		_, held := s[scope]
		return held && scope != except
	})
}
