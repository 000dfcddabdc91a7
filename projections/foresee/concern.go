package foresee

import (
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// concern is what the objects of all steps touch, as the state has it before them, or
// after them.
type concern struct {
	direct map[log.UUID]bool // nodes that the objects name
	others map[log.UUID]bool // nodes that share a vnet with them
	// vms are those whose way to others may change.
	vms map[log.UUID]bool
	// domains are where each of the VMs has NICs.
	domains map[log.Scope][]log.UUID

	vnets map[log.Scope]bool // whose nodes are in others
}

// newConcern looks at the objects of all steps, in the state as it is.
func newConcern(f *fold) *concern {
	c := &concern{
		direct: map[log.UUID]bool{}, others: map[log.UUID]bool{}, vms: map[log.UUID]bool{},
		domains: map[log.Scope][]log.UUID{}, vnets: map[log.Scope]bool{},
	}
	for i := range f.steps {
		s := &f.steps[i]
		for _, o := range []log.Object{s.before.Object, s.after.Object} {
			if o != nil {
				c.note(f.state, o, s)
			}
		}
	}
	c.findDomains(f.state)
	return c
}

// note adds what an object touches that a step makes, changes or deletes.
func (c *concern) note(s *projections.State, o log.Object, step *step) {
	switch o := o.(type) {
	case *log.NIC:
		c.noteNIC(s, o)
	case *log.VM:
		if !onlyOf(step, func(path string) bool {
			return path != "state" && path != "server_uuid" && path != "zonename" && path != "uuid"
		}) {
			c.direct[o.ServerUUID] = true
			c.noteVM(s, o.UUID, c.direct)
		}
	case *log.Network:
		c.noteNetwork(s, o, step)
	case *log.Server:
		c.direct[o.UUID] = true
		if !onlyOf(step, func(path string) bool {
			return path != "status" && !strings.HasPrefix(path, "underlay") && path != "vxlan_port"
		}) {
			c.noteUnderlay(s, o.UUID)
		}
	case *log.NICTag:
		for r := range s.NetworksOn(o.Name) {
			c.noteScope(s, log.ScopeOf(r.Object))
		}
		for r := range projections.NICsOnTag(o.Name).NICs(s) {
			c.direct[projections.CNOf(r.NIC())] = true
		}
	}
}

// onlyOf reports whether a step updates an object, and only in fields of which is says so.
func onlyOf(s *step, is func(path string) bool) bool {
	if s.before.Object == nil || s.after.Object == nil {
		return false
	}
	for _, changed := range log.Diff(s.before.Object, s.after.Object) {
		if !is(changed.Path) {
			return false
		}
	}
	return true
}

func (c *concern) noteNIC(s *projections.State, nic *log.NIC) {
	if cn := projections.CNOf(nic); !cn.IsZero() {
		c.direct[cn] = true
	}
	if nic.BelongsToType == "zone" && !nic.BelongsToUUID.IsZero() {
		c.noteVM(s, nic.BelongsToUUID, c.direct)
	}
	n := s.Network(nic.NetworkUUID)
	if n != nil {
		c.noteScope(s, log.ScopeOf(n))
		if nic.IP.IsValid() && nic.IP == n.Gateway {
			c.noteVMsOn(s, n.UUID)
		}
	}
	if projections.IsUnderlay(nic) {
		c.noteUnderlay(s, projections.CNOf(nic))
	}
}

// noteUnderlay adds what depends on how a node is reached.
func (c *concern) noteUnderlay(s *projections.State, cn log.UUID) {
	for _, scope := range s.Interest(cn) {
		if scope.Type == log.ScopeVNet {
			c.noteScope(s, scope)
		}
	}
	for r := range s.NICsOnCN(cn) {
		if nic := r.Object.(*log.NIC); nic.BelongsToType == "zone" {
			c.noteVM(s, nic.BelongsToUUID, c.others)
		}
	}
}

// noteVM adds a VM, and the nodes of its NICs, which share its resolvers and its default
// route, to nodes.
func (c *concern) noteVM(s *projections.State, vm log.UUID, nodes map[log.UUID]bool) {
	if c.vms[vm] {
		return // its nodes are noted
	}
	c.vms[vm] = true
	for r := range s.NICsOf(vm) {
		nodes[projections.CNOf(r.Object.(*log.NIC))] = true
	}
}

// apartFields are the fields of a network that neither a kernel nor a trace asks for.
var apartFields = []string{"name", "description", "owner_uuids", "provision_start_ip", "provision_end_ip", "gateway_provisioned", "labels"}

func (c *concern) noteNetwork(s *projections.State, n *log.Network, step *step) {
	if onlyOf(step, func(path string) bool { return slices.Contains(apartFields, path) }) {
		return
	}
	c.noteScope(s, log.ScopeOf(n))
	c.noteVMsOn(s, n.UUID)
}

func (c *concern) noteVMsOn(s *projections.State, network log.UUID) {
	for r := range s.NICsOn(network) {
		if nic := r.Object.(*log.NIC); nic.BelongsToType == "zone" {
			c.noteVM(s, nic.BelongsToUUID, c.others)
		}
	}
}

// noteScope adds the nodes of a vnet, or of a network.
func (c *concern) noteScope(s *projections.State, scope log.Scope) {
	if scope.Type != log.ScopeVNet || c.vnets[scope] {
		return
	}
	c.vnets[scope] = true
	for _, cn := range s.CNs(scope) {
		c.others[cn] = true
	}
}

// findDomains finds where the VMs have NICs.
func (c *concern) findDomains(s *projections.State) {
	for _, vm := range sortedUUIDs(c.vms) {
		var scopes []log.Scope
		for r := range s.NICsOf(vm) {
			nic := r.Object.(*log.NIC)
			if n := s.Network(nic.NetworkUUID); n != nil && nic.BelongsToType == "zone" {
				scopes = append(scopes, log.ScopeOf(n))
			}
		}
		slices.SortFunc(scopes, log.Scope.Compare)
		for _, scope := range slices.Compact(scopes) {
			c.domains[scope] = append(c.domains[scope], vm)
		}
	}
}

func sortedUUIDs(set map[log.UUID]bool) []log.UUID {
	all := make([]log.UUID, 0, len(set))
	for id := range set {
		all = append(all, id)
	}
	slices.SortFunc(all, log.UUID.Compare)
	return all
}

// union returns what is in one of two sets, sorted.
func union(a, b map[log.UUID]bool) []log.UUID {
	both := make(map[log.UUID]bool, max(len(a), len(b)))
	for _, set := range []map[log.UUID]bool{a, b} {
		for id := range set {
			both[id] = true
		}
	}
	delete(both, log.UUID{})
	return sortedUUIDs(both)
}
