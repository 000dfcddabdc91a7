package projections

import (
	"iter"
	"slices"

	"rutter/log"
)

// scopesOf returns the scopes of an object, sorted. vnetsOf says on which vnets
// a CN has NICs: to each of them its underlay NICs belong, since a lookup goes
// from a NIC over its CN to the underlay address.
func scopesOf(o log.Object, scopeOn func(network log.UUID) log.Scope, vnetsOf func(cn log.UUID) iter.Seq[log.Scope]) []log.Scope {
	var scopes []log.Scope
	k := keptAs(o.Kind())
	nic, isNIC := o.(*log.NIC)
	switch {
	case isNIC:
		if cn := CNOf(nic); !cn.IsZero() {
			scopes = append(scopes, log.CNScope(cn))
		}
		if scope := scopeOn(nic.NetworkUUID); scope.Type != 0 {
			scopes = append(scopes, scope)
		}
		if IsUnderlay(nic) {
			scopes = slices.AppendSeq(scopes, vnetsOf(CNOf(nic)))
		}
	case k.scopes != nil:
		scopes = k.scopes(o)
	default:
		if scope := log.ScopeOf(o); scope.Type != 0 {
			return []log.Scope{scope}
		}
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
	nic, isNIC := o.(*log.NIC)
	switch {
	case isNIC:
		if scope := s.scopeOn(nic.NetworkUUID); scope.Type != 0 && is(scope) {
			return true
		}
		if scope := onCN(CNOf(nic)); scope.Type != 0 && is(scope) {
			return true
		}
		if IsUnderlay(nic) {
			for scope := range s.vnetsOf(CNOf(nic)) {
				if is(scope) {
					return true
				}
			}
		}
		return false
	case o.Kind().HasScope():
		scope := log.ScopeOf(o)
		return scope.Type != 0 && is(scope)
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
	take(s.inScope[scope])
	switch scope.Type {
	case log.ScopeCN:
		one(log.KindServer, scope.ID)
		take(s.nicsOnCN[scope.ID], s.underlays[scope.ID], s.vmsOnCN[scope.ID], s.vmmsOnCN[scope.ID], s.tasksOn[scope.ID])
		take(s.aggrsOn[scope.ID], s.routersOnCN[scope.ID])
	case log.ScopeNetwork:
		if n := s.network(scope.ID); n == nil || n.Fabric {
			break
		}
		one(log.KindNetwork, scope.ID)
		take(s.nicsOnNet[scope.ID])
	case log.ScopeVNet:
		if scope.VNet != publicSubnets {
			take(s.subnets[scope.VNet])
		}
		take(s.nicsOnVNet[scope.VNet], s.routersOnVNet[scope.VNet])
		for cn := range s.interest.cns[scope].all() {
			take(s.underlays[cn])
		}
	}
	slices.SortFunc(rows, compareRows)
	return slices.Compact(rows)
}

// Interest returns the scopes that cn must know, sorted: all, itself, the vnets
// and the other networks that its NICs are on.
func (s *State) Interest(cn log.UUID) []log.Scope {
	held := s.interest.scopes[cn]
	scopes := make([]log.Scope, 0, held.len()+2)
	scopes = append(scopes, log.AllScope(), log.CNScope(cn))
	for scope := range held.all() {
		scopes = append(scopes, scope)
	}
	return scopes
}

// CNs returns who is interested in scope, sorted. For the scope of all these
// are the CNs that the log knows: those with a server object or with a NIC on
// a network.
func (s *State) CNs(scope log.Scope) []log.UUID {
	switch scope.Type {
	case log.ScopeCN:
		return []log.UUID{scope.ID}
	case log.ScopeAll:
		var cns []log.UUID
		for r := range s.List(log.KindServer) {
			cns = append(cns, r.Object.(*log.Server).UUID)
		}
		for cn := range s.interest.scopes {
			cns = append(cns, cn)
		}
		slices.SortFunc(cns, log.UUID.Compare)
		return slices.Compact(cns)
	}
	return slices.Collect(s.interest.cns[scope].all())
}

// CountCNs returns how many CNs have a NIC in a scope, which is that of a vnet or a network:
// as many as CNs returns, at no cost.
func (s *State) CountCNs(scope log.Scope) int { return s.interest.cns[scope].len() }

// Interested reports whether cn is interested in any of the scopes.
func (s *State) Interested(cn log.UUID, scopes []log.Scope) bool {
	for _, scope := range scopes {
		switch scope.Type {
		case log.ScopeAll:
			return true
		case log.ScopeCN:
			if scope.ID == cn {
				return true
			}
		default:
			if s.interest.counts[Gain{cn, scope}] > 0 {
				return true
			}
		}
	}
	return false
}
