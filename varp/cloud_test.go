package varp

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"rutter/log"
)

// cloud is a small change log for tests: nodes with underlay NICs, a few fabric
// networks, and NICs that come, move and go. Its log is the truth; a site is one
// server's state of it.
type cloud struct {
	t       fataler
	cluster log.UUID
	entries []log.Entry
	truth   *rowsAt // everything applied
	nodes   []log.UUID
	nets    []*log.Network // on vnets
	under   *log.Network
	quiet   int // the first nodes keep their underlay addresses: old clients run there
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func testUUID(sort, n int) (id log.UUID) {
	id[0], id[6], id[8], id[14], id[15] = byte(sort), 0x40, 0x80, byte(n>>8), byte(n)
	return id
}

func testMAC(n int) log.MAC { return log.MAC{0x90, 0xb8, 0xd0, 0, byte(n >> 8), byte(n)} }

// newCloud has a number of nodes, each with an underlay address, and a number of fabric
// networks, two to a vnet.
func newCloud(t fataler, nodes, networks int) *cloud {
	c := &cloud{t: t, cluster: testUUID(9, 9), truth: newRowsAt(), quiet: 1}
	c.under = &log.Network{UUID: testUUID(2, 999), Name: "underlay", Subnet: netip.MustParsePrefix("192.168.0.0/16")}
	c.apply(log.Create, nil, c.under)
	for i := range networks {
		n := &log.Network{
			UUID: testUUID(2, i), Name: fmt.Sprintf("net%d", i), Fabric: true, VNetID: uint32(100 + i/2), VLANID: uint32(2 + i),
			Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16),
		}
		c.nets = append(c.nets, n)
		c.apply(log.Create, nil, n)
	}
	for i := range nodes {
		c.nodes = append(c.nodes, testUUID(1, i))
		c.apply(log.Create, nil, c.underlayNIC(i, i))
	}
	return c
}

// underlayAddr is the n-th address that a node may have.
func underlayAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}) }

func (c *cloud) underlayNIC(node, addr int) *log.NIC {
	return &log.NIC{
		MAC: testMAC(0xf000 + node), BelongsToType: "server", BelongsToUUID: nodeID(node), CNUUID: nodeID(node),
		NetworkUUID: c.under.UUID, IP: underlayAddr(addr), Underlay: true,
	}
}

func nodeID(i int) log.UUID { return testUUID(1, i) }

// nic returns a NIC as it stands now, or nil.
func (c *cloud) nic(mac log.MAC) *log.NIC {
	if r, ok := c.truth.nics[mac]; ok {
		return r.nic
	}
	return nil
}

// put creates or updates a NIC, delete deletes one.
func (c *cloud) put(n *log.NIC) {
	if was := c.nic(n.MAC); was != nil {
		c.apply(log.Update, was, n)
	} else {
		c.apply(log.Create, nil, n)
	}
}

func (c *cloud) delete(mac log.MAC) { c.apply(log.Delete, c.nic(mac), c.nic(mac)) }

func (c *cloud) apply(action log.Action, before, o log.Object) {
	c.t.Helper()
	e := &log.Event{Kind: o.Kind(), Action: action, ID: o.ID(), Revision: 1, Time: 1, Object: o}
	if action == log.Update {
		e.Changed = log.Diff(before, o)
		e.Scopes = append(e.Scopes, c.scopesOf(before)...)
	}
	e.Scopes = append(e.Scopes, c.scopesOf(o)...)
	slices.SortFunc(e.Scopes, log.Scope.Compare)
	e.Scopes = slices.Compact(e.Scopes)
	b, err := log.NewEncoder().Event(e)
	if err != nil {
		c.t.Fatalf("encode: %v", err)
	}
	entry := log.Entry{Seq: log.Seq(len(c.entries) + 1), Bytes: b}
	c.entries = append(c.entries, entry)
	c.truth.apply(c.t, entry)
}

func (c *cloud) scopesOf(o log.Object) []log.Scope {
	nic, ok := o.(*log.NIC)
	if !ok {
		return nil
	}
	if vnet, _, ok := c.truth.VNetOf(nic.NetworkUUID); ok {
		return []log.Scope{log.VNetScope(vnet)}
	}
	return []log.Scope{log.NetworkScope(nic.NetworkUUID)}
}

// rowsAt is the state at a seq.
type rowsAt struct {
	seq  log.Seq
	nics map[log.MAC]nicAt
	ips  map[vl3Key]log.MAC
	nets map[log.UUID]*log.Network
}

type nicAt struct {
	nic *log.NIC
	seq log.Seq
}

func newRowsAt() *rowsAt {
	return &rowsAt{nics: map[log.MAC]nicAt{}, ips: map[vl3Key]log.MAC{}, nets: map[log.UUID]*log.Network{}}
}

func (s *rowsAt) apply(t fataler, entry log.Entry) {
	e, err := entry.Event()
	if err != nil {
		t.Fatalf("entry %d: %v", entry.Seq, err)
	}
	s.seq = entry.Seq
	switch o := e.Object.(type) {
	case *log.Network:
		s.nets[o.UUID] = o
	case *log.NIC:
		if was, held := s.nics[o.MAC]; held {
			if vnet, _, ok := s.VNetOf(was.nic.NetworkUUID); ok {
				delete(s.ips, vl3Key{vnet, was.nic.IP})
			}
			delete(s.nics, o.MAC)
		}
		if e.Action == log.Delete {
			return
		}
		s.nics[o.MAC] = nicAt{o, entry.Seq}
		if vnet, _, ok := s.VNetOf(o.NetworkUUID); ok && o.IP.IsValid() {
			s.ips[vl3Key{vnet, o.IP}] = o.MAC
		}
	}
}

func (s *rowsAt) underlayOf(node log.UUID) (Underlay, bool) {
	var found *log.NIC
	for _, r := range s.nics {
		if r.nic.Underlay && r.nic.BelongsToUUID == node && r.nic.IP.IsValid() {
			if found == nil || r.nic.MAC.Compare(found.MAC) < 0 {
				found = r.nic
			}
		}
	}
	if found == nil {
		return Underlay{}, false
	}
	return Underlay{Addr: found.IP, Port: 4789}, true
}

func (s *rowsAt) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	r, ok := s.nics[mac]
	if !ok {
		return Underlay{}, false
	}
	if on, _, ok := s.VNetOf(r.nic.NetworkUUID); !ok || on != vnet {
		return Underlay{}, false
	}
	return s.underlayOf(r.nic.CNUUID)
}

func (s *rowsAt) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	mac, ok := s.ips[vl3Key{vnet, ip}]
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	at, ok := s.VL2(vnet, mac)
	if !ok {
		mac = log.MAC{}
	}
	return mac, at, ok
}

func (s *rowsAt) Nodes(underlay netip.Addr) []log.UUID {
	for _, r := range s.nics {
		if r.nic.Underlay && r.nic.IP == underlay {
			return []log.UUID{r.nic.BelongsToUUID}
		}
	}
	return nil
}

func (s *rowsAt) VNets(node log.UUID) (vnets []uint32) {
	for row := range s.NICsOn(node) {
		vnets = append(vnets, row.VNet)
	}
	return vnets
}

func (s *rowsAt) rows(want func(*log.NIC, uint32) bool) iter.Seq[NICRow] {
	var rows []NICRow
	for mac, r := range s.nics {
		if vnet, vlan, ok := s.VNetOf(r.nic.NetworkUUID); ok && want(r.nic, vnet) {
			rows = append(rows, NICRow{VNet: vnet, VLAN: vlan, MAC: mac, IP: r.nic.IP, Seq: r.seq})
		}
	}
	slices.SortFunc(rows, func(a, b NICRow) int { return a.MAC.Compare(b.MAC) })
	return slices.Values(rows)
}

func (s *rowsAt) NICs(vnet uint32, after log.MAC) iter.Seq[NICRow] {
	return s.rows(func(n *log.NIC, on uint32) bool { return on == vnet && n.MAC.Compare(after) > 0 })
}

func (s *rowsAt) NICsOn(node log.UUID) iter.Seq[NICRow] {
	return s.rows(func(n *log.NIC, _ uint32) bool { return n.CNUUID == node })
}

func (s *rowsAt) VNetOf(network log.UUID) (uint32, uint16, bool) {
	n := s.nets[network]
	if n == nil || !n.Fabric {
		return 0, 0, false
	}
	return n.VNetID, uint16(n.VLANID), true
}

// site is a server: a state that lags behind the cloud's log, as Source and as Lookup.
type site struct {
	t       fataler
	cluster log.UUID
	events  *Shootdowns
	name    log.UUID

	mu      sync.RWMutex
	entries []log.Entry // applied
	rows    *rowsAt
	floor   log.Seq
	broken  error // what Entries fails with

	// An agent's: it has no log, and after a restart only what went.
	agent   bool
	changes []Change
	base    log.Seq // before it, changes holds only what went
}

func newSite(c *cloud, cfg ShootdownConfig) *site { return newSiteOf(c, cfg, false) }

var siteNames atomic.Int32

// newSiteOf is newSite, or makes an agent.
func newSiteOf(c *cloud, cfg ShootdownConfig, agent bool) *site {
	s := &site{t: c.t, cluster: c.cluster, rows: newRowsAt(), agent: agent, name: testUUID(8, int(siteNames.Add(1)))}
	s.restart(cfg)
	s.catchUp(c, len(c.entries))
	s.events.Begin()
	return s
}

// restart forgets all that Shootdowns kept in memory.
func (s *site) restart(cfg ShootdownConfig) {
	cfg.Source = s
	if s.agent {
		cfg.Source, cfg.Changes = nil, agentSite{s}
		s.changes = slices.DeleteFunc(s.changes, func(c Change) bool { return c.Was.VNet == c.Is.VNet && c.Was.IP == c.Is.IP })
		s.base = agentSite{s}.head()
	}
	events, err := NewShootdowns(cfg)
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	s.events = events
}

// catchUp applies the cloud's log up to n entries.
func (s *site) catchUp(c *cloud, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.entries) < n {
		entry := c.entries[len(s.entries)]
		s.entries = append(s.entries, entry)
		e, err := entry.Event()
		if err != nil {
			s.t.Fatalf("entry %d: %v", entry.Seq, err)
		}
		was := s.place(e)
		s.rows.apply(s.t, entry)
		if is := s.place(e); was != is {
			s.changes = append(s.changes, Change{firstChange + entry.Seq, was, is})
		}
	}
}

// firstChange is beyond each row's seq.
const firstChange = 1 << 40

// place is where the event's NIC is now.
func (s *site) place(e *log.Event) Place {
	o, ok := e.Object.(*log.NIC)
	if !ok {
		return Place{}
	}
	r, held := s.rows.nics[o.MAC]
	if !held {
		return Place{}
	}
	p := Place{MAC: r.nic.MAC, IP: r.nic.IP, Node: r.nic.CNUUID, OfServer: r.nic.BelongsToType == "server", Underlay: r.nic.Underlay}
	p.VNet, p.VLAN, p.OnVNet = s.rows.VNetOf(r.nic.NetworkUUID)
	return p
}

// agentSite shows a site as an agent, which has no log.
type agentSite struct{ *site }

func (s agentSite) head() log.Seq {
	if len(s.changes) == 0 {
		return firstChange
	}
	return s.changes[len(s.changes)-1].Seq
}

func (s agentSite) Head() log.Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return log.Cursor{Seq: s.head()}
}

func (s agentSite) Changes(after log.Seq, limit int) ([]Change, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, _ := slices.BinarySearchFunc(s.changes, after+1, func(c Change, seq log.Seq) int { return cmp.Compare(c.Seq, seq) })
	return slices.Clone(s.changes[at:min(at+limit, len(s.changes))]), after < s.base
}

func (s *site) Head() log.Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return log.Cursor{Cluster: s.cluster, Seq: log.Seq(len(s.entries))}
}

func (s *site) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return nil, s.broken
	}
	if after < s.floor {
		return nil, fmt.Errorf("after %d: %w", after, log.ErrCompacted)
	}
	rest := s.entries[after:]
	return rest[:min(limit, len(rest))], nil
}

func (s *site) View(fn func(Rows)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.rows)
}

func (s *site) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rows.VL2(vnet, mac)
}

func (s *site) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rows.VL3(vnet, ip)
}

func (s *rowsAt) Networks() iter.Seq2[log.UUID, uint32] {
	return func(yield func(log.UUID, uint32) bool) {
		for id, n := range s.nets {
			if n.Fabric && !yield(id, n.VNetID) {
				return
			}
		}
	}
}

func (s *rowsAt) AllNICs(after log.MAC) iter.Seq[*log.NIC] {
	var nics []*log.NIC
	for mac, r := range s.nics {
		if mac.Compare(after) > 0 {
			nics = append(nics, r.nic)
		}
	}
	slices.SortFunc(nics, func(a, b *log.NIC) int { return a.MAC.Compare(b.MAC) })
	return slices.Values(nics)
}
