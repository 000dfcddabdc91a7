package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var poolRules = hooks[*log.NetworkPool]{
	check: func(d *draft, before, p *log.NetworkPool, op *log.Op) {
		if before == nil {
			before = new(log.NetworkPool)
		}
		checkPool(d, before, p, op)
	},
}

// maxPoolNetworks is NAPI's bound (spec/napi.md section 3.1).
const maxPoolNetworks = 64

// checkPool checks a pool as it would stand, and derives its family; was is empty on
// create.
func checkPool(d *draft, was, p *log.NetworkPool, op *log.Op) {
	d.checkName(p.Name)
	d.checkDescription(was.Description, p.Description)
	if len(p.OwnerUUIDs) > maxOwners {
		d.bad("owner_uuids", fmt.Sprintf("there are %d owners", len(p.OwnerUUIDs)), fmt.Sprintf("name at most %d", maxOwners))
	}
	slices.SortFunc(p.OwnerUUIDs, log.UUID.Compare) // p is a clone of our own
	p.OwnerUUIDs = slices.Compact(p.OwnerUUIDs)
	switch {
	case len(p.Networks) == 0 && !given(op, "networks") && op.Action == log.Create:
		d.missing("networks", "name 1 to 64 networks")
		return
	case len(p.Networks) == 0:
		d.bad("networks", "network pool must contain at least one network", "name 1 to 64 networks")
		return
	case len(p.Networks) > maxPoolNetworks:
		d.bad("networks", fmt.Sprintf("maximum %d networks per network pool", maxPoolNetworks), "make several pools")
		return
	}
	networks := networksOf(d, p.Networks, "networks")
	if networks == nil {
		return
	}
	family := networks[0].Family
	var unfit []string
	for _, n := range networks {
		if n.Family != family {
			d.bad("networks", "all networks of a network pool must be of one family", "make a pool for each family")
			return
		}
		if !ownersFit(p, n) {
			unfit = append(unfit, n.ID())
		}
	}
	if unfit != nil {
		slices.Sort(unfit)
		d.problem(log.FieldError{
			Field: "networks", Code: log.ElementInvalid, Message: "network owner_uuids do not match the owner_uuids of the pool",
			Remedy: "leave out " + strings.Join(unfit, ", "), Invalid: unfit,
		})
	}
	if given(op, "family") && p.Family != family {
		d.bad("family", fmt.Sprintf("the networks are of family %s", family), "leave it out")
	} else if triton(d) && was.Family != "" && was.Family != family { // VMs of the pool would get another
		d.bad("networks", "all networks of a network pool must be of one family", fmt.Sprintf("name networks of family %s, or make another pool", was.Family))
	}
	p.Family = family
}

// ownersFit reports whether a pool and a network have an owner in common, or one
// of them has none.
func ownersFit(p *log.NetworkPool, n *log.Network) bool {
	return len(p.OwnerUUIDs) == 0 || len(n.OwnerUUIDs) == 0 ||
		slices.ContainsFunc(p.OwnerUUIDs, func(owner log.UUID) bool { return slices.Contains(n.OwnerUUIDs, owner) })
}

// networksOf returns the networks of a list, or nil after it noted which are
// not known, or are named twice.
func networksOf(d *draft, uuids []log.UUID, field string) []*log.Network {
	var unknown []string
	networks := make([]*log.Network, 0, len(uuids))
	for i, uuid := range uuids {
		n := d.Network(uuid)
		switch {
		case n == nil:
			unknown = append(unknown, uuid.String())
		case slices.Contains(uuids[:i], uuid):
			d.bad(field, fmt.Sprintf("network \"%s\" is named twice", uuid), "name it once")
			return nil
		}
		networks = append(networks, n)
	}
	if unknown == nil {
		return networks
	}
	slices.Sort(unknown)
	message := "unknown network"
	if len(unknown) > 1 {
		message += "s"
	}
	d.problem(log.FieldError{
		Field: field, Code: log.ElementInvalid, Message: message, Remedy: "leave out " + strings.Join(unknown, ", ") + ", or create it first", Invalid: unknown,
	})
	return nil
}

// checkPoolsOf keeps the pools of a network that is updated: their owners may
// use it.
func checkPoolsOf(d *draft, n *log.Network) {
	for o := range d.Objects(projections.PoolsWith(n.UUID)) {
		if p := o.(*log.NetworkPool); !ownersFit(p, n) {
			d.problem(log.FieldError{
				Field: "owner_uuids", Code: log.ElementUsedBy, Message: "network owner_uuids do not match the owner_uuids of the pool",
				Remedy: "update the pool first", Type: p.Kind().String(), ID: p.ID(),
			})
			return
		}
	}
}
