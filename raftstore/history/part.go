package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Part names the part of a state that is wanted. The networks and NIC tags are always in
// it; a VM comes with its server.
type Part struct {
	// CNs come with their interest: themselves, their NICs, VMs and VMMs, and the vnets
	// and networks of these NICs, as VNets and Networks.
	CNs []log.UUID
	// VNets and Networks come with all their NICs, and with the underlay NICs of the CNs
	// of these NICs. So lookups and InScope find the same as in the whole state.
	VNets    []uint32
	Networks []log.UUID
	// Mentions are UUIDs: NICs, VMs and VMMs that have one in any field.
	Mentions []log.UUID
	// Objects are single objects.
	Objects []Ref
	// Kinds come whole. NICs, VMs and VMMs are not allowed here, because there are too
	// many.
	Kinds []log.Kind
}

// load resolves the objects and puts them into the state, networks before NICs: in this
// order each index is made only once.
func (p *past) load(state *projections.State, refs map[Ref]bool) error {
	sorted := slices.SortedFunc(maps.Keys(refs), func(a, b Ref) int {
		if a.Kind != b.Kind {
			return int(a.Kind) - int(b.Kind)
		}
		return strings.Compare(a.ID, b.ID)
	})
	if err := p.resolve(sorted...); err != nil {
		return err
	}
	for _, ref := range sorted {
		rec := p.known[ref]
		if rec == nil {
			continue
		}
		if _, held := state.Get(ref.Kind, ref.ID); held {
			continue
		}
		if err := state.Load(*rec); err != nil {
			return err
		}
	}
	return nil
}

// part loads a part of the state.
func (p *past) part(part Part, state *projections.State) error {
	kinds := []log.Kind{log.KindNICTag, log.KindAuthority, log.KindRevocation, log.KindNetwork}
	for _, kind := range part.Kinds {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range kinds {
		if many(kind) {
			return fmt.Errorf("raftstore: %ss are too many for a part of the past, ask for the whole state: %w", kind, errors.ErrUnsupported)
		}
		refs, err := p.ofKind(kind)
		if err == nil {
			err = p.load(state, refs)
		}
		if err != nil {
			return err
		}
	}
	if err := p.ofCNs(part, state); err != nil {
		return err
	}
	if err := p.onNetworks(part, state); err != nil {
		return err
	}
	if err := p.serversOf(state); err != nil {
		return err
	}
	at, err := p.time()
	state.SetTime(at)
	return err
}

// ofCNs loads the objects that mention the CNs, and single objects.
func (p *past) ofCNs(part Part, state *projections.State) error {
	refs := map[Ref]bool{}
	for _, ref := range part.Objects {
		refs[ref] = true
	}
	uuids := map[log.UUID]bool{}
	for _, uuid := range part.Mentions {
		uuids[uuid] = true
	}
	for _, cn := range part.CNs {
		uuids[cn] = true
		refs[Ref{log.KindServer, cn.String()}] = true
	}
	if len(uuids) > 0 {
		more, err := p.mentioning(uuids, log.KindNIC, log.KindVM, log.KindVMM)
		if err != nil {
			return err
		}
		maps.Copy(refs, more)
	}
	return p.load(state, refs)
}

// onNetworks loads the NICs of the wanted vnets and networks, and the underlay NICs that
// lookups of them need.
func (p *past) onNetworks(part Part, state *projections.State) error {
	var scopes []log.Scope
	for _, vnet := range part.VNets {
		scopes = append(scopes, log.VNetScope(vnet))
	}
	for _, uuid := range part.Networks {
		if n := state.Network(uuid); n != nil && n.Fabric {
			scopes = append(scopes, log.VNetScope(n.VNetID))
		} else {
			scopes = append(scopes, log.NetworkScope(uuid))
		}
	}
	for _, cn := range part.CNs {
		for _, scope := range state.Interest(cn) {
			if scope.Type == log.ScopeVNet || scope.Type == log.ScopeNetwork {
				scopes = append(scopes, scope)
			}
		}
	}
	if len(scopes) == 0 {
		return nil
	}
	networks := map[log.UUID]bool{}
	for r := range state.List(log.KindNetwork) {
		n := r.Object.(*log.Network)
		scope := log.NetworkScope(n.UUID)
		if n.Fabric {
			scope = log.VNetScope(n.VNetID)
		}
		if slices.Contains(scopes, scope) {
			networks[n.UUID] = true
		}
	}
	refs, err := p.mentioning(networks, log.KindNIC)
	if err == nil {
		err = p.load(state, refs)
	}
	if err == nil {
		refs, err = p.underlays(state, scopes)
	}
	if err != nil {
		return err
	}
	return p.load(state, refs)
}

// serversOf loads the servers of the VMs in the state.
func (p *past) serversOf(state *projections.State) error {
	refs := map[Ref]bool{}
	for r := range state.List(log.KindVM) {
		if cn := r.Object.(*log.VM).ServerUUID; !cn.IsZero() {
			refs[Ref{log.KindServer, cn.String()}] = true
		}
	}
	return p.load(state, refs)
}
