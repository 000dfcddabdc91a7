package projections

import (
	"iter"
	"slices"
	"strings"

	"rutter/log"
)

// scopesOf returns the scopes of an object, sorted. vnetsOf says on which vnets
// a CN has NICs: to each of them its underlay NICs belong, since a lookup goes
// from a NIC over its CN to the underlay address.
func scopesOf(o log.Object, scopeOn func(network log.UUID) log.Scope, vnetsOf func(cn log.UUID) iter.Seq[log.Scope]) []log.Scope {
	var scopes []log.Scope
	ofCN := func(cn log.UUID) {
		if !cn.IsZero() {
			scopes = append(scopes, log.CNScope(cn))
		}
	}
	if forAll(o) {
		scopes = append(scopes, log.AllScope())
	}
	switch o := o.(type) {
	case *log.Network:
		scopes = append(scopes, scopeOfNetwork(o))
	case *log.NIC:
		ofCN(CNOf(o))
		if scope := scopeOn(o.NetworkUUID); scope.Type != 0 {
			scopes = append(scopes, scope)
		}
		if IsUnderlay(o) {
			scopes = slices.AppendSeq(scopes, vnetsOf(CNOf(o)))
		}
	case *log.Server:
		ofCN(o.UUID)
	case *log.VM:
		ofCN(o.ServerUUID)
	case *log.VMM:
		ofCN(o.SledID)
	case *log.Task:
		ofCN(o.ServerUUID)
	default:
		scopes = append(scopes, scopesOfNet(o)...)
	}
	return tidyScopes(scopes)
}

func tidyScopes(scopes []log.Scope) []log.Scope {
	slices.SortFunc(scopes, log.Scope.Compare)
	return slices.Compact(scopes)
}

// vnetsOf yields the scopes of the vnets on which cn has a NIC.
func (s *State) vnetsOf(cn log.UUID) iter.Seq[log.Scope] {
	return func(yield func(log.Scope) bool) {
		for scope := range s.interest.scopes[cn].from(log.VNetScope(0)) {
			if scope.Type != log.ScopeVNet || !yield(scope) {
				return
			}
		}
	}
}

// ScopesOf returns the scopes to which an object belongs now, sorted; none if
// it is not held or of an unknown kind.
func (s *State) ScopesOf(kind log.Kind, id string) []log.Scope {
	r, ok := s.Get(kind, id)
	if !ok {
		return nil
	}
	return scopesOf(r.Object, s.scopeOn, s.vnetsOf)
}

// InAny reports whether is says so of one of the scopes to which o, an object
// that is held, belongs now. It makes no list of them.
func (s *State) InAny(o log.Object, is func(log.Scope) bool) bool {
	ofCN := func(cn log.UUID) bool { return !cn.IsZero() && is(log.CNScope(cn)) }
	switch o := o.(type) {
	case *log.NIC:
		if scope := s.scopeOn(o.NetworkUUID); scope.Type != 0 && is(scope) || ofCN(CNOf(o)) {
			return true
		}
		if IsUnderlay(o) {
			for scope := range s.vnetsOf(CNOf(o)) {
				if is(scope) {
					return true
				}
			}
		}
		return false
	case *log.VM:
		return ofCN(o.ServerUUID)
	case *log.VMM:
		return ofCN(o.SledID)
	}
	return slices.ContainsFunc(scopesOf(o, s.scopeOn, s.vnetsOf), is)
}

// InScope yields the objects of a scope, sorted by kind and id. To a vnet
// belong also the underlay NICs of the CNs that have a NIC on it.
func (s *State) InScope(scope log.Scope) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range s.rowsIn(scope) {
			if !yield(r.record()) {
				return
			}
		}
	}
}

func (s *State) rowsIn(scope log.Scope) []*row {
	var rows []*row
	take := func(sets ...*sorted[*row]) {
		for _, set := range sets {
			rows = slices.AppendSeq(rows, set.all())
		}
	}
	one := func(kind log.Kind, uuid log.UUID) {
		if r := s.row(kind, string(uuid[:])); r != nil {
			rows = append(rows, r)
		}
	}
	switch scope.Type {
	case log.ScopeAll:
		take(s.tableOrder(log.KindNICTag), s.tableOrder(log.KindAuthority))
		for r := range s.tableOrder(log.KindRevocation).all() {
			if forAll(r.object()) {
				rows = append(rows, r)
			}
		}
	case log.ScopeCN:
		one(log.KindServer, scope.ID)
		take(s.nicsOnCN[scope.ID], s.underlays[scope.ID], s.vmsOnCN[scope.ID], s.vmmsOnCN[scope.ID], s.tasksOn[scope.ID])
		take(s.byNet.aggrsOn[scope.ID], s.byNet.routersOnCN[scope.ID])
	case log.ScopeNetwork:
		if n := s.network(scope.ID); n == nil || n.Fabric {
			return nil
		}
		one(log.KindNetwork, scope.ID)
		take(s.nicsOnNet[scope.ID])
	case log.ScopeVNet:
		if scope.VNet != publicSubnets {
			take(s.subnets[scope.VNet])
		}
		take(s.nicsOnVNet[scope.VNet], s.byNet.routersOnVNet[scope.VNet])
		for cn := range s.interest.cns[scope].all() {
			take(s.underlays[cn])
		}
	}
	slices.SortFunc(rows, compareRows)
	return slices.Compact(rows)
}

// Orphans returns the records that belong to none of the held scopes, sorted
// by kind and id: what an agent drops after it lost a scope, an object moved
// out of sight, or the last NIC of another CN left its vnets (so that the
// underlay NIC of that CN left the scope without an event). Objects of unknown
// kinds are never among them: their scopes are not known either.
func (s *State) Orphans(held []log.Scope) []Record {
	holds := make(map[log.Scope]bool, len(held))
	for _, scope := range held {
		holds[scope] = true
	}
	var orphans []Record
	for _, t := range s.tables {
		if t == nil {
			continue
		}
		for r := range t.order.all() {
			if _, unknown := r.obj.(*log.Unknown); unknown {
				continue
			}
			scopes := scopesOf(r.object(), s.scopeOn, s.vnetsOf)
			if !slices.ContainsFunc(scopes, func(scope log.Scope) bool { return holds[scope] }) {
				orphans = append(orphans, r.record())
			}
		}
	}
	return orphans
}

// forAll reports whether every CN must know the object: whom it trusts, and
// which servers it trusts no more.
func forAll(o log.Object) bool {
	switch o := o.(type) {
	case *log.NICTag, *log.Authority:
		return true
	case *log.Revocation:
		return strings.HasPrefix(o.Identity, "server:")
	}
	return false
}
