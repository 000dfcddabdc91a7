package projections

import (
	"slices"

	"rutter/log"
)

// keptKind is what a state does for the objects of one kind beyond what package log
// declares of it. NICs, which are most of all objects, have more: see index.go.
type keptKind struct {
	// places puts an object into the indexes, or takes it out; nil: it is in none.
	places func(s *store, o log.Object, p placing)
	// same reports whether two states of an object stand in the same places of
	// every index, so that the second can take the first's; nil: never, unless they
	// are in none.
	same func(a, b log.Object) bool
	// scopes are those of an object of a kind that may belong to several.
	scopes func(o log.Object) []log.Scope
	// indexed: rowsIn finds the objects of a scope by an index of the kind's own.
	indexed bool
}

// kinds has, by kind, those of which a state keeps more than is declared.
var kinds = [...]keptKind{
	log.KindNetwork: {
		places: placesOfNetwork,
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Network), b.(*log.Network)
			return x.NICTag == y.NICTag && x.Fabric == y.Fabric && x.VNetID == y.VNetID && x.Subnet == y.Subnet && x.Name == y.Name && slices.Equal(x.OwnerUUIDs, y.OwnerUUIDs)
		},
		indexed: true,
	},
	log.KindNIC: {
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
		indexed: true,
	},
	log.KindServer: {
		places: func(s *store, o log.Object, p placing) {
			if ip := o.(*log.Server).AdminIP; ip.IsValid() {
				place(p, s.serversAt, ip.Unmap())
			}
		},
		same:    func(a, b log.Object) bool { return a.(*log.Server).AdminIP == b.(*log.Server).AdminIP },
		indexed: true,
	},
	log.KindVM: {
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
		indexed: true,
	},
	log.KindVMM: {
		places: func(s *store, o log.Object, p placing) {
			m := o.(*log.VMM)
			p.underUUID(s.vmmsOnCN, m.SledID)
			p.underUUID(s.vmmsOf, m.InstanceID)
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.VMM), b.(*log.VMM)
			return x.SledID == y.SledID && x.InstanceID == y.InstanceID
		},
		indexed: true,
	},
	log.KindNetworkPool: {
		places: func(s *store, o log.Object, p placing) {
			for _, network := range o.(*log.NetworkPool).Networks {
				p.underUUID(s.poolsWith, network)
			}
		},
	},
	log.KindFabricVLAN: {
		places: func(s *store, o log.Object, p placing) {
			v := o.(*log.FabricVLAN)
			p.underUUID(s.vlansOf, v.OwnerUUID)
			place(p, s.vlansOnVNet, v.VNetID)
		},
		same: func(a, b log.Object) bool { return a.(*log.FabricVLAN).VNetID == b.(*log.FabricVLAN).VNetID },
	},
	log.KindIP: {
		places: placesOfIP,
		same:   func(a, b log.Object) bool { return a.(*log.IP).BelongsToUUID == b.(*log.IP).BelongsToUUID }, // the others are those of its id
	},
	log.KindAggregation: {
		places: func(s *store, o log.Object, p placing) {
			a := o.(*log.Aggregation)
			p.underUUID(s.aggrsOn, a.BelongsToUUID)
			for _, tag := range a.NICTagsProvided {
				place(p, s.aggrsOnTag, tag)
			}
		},
		indexed: true,
	},
	log.KindRouter: {
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
		scopes:  scopesOfRouter,
		indexed: true,
	},
	log.KindMigration: {
		places: func(s *store, o log.Object, p placing) { p.underUUID(s.migrationsOf, o.(*log.Migration).InstanceID) },
		same: func(a, b log.Object) bool {
			return a.(*log.Migration).InstanceID == b.(*log.Migration).InstanceID
		},
	},
	log.KindTask: {
		places: func(s *store, o log.Object, p placing) {
			t := o.(*log.Task)
			p.underUUID(s.tasksOn, t.ServerUUID)
			if !t.Ended() {
				p.underUUID(s.openTasks, t.ServerUUID)
			}
			place(p, s.tasksBy, t.Ended())
			p.underUUID(s.naming, VMOfTask(t))
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Task), b.(*log.Task)
			return x.ServerUUID == y.ServerUUID && x.Ended() == y.Ended() && x.Params == y.Params
		},
		indexed: true,
	},
	log.KindTicket: {
		places: func(s *store, o log.Object, p placing) {
			t := o.(*log.Ticket)
			place(p, s.ticketsOn, t.ServerUUID) // the zero UUID: of the default server
			if t.Waits() {
				place(p, s.lines, lineOf(t))
			}
			place(p, s.ticketsBy, t.Waits())
			p.underUUID(s.naming, vmOfTicket(t))
		},
		same: func(a, b log.Object) bool {
			x, y := a.(*log.Ticket), b.(*log.Ticket)
			return lineOf(x) == lineOf(y) && x.Waits() == y.Waits()
		},
	},
}

// plain is how objects of the other kinds are kept.
var plain keptKind

// keptAs returns how objects of a kind are kept.
func keptAs(kind log.Kind) *keptKind {
	if int(kind) < len(kinds) {
		return &kinds[kind]
	}
	return &plain
}

// fieldValue is a value of a field of objects of a kind, in text.
type fieldValue struct {
	kind         log.Kind
	field, value string
}

// declared are, by kind, the fields by which With finds objects: references, and those
// that are unique.
var declared = func() (fields [256][]string) {
	for _, kind := range log.Kinds() {
		d := kind.Describe()
		for _, r := range d.References {
			fields[kind] = append(fields[kind], r.Field)
		}
		fields[kind] = append(fields[kind], d.Unique...)
	}
	return fields
}()

// inScope reports whether the objects of a kind stand in the index by scope.
func inScope(kind log.Kind) bool { return kind.HasScope() && !keptAs(kind).indexed }

// placeDeclared puts an object into the indexes that follow from what its kind
// declares, or takes it out.
func (s *store) placeDeclared(p placing) {
	kind := p.row.kind()
	for _, field := range declared[kind] {
		for _, value := range log.FieldTexts(p.row.object(), field) {
			place(p, s.byField, fieldValue{kind, field, value})
		}
	}
	if !inScope(kind) {
		return
	}
	if scope := log.ScopeOf(p.row.object()); scope.Type != 0 {
		place(p, s.inScope, scope)
	}
}

// sameDeclared reports whether two states of an object stand in the same places of the
// indexes that follow from what their kind declares.
func sameDeclared(a, b log.Object) bool {
	kind := a.Kind()
	for _, field := range declared[kind] {
		if !slices.Equal(log.FieldTexts(a, field), log.FieldTexts(b, field)) {
			return false
		}
	}
	return !inScope(kind) || log.ScopeOf(a) == log.ScopeOf(b)
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
	if scope := log.ScopeOf(n); p.put && p.row.home() != scope {
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
	if s.shapes != nil {
		return // agents are not asked for names
	}
	if p.put {
		s.names.add(NameOf(n), p.row)
	} else {
		s.names.remove(NameOf(n), p.row)
	}
}

func placesOfIP(s *store, o log.Object, p placing) {
	ip := o.(*log.IP)
	p.underUUID(s.naming, ip.BelongsToUUID)
	was := s.ipsOn[ip.NetworkUUID].len()
	p.underUUID(s.ipsOn, ip.NetworkUUID)
	if p.put {
		s.use(ip.NetworkUUID, ip.IP)
	} else if s.ipsOn[ip.NetworkUUID].len() < was {
		s.release(ip.NetworkUUID, ip.IP)
	}
}
