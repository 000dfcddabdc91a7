package nodes

import (
	"slices"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/projections"
)

// concerns gathers which objects of kernels some entries concern (SAFETY L2).
type concerns struct {
	of  liveness.Concern
	all bool // everything on the compute nodes of their scopes
}

// event adds what an entry did. head has the whole event if it is of a NIC.
func (c *concerns) event(state *projections.State, head *log.Event) {
	switch head.Kind {
	case log.KindNIC:
		nic, _ := head.Object.(*log.NIC)
		moved := slices.ContainsFunc(head.Changed, func(f log.FieldChange) bool { return f.Path == "underlay" || f.Path == "belongs_to_type" })
		if nic == nil || moved || projections.IsUnderlay(nic) {
			c.vnets(head.Scopes) // where the compute node is reached on all of them
		}
		if nic != nil {
			c.nic(nic)
		}
	default:
		c.object(state, head.Kind, head.ID, head.Scopes)
	}
}

// object adds an object as it is now, of which scopes know.
func (c *concerns) object(state *projections.State, kind log.Kind, id string, scopes []log.Scope) {
	rec, known := state.Get(kind, id)
	switch kind {
	case log.KindNIC:
		if nic, _ := rec.Object.(*log.NIC); known && nic != nil {
			if c.nic(nic); projections.IsUnderlay(nic) {
				c.vnets(scopes)
			}
		}
	case log.KindNetwork:
		c.vnets(scopes)
	case log.KindVM:
		if vm, err := log.ParseUUID(id); err == nil {
			c.of.VMs = append(c.of.VMs, vm)
		}
	case log.KindVMM:
		if vmm, _ := rec.Object.(*log.VMM); known && vmm != nil {
			c.of.VMs = append(c.of.VMs, vmm.InstanceID)
		}
	case log.KindAggregation, log.KindAuthority, log.KindCertificate, log.KindFabricVLAN, log.KindGrant, log.KindIP, log.KindMigration,
		log.KindNetworkPool, log.KindRevocation, log.KindRouter, log.KindTask, log.KindTicket, log.KindToken:
		// No kernel has anything of these.
	default:
		c.all = true
	}
}

func (c *concerns) nic(nic *log.NIC) {
	c.of.NICs = append(c.of.NICs, nic.MAC)
	if nic.BelongsToType == "zone" && !nic.BelongsToUUID.IsZero() {
		c.of.VMs = append(c.of.VMs, nic.BelongsToUUID) // its gateway and resolvers are those of all its NICs
	}
}

func (c *concerns) vnets(scopes []log.Scope) {
	for _, scope := range scopes {
		if scope.Type == log.ScopeVNet {
			c.of.VNets = append(c.of.VNets, scope.VNet)
		}
	}
}

// concern returns what was gathered; nil is everything.
func (c *concerns) concern() *liveness.Concern {
	if c.all {
		return nil
	}
	of := c.of
	for _, sort := range []func(){
		func() { slices.Sort(of.VNets); of.VNets = slices.Compact(of.VNets) },
		func() { slices.SortFunc(of.NICs, log.MAC.Compare); of.NICs = slices.Compact(of.NICs) },
		func() { slices.SortFunc(of.VMs, log.UUID.Compare); of.VMs = slices.Compact(of.VMs) },
	} {
		sort()
	}
	return of.Bounded()
}

// concernOfScopes returns what a wait for scopes that a client names is for: all that is on
// the vnets, if it names vnets only, else everything.
func concernOfScopes(scopes []log.Scope) *liveness.Concern {
	var c concerns
	c.all = slices.ContainsFunc(scopes, func(s log.Scope) bool { return s.Type != log.ScopeVNet })
	c.vnets(scopes)
	return c.concern()
}
