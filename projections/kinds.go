package projections

import (
	"slices"
	"strings"

	"rutter/log"
)

// keptKind is how a state keeps the objects of one kind. NICs, which are most of
// all objects, have their own ways beside it: see index.go.
type keptKind struct {
	kind log.Kind
	// places puts an object into the indexes, or takes it out; nil: it is in none.
	places func(s *store, o log.Object, p placing)
	// same reports whether two states of an object stand in the same places of
	// every index, so that the second can take the first's; nil: never, unless they
	// are in none.
	same func(a, b log.Object) bool
	// scope is the scope that an object belongs to, of Type 0 if to none; nil: none
	// does. scopes has the kind's that may belong to several.
	scope  func(o log.Object) log.Scope
	scopes func(o log.Object) []log.Scope
}

// kinds has every kind, in the order of their numbers.
var kinds = []keptKind{
	{
		kind:  log.KindNICTag,
		scope: func(log.Object) log.Scope { return log.AllScope() },
	},
	{
		kind:   log.KindNetwork,
		places: placesOfNetwork,
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Network), b.(*log.Network)
			return x.NICTag == y.NICTag && x.Fabric == y.Fabric && x.VNetID == y.VNetID && x.Subnet == y.Subnet && slices.Equal(x.OwnerUUIDs, y.OwnerUUIDs)
		},
		scope: func(o log.Object) log.Scope { return scopeOfNetwork(o.(*log.Network)) },
	},
	{
		kind: log.KindNIC,
		places: func(s *store, o log.Object, p placing) {
			if p.put {
				s.indexNIC(p.row, o.(*log.NIC))
				return
			}
			s.unindexNIC(p.row, o.(*log.NIC))
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.NIC), b.(*log.NIC)
			return x.CNUUID == y.CNUUID && sameButCN(x, y)
		},
	},
	{
		kind:  log.KindServer,
		scope: func(o log.Object) log.Scope { return onCN(o.(*log.Server).UUID) },
	},
	{
		kind: log.KindVM,
		places: func(s *store, o log.Object, p placing) {
			m := o.(*log.VM)
			p.underUUID(s.vmsOnCN, m.ServerUUID)
			if !m.UUID.Is(m.Zonename) {
				place(p, s.zones, m.Zonename)
			}
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.VM), b.(*log.VM)
			return x.ServerUUID == y.ServerUUID && x.Zonename == y.Zonename
		},
		scope: func(o log.Object) log.Scope { return onCN(o.(*log.VM).ServerUUID) },
	},
	{
		kind: log.KindVMM,
		places: func(s *store, o log.Object, p placing) {
			m := o.(*log.VMM)
			p.underUUID(s.vmmsOnCN, m.SledID)
			p.underUUID(s.vmmsOf, m.InstanceID)
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.VMM), b.(*log.VMM)
			return x.SledID == y.SledID && x.InstanceID == y.InstanceID
		},
		scope: func(o log.Object) log.Scope { return onCN(o.(*log.VMM).SledID) },
	},
	{
		kind: log.KindNetworkPool,
		places: func(s *store, o log.Object, p placing) {
			for _, network := range o.(*log.NetworkPool).Networks {
				p.underUUID(s.poolsWith, network)
			}
		},
	},
	{
		kind: log.KindFabricVLAN,
		places: func(s *store, o log.Object, p placing) {
			v := o.(*log.FabricVLAN)
			p.underUUID(s.vlansOf, v.OwnerUUID)
			place(p, s.vlansOnVNet, v.VNetID)
		},
		same: func(a, b log.Object) bool { return a.(*log.FabricVLAN).VNetID == b.(*log.FabricVLAN).VNetID },
	},
	{
		kind:   log.KindIP,
		places: placesOfIP,
		same:   func(_, _ log.Object) bool { return true }, // they are those of its id
	},
	{
		kind: log.KindAggregation,
		places: func(s *store, o log.Object, p placing) {
			a := o.(*log.Aggregation)
			p.underUUID(s.aggrsOn, a.BelongsToUUID)
			for _, tag := range a.NICTagsProvided {
				place(p, s.aggrsOnTag, tag)
			}
		},
		scope: func(o log.Object) log.Scope { return onCN(o.(*log.Aggregation).BelongsToUUID) },
	},
	{
		kind: log.KindRouter,
		places: func(s *store, o log.Object, p placing) {
			r := o.(*log.Router)
			for _, network := range r.Networks {
				p.underUUID(s.routersWith, network)
			}
			for _, vnet := range r.VNets {
				place(p, s.routersOnVNet, vnet)
			}
			p.underUUID(s.routersOnCN, r.CNUUID)
			p.underUUID(s.routersOfVM, r.VMUUID)
		},
		scopes: scopesOfRouter,
	},
	{
		kind:   log.KindMigration,
		places: func(s *store, o log.Object, p placing) { p.underUUID(s.migrationsOf, o.(*log.Migration).InstanceID) },
		same: func(a, b log.Object) bool {
			return a.(*log.Migration).InstanceID == b.(*log.Migration).InstanceID
		},
	},
	{
		kind: log.KindTask,
		places: func(s *store, o log.Object, p placing) {
			t := o.(*log.Task)
			p.underUUID(s.tasksOn, t.ServerUUID)
			if !t.Ended() {
				p.underUUID(s.openTasks, t.ServerUUID)
			}
			place(p, s.tasksBy, t.Ended())
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Task), b.(*log.Task)
			return x.ServerUUID == y.ServerUUID && x.Ended() == y.Ended()
		},
		scope: func(o log.Object) log.Scope { return onCN(o.(*log.Task).ServerUUID) },
	},
	{kind: log.KindSetting},
	{kind: log.KindToken},
	{
		kind: log.KindRevocation,
		// Every CN must know which servers it trusts no more.
		scope: func(o log.Object) (scope log.Scope) {
			if strings.HasPrefix(o.(*log.Revocation).Identity, "server:") {
				scope = log.AllScope()
			}
			return scope
		},
	},
	{kind: log.KindGrant},
	{
		kind: log.KindTicket,
		places: func(s *store, o log.Object, p placing) {
			t := o.(*log.Ticket)
			p.underUUID(s.ticketsOn, t.ServerUUID)
			if t.Waits() {
				place(p, s.lines, lineOf(t))
			}
			place(p, s.ticketsBy, t.Waits())
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Ticket), b.(*log.Ticket)
			return lineOf(x) == lineOf(y) && x.Waits() == y.Waits()
		},
	},
	{
		kind:  log.KindAuthority,
		scope: func(log.Object) log.Scope { return log.AllScope() },
	},
	{kind: log.KindCertificate},
}

// unknownKind is how objects of kinds that this program does not know are kept.
var unknownKind keptKind

// keptAs returns how objects of a kind are kept.
func keptAs(kind log.Kind) *keptKind {
	if at := int(kind) - 1; at >= 0 && at < len(kinds) {
		return &kinds[at]
	}
	return &unknownKind
}

// placing puts a row into indexes, or takes it out of them.
type placing struct {
	row *row
	put bool
}

// place puts p's row under a key of an index, or takes it from there.
func place[K comparable](p placing, s sets[K], k K) {
	if p.put {
		s.add(k, p.row, compareRows)
		return
	}
	s.remove(k, p.row)
}

// underUUID is place, unless the UUID is not set.
func (p placing) underUUID(s sets[log.UUID], k log.UUID) {
	if !k.IsZero() {
		place(p, s, k)
	}
}

func placesOfNetwork(s *store, o log.Object, p placing) {
	n := o.(*log.Network)
	if scope := scopeOfNetwork(n); p.put && p.row.home() != scope {
		p.row.scope = &scope
	}
	place(p, s.netsOnTag, n.NICTag)
	if group, ok := subnetGroup(n); ok && p.put {
		s.subnets.add(group, p.row, compareSubnets)
	} else if ok {
		s.subnets.remove(group, p.row)
	}
	if n.Fabric {
		for _, owner := range n.OwnerUUIDs {
			p.underUUID(s.fabricsOf, owner)
		}
	}
}

func placesOfIP(s *store, o log.Object, p placing) {
	ip := o.(*log.IP)
	was := s.ipsOn[ip.NetworkUUID].len()
	p.underUUID(s.ipsOn, ip.NetworkUUID)
	if p.put {
		s.use(ip.NetworkUUID, ip.IP)
	} else if s.ipsOn[ip.NetworkUUID].len() < was {
		s.release(ip.NetworkUUID, ip.IP)
	}
}
