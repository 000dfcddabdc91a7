package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// model is what the state should be, in the plainest way: maps, copied for each
// change, and linear searches. It knows the fields that the random changes use.
type model struct {
	tags    map[string]log.NICTag
	nets    map[log.UUID]log.Network
	nics    map[log.MAC]log.NIC
	servers map[log.UUID]log.Server
	vms     map[log.UUID]log.VM
	revs    map[string]log.Revision // by kind and id
	seqs    map[string]log.Seq      // likewise: those of the state before the change
}

func newModel() *model {
	return &model{
		map[string]log.NICTag{},
		map[log.UUID]log.Network{},
		map[log.MAC]log.NIC{},
		map[log.UUID]log.Server{},
		map[log.UUID]log.VM{},
		map[string]log.Revision{},
		map[string]log.Seq{},
	}
}

func (m *model) copy() *model {
	return &model{maps.Clone(m.tags), maps.Clone(m.nets), maps.Clone(m.nics), maps.Clone(m.servers), maps.Clone(m.vms), maps.Clone(m.revs), maps.Clone(m.seqs)}
}

func revKey(kind log.Kind, id string) string { return kind.String() + " " + id }

// put stores o at its next revision.
func (m *model) put(o log.Object) {
	m.revs[revKey(o.Kind(), o.ID())]++
	switch o := o.(type) {
	case *log.NICTag:
		m.tags[o.Name] = *o
	case *log.Network:
		o.GatewayProvisioned = m.provisioned(o)
		m.nets[o.UUID] = *o
	case *log.NIC:
		m.nics[o.MAC] = *o
	case *log.Server:
		m.servers[o.UUID] = *o
	case *log.VM:
		m.vms[o.UUID] = *o
	}
}

// provisioned reports whether a NIC has the address of a fabric network's gateway.
func (m *model) provisioned(n *log.Network) bool {
	for _, nic := range m.nics {
		if n.Fabric && n.Gateway.IsValid() && nic.NetworkUUID == n.UUID && nic.IP == n.Gateway {
			return true
		}
	}
	return false
}

// settleGateways follows with the networks what became of their NICs.
func (m *model) settleGateways() {
	for _, n := range m.nets {
		if n.GatewayProvisioned != m.provisioned(&n) {
			m.put(&n)
		}
	}
}

// hear notes the seqs of the events of a change, from the one at a place on.
func (m *model) hear(events []*log.Event, from int) {
	for i, e := range events[from:] {
		if key := revKey(e.Kind, e.ID); e.Action == log.Delete {
			delete(m.seqs, key)
		} else {
			m.seqs[key] = log.Seq(from + i + 1)
		}
	}
}

// change does a whole change on a copy; result tells how drawn objects are called.
func (m *model) change(c *log.Change, result log.Result) (next *model, ok bool) {
	next, ok = m.copy(), true
	for i := 0; i < len(c.Ops) && ok; i++ {
		name := ""
		if result.Refusal == nil {
			name = result.IDs[i]
		}
		ok = next.op(c.Ops[i], name, c.Time)
		next.settleGateways()
	}
	return next, ok
}

// op does one operation at time now; id is what the object was called by the
// state, for a MAC that was drawn. It reports whether it is acceptable.
func (m *model) op(op log.Op, id string, now log.Time) bool {
	key := revKey(op.Kind, op.ID)
	if op.Action != log.Create && (m.revs[key] == 0 || op.IfMatch != 0 && op.IfMatch != m.revs[key] || op.IfSeq != 0 && op.IfSeq != m.seqs[key]) {
		return false
	}
	if op.Action == log.Delete {
		return m.delete(op)
	}
	switch o := log.Clone(op.Object).(type) {
	case *log.NICTag:
		if op.Action == log.Update {
			for _, n := range m.nets {
				if n.NICTag == op.ID && n.MTU > o.MTU {
					return false
				}
			}
			if o.UUID, o.Name = m.tags[op.ID].UUID, op.ID; o.MTU == m.tags[op.ID].MTU {
				return true
			}
		} else if _, there := m.tags[o.Name]; there {
			return false
		}
		m.put(o)
		return true
	case *log.Network:
		return m.network(op, o)
	case *log.NIC:
		return m.nic(op, o, id, now)
	case *log.Server:
		if _, there := m.servers[o.UUID]; there {
			return false
		}
		o.Status, o.Created = "unknown", now
		m.put(o)
		return true
	case *log.VM:
		if _, there := m.vms[o.UUID]; there {
			return false
		}
		o.Zonename, o.CreateTimestamp, o.LastModified = o.UUID.String(), now, now
		m.put(o)
		return true
	}
	return false
}

func (m *model) delete(op log.Op) bool {
	uuid, _ := log.ParseUUID(op.ID)
	mac, _ := log.ParseMAC(op.ID)
	for _, nic := range m.nics {
		switch {
		case op.Kind == log.KindNetwork && nic.NetworkUUID == uuid,
			op.Kind == log.KindServer && (nic.CNUUID == uuid || nic.BelongsToUUID == uuid),
			op.Kind == log.KindVM && nic.BelongsToUUID == uuid:
			return false
		}
	}
	for _, n := range m.nets {
		if op.Kind == log.KindNICTag && n.NICTag == op.ID {
			return false
		}
	}
	for _, vm := range m.vms {
		if op.Kind == log.KindServer && vm.ServerUUID == uuid {
			return false
		}
	}
	delete(m.revs, revKey(op.Kind, op.ID))
	delete(m.seqs, revKey(op.Kind, op.ID))
	switch op.Kind {
	case log.KindNICTag:
		delete(m.tags, op.ID)
	case log.KindNetwork:
		delete(m.nets, uuid)
	case log.KindNIC:
		delete(m.nics, mac)
	case log.KindServer:
		delete(m.servers, uuid)
	case log.KindVM:
		delete(m.vms, uuid)
	}
	return true
}

func (m *model) network(op log.Op, o *log.Network) bool {
	if op.Action == log.Update { // of the gateway only
		uuid, _ := log.ParseUUID(op.ID)
		n := m.nets[uuid]
		if n.Gateway == o.Gateway {
			return true
		}
		n.Gateway = o.Gateway
		if n.Gateway.IsValid() && misplacedPlainly(n.Subnet, n.Gateway) {
			return false
		}
		m.put(&n)
		return true
	}
	tag, hasTag := m.tags[o.NICTag]
	if _, there := m.nets[o.UUID]; there || !hasTag {
		return false
	}
	for _, n := range m.nets {
		if o.Fabric && n.Fabric && n.VNetID == o.VNetID && (n.Subnet.Overlaps(o.Subnet) || n.OwnerUUIDs[0] != o.OwnerUUIDs[0]) {
			return false
		}
	}
	all := worldtest.Addresses(o.Subnet)
	o.Family = "ipv4"
	o.ProvisionStart, o.ProvisionEnd = all[1], all[len(all)-2]
	if o.Subnet.Addr().Is6() {
		o.Family, o.ProvisionEnd = "ipv6", all[len(all)-1]
	}
	if o.MTU = tag.MTU; o.Fabric {
		o.MTU -= 74
	}
	m.put(o)
	return true
}

func misplacedPlainly(p netip.Prefix, ip netip.Addr) bool {
	all := worldtest.Addresses(p)
	return !p.Contains(ip) || ip == all[0] || ip.Is4() && ip == all[len(all)-1]
}

func (m *model) nic(op log.Op, o *log.NIC, id string, now log.Time) bool {
	var before log.NIC
	if op.Action == log.Create {
		if o.MAC.IsZero() && id != "" {
			o.MAC, _ = log.ParseMAC(id)
		}
		if _, there := m.nics[o.MAC]; there {
			return false
		}
		o.State, o.Created, o.Modified = "provisioning", now, now
		if o.BelongsToType == "server" {
			o.CNUUID = o.BelongsToUUID
		} else if o.CNUUID.IsZero() {
			o.CNUUID = m.vms[o.BelongsToUUID].ServerUUID
		}
	} else {
		mac, _ := log.ParseMAC(op.ID)
		before = m.nics[mac]
		after := before
		log.Assign(&after, o, op.Set)
		moved := after.NetworkUUID != before.NetworkUUID
		if slices.Contains(op.Set, "ip") && !after.IP.IsValid() && !moved && !after.NetworkUUID.IsZero() {
			return false
		}
		if moved && !slices.Contains(op.Set, "ip") {
			after.IP = netip.Addr{}
		}
		if log.Equal(&after, &before) {
			return true
		}
		after.Modified = now
		*o = after
	}
	if !m.placeNIC(o) {
		return false
	}
	for mac, other := range m.nics {
		if o.Primary && other.Primary && mac != o.MAC && other.BelongsToUUID == o.BelongsToUUID {
			other.Primary, other.Modified = false, now
			m.put(&other)
		}
	}
	m.put(o)
	return true
}

// placeNIC checks where a NIC lies and gives it an address if it needs one.
func (m *model) placeNIC(o *log.NIC) bool {
	server := o.BelongsToType == "server"
	if server && o.CNUUID != o.BelongsToUUID || !server && o.Underlay {
		return false
	}
	if o.NetworkUUID.IsZero() {
		return !o.IP.IsValid()
	}
	n, there := m.nets[o.NetworkUUID]
	if !there || !server && len(n.OwnerUUIDs) > 0 && n.OwnerUUIDs[0] != o.OwnerUUID {
		return false
	}
	if n.Fabric && (o.CNUUID.IsZero() || o.Underlay) {
		return false
	}
	used := map[netip.Addr]bool{}
	for mac, other := range m.nics {
		if mac != o.MAC && other.NetworkUUID == n.UUID {
			used[other.IP] = true
		}
	}
	if o.IP.IsValid() {
		return !misplacedPlainly(n.Subnet, o.IP) && !used[o.IP]
	}
	for _, ip := range worldtest.Addresses(n.Subnet) {
		if !used[ip] && ip != n.Gateway && !ip.Less(n.ProvisionStart) && !n.ProvisionEnd.Less(ip) {
			o.IP = ip
			return true
		}
	}
	return false
}

// compare holds the state against the model: objects, lookups, interest.
func (m *model) compare(t changetest.Tester, s *projections.State) {
	for _, c := range []struct {
		kind log.Kind
		n    int
	}{{log.KindNICTag, len(m.tags)}, {log.KindNetwork, len(m.nets)}, {log.KindNIC, len(m.nics)}, {log.KindServer, len(m.servers)}, {log.KindVM, len(m.vms)}} {
		if s.Count(c.kind) != c.n {
			t.Fatalf("the state has %d of %s, the model %d", s.Count(c.kind), c.kind, c.n)
		}
	}
	same := func(o log.Object) {
		r, ok := s.Get(o.Kind(), o.ID())
		if !ok || !log.Equal(r.Object, o) || r.Revision != m.revs[revKey(o.Kind(), o.ID())] {
			t.Fatalf("state and model differ:\n%+v at %d\n%+v at %d", r.Object, r.Revision, o, m.revs[revKey(o.Kind(), o.ID())])
		}
	}
	for _, o := range m.tags {
		o.UUID = tagUUID(s, o.Name) // derived; the model does not hash
		same(&o)
	}
	for _, o := range m.nets {
		same(&o)
	}
	for _, o := range m.servers {
		same(&o)
	}
	for _, o := range m.vms {
		same(&o)
	}
	for _, o := range m.nics {
		same(&o)
		m.compareLookups(t, s, o)
	}
	m.compareInterest(t, s)
}

func tagUUID(s *projections.State, name string) log.UUID {
	r, ok := s.Get(log.KindNICTag, name)
	if !ok {
		return log.UUID{}
	}
	return r.Object.(*log.NICTag).UUID
}

func (m *model) compareLookups(t changetest.Tester, s *projections.State, nic log.NIC) {
	n := m.nets[nic.NetworkUUID]
	var want projections.Underlay
	var lowest string // MAC: addresses may repeat, on another network
	for _, other := range m.nics {
		lower := lowest == "" || other.MAC.String() < lowest
		if other.Underlay && other.CNUUID == nic.CNUUID && other.IP.IsValid() && lower {
			lowest, want = other.MAC.String(), projections.Underlay{CN: other.CNUUID, Addr: other.IP, Port: 4789}
		}
	}
	for vnet := uint32(10); vnet <= 20; vnet += 10 {
		found := n.Fabric && n.VNetID == vnet && want.Addr.IsValid()
		if got, ok := s.VL2(vnet, nic.MAC); ok != found || ok && got != want {
			t.Fatalf("VL2 of %s on %d gave %v, %v; want %v, %v", nic.MAC, vnet, got, ok, want, found)
		}
		if n.Fabric && n.VNetID == vnet {
			if mac, got, ok := s.VL3(vnet, nic.IP); ok != found || ok && (got != want || mac != nic.MAC) {
				t.Fatalf("VL3 of %s on %d gave %v, %v, %v; want %v, %v", nic.IP, vnet, mac, got, ok, want, found)
			}
		}
	}
}

func (m *model) compareInterest(t changetest.Tester, s *projections.State) {
	want := map[log.UUID][]log.Scope{}
	for n := range uint64(4) {
		want[changetest.UUID(11+n)] = []log.Scope{log.AllScope(), log.CNScope(changetest.UUID(11 + n))}
	}
	for _, nic := range m.nics {
		if n, ok := m.nets[nic.NetworkUUID]; ok && !nic.CNUUID.IsZero() {
			scope := log.NetworkScope(n.UUID)
			if n.Fabric {
				scope = log.VNetScope(n.VNetID)
			}
			want[nic.CNUUID] = append(want[nic.CNUUID], scope)
		}
	}
	cns := map[log.Scope][]log.UUID{}
	for _, cn := range slices.SortedFunc(maps.Keys(want), log.UUID.Compare) {
		scopes := tidyScopes(want[cn])
		if got := s.Interest(cn); fmt.Sprint(got) != fmt.Sprint(scopes) {
			t.Fatalf("interest of %s is %v, want %v", cn, got, scopes)
		}
		for _, scope := range scopes[2:] {
			cns[scope] = append(cns[scope], cn)
		}
		if !s.Interested(cn, scopes[len(scopes)-1:]) || s.Interested(cn, []log.Scope{log.VNetScope(5), log.NetworkScope(changetest.UUID(5))}) {
			t.Fatalf("Interested of %s is wrong", cn)
		}
	}
	for scope, list := range cns {
		if got := s.CNs(scope); !slices.Equal(got, list) {
			t.Fatalf("CNs of %s are %v, want %v", scope, got, list)
		}
	}
}
