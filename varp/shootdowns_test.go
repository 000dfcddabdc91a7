package varp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/varp/internal/places"
)

// cache is what an old client remembers: ARP entries in its guests, and where
// MACs are.
type cache struct {
	arp map[vl3Key]log.MAC
	fwd map[vl2Key]Underlay
}

func newCache() *cache { return &cache{map[vl3Key]log.MAC{}, map[vl2Key]Underlay{}} }

func (c *cache) askVL3(from Lookup, vnet uint32, ip netip.Addr) {
	mac, at, ok := from.VL3(vnet, ip)
	if !ok {
		delete(c.arp, vl3Key{vnet, ip})
		return
	}
	c.arp[vl3Key{vnet, ip}], c.fwd[vl2Key{vnet, mac}] = mac, at
}

// obey does what spec/svp.md section 2 says about illumos and a record.
func (c *cache) obey(from Lookup, r Record) {
	if r.Type == RecordVL2 {
		delete(c.fwd, vl2Key{r.VNet, r.MAC})
	} else {
		c.askVL3(from, r.VNet, r.IP)
	}
}

// stale names a wrong mapping of the node's vnets; one that no longer exists counts
// only if strict.
func (c *cache) stale(rows *rowsAt, vnets []uint32, strict bool) string {
	for k, mac := range c.arp {
		is, ok := rows.ips[k] // also while its node has no underlay address
		if slices.Contains(vnets, k.vnet) && (ok || strict) && is != mac {
			return fmt.Sprintf("vnet %d: %s has MAC %s, the client believes %s", k.vnet, k.ip, is, mac)
		}
	}
	for k, at := range c.fwd {
		is, ok := rows.VL2(k.vnet, k.mac)
		if slices.Contains(vnets, k.vnet) && (ok || strict) && is != at {
			return fmt.Sprintf("vnet %d: %s is at %v, the client believes %v", k.vnet, k.mac, is, at)
		}
	}
	return ""
}

// TestNothingStaleInTheEnd: whatever happens to the log, and in whatever order a client
// acknowledges, a client that polls has no wrong mapping in the end. Servers lag behind
// each other; some forget everything.
func TestNothingStaleInTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	for name, small := range map[string]bool{"all remembered": false, "little remembered": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { historyAndClient(rt, small) })
		})
	}
}

func historyAndClient(t *rapid.T, small bool) {
	roll := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "roll") }
	var cfg ShootdownConfig
	if small {
		cfg = ShootdownConfig{Past: 1 + roll(40), MaxMappings: 1 + roll(30), MaxNodes: 1 + roll(2)}
	}
	now := time.Unix(1000, 0)
	cfg.Now = func() time.Time { return now }
	c := newCloud(t, 4, 4)
	sites := []*site{newSite(c, cfg), newSite(c, cfg), newSite(c, cfg)}
	saved := make([][]byte, len(sites))
	me, client := underlayAddr(0), newCache()
	var given []log.UUID
	for range rapid.IntRange(1, 150).Draw(t, "steps") {
		s := sites[roll(len(sites))]
		now = now.Add(time.Duration(roll(4)) * 100 * time.Millisecond)
		switch roll(13) {
		case 0, 1, 2, 3:
			c.churn(roll, 10)
		case 4:
			s.catchUp(c, len(s.entries)+roll(len(c.entries)-len(s.entries)+1))
		case 5, 6: // the client learns something
			net := c.nets[roll(len(c.nets))]
			b := net.Subnet.Addr().As4()
			b[3] = byte(1 + roll(12))
			client.askVL3(s, net.VNetID, netip.AddrFrom4(b))
		case 7:
			records := poll(t, s, me, []int{31, 32, 44, 100, 1020}[roll(5)])
			for _, r := range records {
				client.obey(sites[roll(len(sites))], r)
				given = append(given, r.ID)
			}
		case 8: // some are acknowledged, at any server, or unknown ids
			for range roll(len(given) + 1) {
				i := roll(len(given))
				s.events.Remove(me, []log.UUID{given[i], testUUID(7, roll(9))})
				given = slices.Delete(given, i, i+1)
			}
		case 9:
			if small {
				forgetSomething(c, s, cfg, roll)
			}
		case 10: // a server asks another
			asks(t, s, sites[roll(len(sites))], func() { now = now.Add(time.Duration(roll(3)) * time.Second) })
		case 11: // the file is written, or not
			i := roll(len(sites))
			if f, ok := sites[i].events.placesFile(); ok {
				saved[i] = f.Encode()
			}
		case 12: // a server starts again, with its last file, or with none; it may have lost the end of its log, or read more before it answers
			i := roll(len(sites))
			if roll(2) == 0 {
				sites[i].catchUp(c, len(c.entries))
			}
			sites[i].startAgain(c, cfg, saved[i][:len(saved[i])*roll(2)], roll(6))
		}
	}
	for _, s := range sites {
		s.catchUp(c, len(c.entries))
	}
	for _, s := range sites {
		drain(t, s, me, client)
	}
	if wrong := client.stale(c.truth, c.truth.VNets(c.nodes[0]), !small); wrong != "" {
		t.Fatal(wrong)
	}
}

// asks asks a server for its clients' places. meanwhile runs between question and
// answer.
func asks(t fataler, s, other *site, meanwhile func()) {
	if s == other {
		return
	}
	s.events.noteApplied()
	asked := s.events.cfg.Now()
	question := s.events.placesQuestion(other.name.String())
	meanwhile()
	answer, err := other.events.AnswerPlaces(question)
	if err == nil {
		err = s.events.takePlaces(other.name.String(), answer, asked)
	}
	if err != nil {
		t.Fatalf("places: %v", err)
	}
}

// startAgain ends a server's process and starts it with a file of places, if that is
// not empty. Its state lacks the last entries at first.
func (s *site) startAgain(c *cloud, cfg ShootdownConfig, file []byte, lost int) {
	n := len(s.entries)
	s.entries, s.rows = nil, newRowsAt()
	s.catchUp(c, max(n-lost, int(s.floor)))
	s.restart(cfg)
	if len(file) > 0 {
		f, err := places.DecodeFile(file)
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		s.events.known.loaded = &f
	}
	s.events.Begin()
}

func forgetSomething(c *cloud, s *site, cfg ShootdownConfig, roll dice) {
	switch roll(3) {
	case 0:
		s.restart(cfg)
		s.events.Begin()
	case 1:
		s.floor = min(s.floor+log.Seq(roll(40)), log.Seq(len(s.entries)))
	case 2: // another node asks: there may be a place for one only
		s.events.Events(nil, underlayAddr(1+roll(len(c.nodes)-1)), 1020)
	}
}

// poll asks for the log, and checks what must hold of each answer.
func poll(t fataler, s *site, me netip.Addr, budget int) []Record {
	t.Helper()
	records, ok := s.events.Events(nil, me, budget)
	if !ok {
		t.Fatalf("the log cannot be read")
	}
	vnets, size := []uint32(nil), 0
	for _, node := range s.rows.Nodes(me) {
		vnets = s.rows.VNets(node)
	}
	seen := map[mapping]bool{}
	for _, r := range records {
		size += r.Size()
		m := mapping{vnet: r.VNet, typ: r.Type, addr: r.IP.As16()}
		if r.Type == RecordVL2 {
			m = mappingVL2(r.VNet, r.MAC)
		}
		if seen[m] {
			t.Fatalf("two records of one mapping: %+v", records)
		}
		seen[m] = true
		if !slices.Contains(vnets, r.VNet) {
			t.Fatalf("record %+v is of a vnet that the node is not on", r)
		}
	}
	if size > budget {
		t.Fatalf("%d bytes of records, %d were asked for", size, budget)
	}
	return records
}

// drain polls as illumos does until nothing comes any more.
func drain(t fataler, s *site, me netip.Addr, client *cache) {
	t.Helper()
	for range 1000 {
		records := poll(t, s, me, 1020)
		if len(records) == 0 {
			return
		}
		ids := make([]log.UUID, len(records))
		for i, r := range records {
			client.obey(s, r)
			ids[i] = r.ID
		}
		s.events.Remove(me, ids)
	}
	t.Fatalf("records come for ever")
}

// shotTexts are the mappings of a change, as reported to a node that had all earlier
// ones.
func shotTexts(t *testing.T, s *site, c *cloud, change func()) []string {
	t.Helper()
	me := underlayAddr(0)
	s.catchUp(c, len(c.entries))
	drain(t, s, me, newCache())
	change()
	s.catchUp(c, len(c.entries))
	var texts []string
	for _, r := range poll(t, s, me, 1<<20) {
		if r.Type == RecordVL2 {
			texts = append(texts, fmt.Sprintf("%d %s", r.VNet, r.MAC))
		} else {
			texts = append(texts, fmt.Sprintf("%d %s vlan %d", r.VNet, r.IP, r.VLAN))
		}
	}
	slices.Sort(texts)
	return texts
}

// TestShotsOf: what follows from each sort of change, and that the holes of
// spec/svp.md section 5 are closed.
func TestShotsOf(t *testing.T) {
	c := newCloud(t, 3, 4) // networks 0 and 1 are on vnet 100, 2 and 3 on 101
	s := newSite(c, ShootdownConfig{})
	ip := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	nic := func(n, node, net int, addr string) *log.NIC {
		return &log.NIC{MAC: testMAC(n), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[net].UUID, IP: ip(addr)}
	}
	c.put(nic(1, 0, 0, "10.0.0.1")) // the node that asks is on both vnets
	c.put(nic(2, 0, 2, "10.2.0.1"))
	change := func(mac log.MAC, edit func(*log.NIC)) func() {
		return func() {
			n := log.Clone(c.nic(mac)).(*log.NIC)
			edit(n)
			c.put(n)
		}
	}
	seven := testMAC(7)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"create", func() { c.put(nic(7, 1, 0, "10.0.0.7")) }, []string{"100 10.0.0.7 vlan 2", "100 90:b8:d0:00:00:07"}},
		{"nothing that matters", change(seven, func(n *log.NIC) { n.State = "running" }), nil},
		{"move", change(seven, func(n *log.NIC) { n.CNUUID = c.nodes[2] }), []string{"100 10.0.0.7 vlan 2", "100 90:b8:d0:00:00:07"}},
		{"another IP", change(seven, func(n *log.NIC) { n.IP = ip("10.0.0.8") }), []string{"100 10.0.0.7 vlan 2", "100 10.0.0.8 vlan 2"}},
		{"no IP", change(seven, func(n *log.NIC) { n.IP = netip.Addr{} }), []string{"100 10.0.0.8 vlan 2"}},
		{"another vnet", change(seven, func(n *log.NIC) { n.NetworkUUID, n.IP = c.nets[3].UUID, ip("10.3.0.7") }), []string{"100 90:b8:d0:00:00:07", "101 10.3.0.7 vlan 5", "101 90:b8:d0:00:00:07"}},
		{"underlay address", change(testMAC(0xf002), func(n *log.NIC) { n.IP = underlayAddr(77) }), []string{"101 90:b8:d0:00:00:07"}},
		{"underlay NIC goes", func() { c.delete(testMAC(0xf002)) }, []string{"101 90:b8:d0:00:00:07"}},
		{"delete", func() { c.delete(seven) }, []string{"101 10.3.0.7 vlan 5", "101 90:b8:d0:00:00:07"}},
		{"one of another", func() { c.put(nic(8, 1, 0, "10.0.0.9")); c.delete(testMAC(8)); c.put(nic(8, 1, 0, "10.0.0.9")) }, []string{"100 10.0.0.9 vlan 2", "100 90:b8:d0:00:00:08"}},
		{"not on a vnet", func() {
			c.put(&log.NIC{MAC: testMAC(9), BelongsToType: "zone", NetworkUUID: c.under.UUID, IP: underlayAddr(500)})
		}, nil},
		{"a vnet that the node leaves", func() { c.delete(testMAC(2)); c.put(nic(6, 1, 2, "10.2.0.6")) }, nil},
	} {
		if got := shotTexts(t, s, c, step.do); !slices.Equal(got, step.want) {
			t.Errorf("%s: told of %q, want %q", step.name, got, step.want)
		}
	}
}

// TestNetworkGone: if the network was deleted before the first request, the event's
// scopes tell the vnet.
func TestNetworkGone(t *testing.T) {
	c := newCloud(t, 2, 2)
	n := &log.NIC{MAC: testMAC(3), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[1].UUID, IP: netip.MustParseAddr("10.1.0.3")}
	c.put(n)
	rows := newRowsAt()
	event, err := c.entries[len(c.entries)-1].Event()
	if err != nil {
		t.Fatal(err)
	}
	shots, err := invalidationsOf(nil, 9, event, rows)
	want := []invalidation{{mappingVL2(100, n.MAC), 0, 9}, {mappingVL3(100, n.IP), 0, 9}}
	if err != nil || !slices.Equal(shots, want) {
		t.Errorf("shots %+v, error %v, want %+v", shots, err, want)
	}
	event.Scopes = []log.Scope{log.NetworkScope(n.NetworkUUID)}
	if shots, err = invalidationsOf(nil, 9, event, rows); err != nil || len(shots) != 0 {
		t.Errorf("shots %+v, error %v of a NIC on no vnet", shots, err)
	}
}

// TestRecordIDs: they carry the seq, are of RFC 9562's version 8, and differ.
func TestRecordIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) invalidation {
			m := mapping{vnet: uint32(rapid.IntRange(0, 3).Draw(t, name)), typ: RecordType(rapid.IntRange(1, 2).Draw(t, name))}
			m.addr[rapid.IntRange(0, 15).Draw(t, name)] = byte(rapid.IntRange(0, 2).Draw(t, name))
			return invalidation{m, 0, log.Seq(rapid.Uint64Range(0, 1<<48-1).Draw(t, name))}
		}
		a, b := draw("a"), draw("b")
		id := a.id()
		if id[6]>>4 != 8 || id[8]>>6 != 2 {
			t.Fatalf("%s is not of version 8", id)
		}
		var seq log.Seq
		for _, x := range id[:6] {
			seq = seq<<8 | log.Seq(x)
		}
		if seq != a.seq {
			t.Fatalf("%s carries seq %d, want %d", id, seq, a.seq)
		}
		if (id == b.id()) != (a.mapping == b.mapping && a.seq == b.seq) {
			t.Fatalf("%+v has id %s, %+v has %s", a, id, b, b.id())
		}
	})
}

// TestShootdownsBounded: memory does not follow the length of the log, the
// number of addresses, or what a node never acknowledges.
func TestShootdownsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	c := newCloud(t, 20, 2)
	s := newSite(c, ShootdownConfig{MaxMappings: 64, MaxNodes: 8})
	for node := range c.nodes {
		c.put(&log.NIC{MAC: testMAC(5000 + node), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID})
	}
	for i := range 3000 {
		c.put(&log.NIC{MAC: testMAC(i), BelongsToType: "zone", CNUUID: c.nodes[i%20], NetworkUUID: c.nets[0].UUID})
		if i%50 == 0 {
			s.catchUp(c, len(c.entries))
			for node := range c.nodes {
				poll(t, s, underlayAddr(node), 1020)
			}
		}
	}
	st := s.events.Stats()
	if st.Nodes > 8 || st.Pending > 8*maxPending || st.Mappings > 64 {
		t.Errorf("%+v, want at most 8 nodes, %d pending, 64 mappings", st, 8*maxPending)
	}
	if _, ok := s.events.Events(nil, netip.MustParseAddr("203.0.113.1"), 1020); !ok || s.events.Stats().Nodes > 8 {
		t.Errorf("an unknown address is not answered, or is remembered")
	}
	held := 0
	for _, v := range s.events.index.byVNet {
		held += len(v.shots)
	}
	if held > 2*64+64 {
		t.Errorf("%d shootdowns held for 64 mappings", held)
	}
}

// TestAwayForAMonth: a node that was away gets each mapping once, a bounded number,
// however many changes there were; and new changes come first.
func TestAwayForAMonth(t *testing.T) {
	c := newCloud(t, 3, 2)
	s := newSite(c, ShootdownConfig{MaxMappings: 100, Past: 1000})
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s.catchUp(c, len(c.entries))
	client := newCache()
	drain(t, s, underlayAddr(0), client)
	for round := range 20 {
		for i := range 300 {
			c.put(&log.NIC{MAC: testMAC(10 + i), BelongsToType: "zone", CNUUID: c.nodes[1+(round+i)%2], NetworkUUID: c.nets[0].UUID})
		}
	}
	s.catchUp(c, len(c.entries))
	s.floor = log.Seq(len(c.entries) - 50)
	if st := s.events.Stats(); st.Pending != 0 {
		t.Errorf("%d records are kept for a node that is away", st.Pending)
	}
	told := map[log.MAC]int{}
	late := &log.NIC{MAC: testMAC(2000), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[0].UUID}
	for rounds := 0; ; rounds++ {
		records := poll(t, s, underlayAddr(0), 1020)
		if len(records) == 0 {
			break
		}
		var ids []log.UUID
		for _, r := range records {
			told[r.MAC]++
			ids = append(ids, r.ID)
		}
		s.events.Remove(underlayAddr(0), ids)
		if rounds == 0 {
			c.put(late)
			s.catchUp(c, len(c.entries))
		}
		if rounds == 1+maxPending/31 && told[late.MAC] == 0 {
			t.Errorf("a new change waits behind the old rows")
		}
	}
	for mac, n := range told {
		if n != 1 {
			t.Errorf("%s was told %d times", mac, n)
		}
	}
	if len(told) != 302 {
		t.Errorf("told of %d MACs, want 302: %v", len(told), slices.Sorted(maps.Values(told)))
	}
}

// TestShootdownsRestart: a client of a server that was just started gets what it may
// have missed, and the same id means the same on every server.
func TestShootdownsRestart(t *testing.T) {
	c := newCloud(t, 2, 2)
	for i := range 5 {
		c.put(&log.NIC{MAC: testMAC(i), BelongsToType: "zone", CNUUID: c.nodes[i%2], NetworkUUID: c.nets[0].UUID})
	}
	s, other := newSite(c, ShootdownConfig{}), newSite(c, ShootdownConfig{})
	before := poll(t, s, underlayAddr(0), 1020)
	s.restart(ShootdownConfig{})
	if after := poll(t, s, underlayAddr(0), 1020); len(before) != 5 || !slices.Equal(before, after) {
		t.Errorf("after a restart %+v, want the five of before: %+v", after, before)
	}
	if there := poll(t, other, underlayAddr(0), 1020); !slices.Equal(before, there) {
		t.Errorf("another server tells %+v, want %+v", there, before)
	}
	fresh := newSite(c, ShootdownConfig{})
	fresh.events.Events(nil, underlayAddr(0), 32) // one was given, five are pending
	fresh.events.Remove(underlayAddr(0), []log.UUID{before[0].ID, before[3].ID} /* the newest was given */)
	if left := poll(t, fresh, underlayAddr(0), 1020); len(left) != 4 {
		t.Errorf("%d records left after one that was given and one that was not, want 4", len(left))
	}
}

// TestShootdownsLeaveAndReturn: a record that a node was given and did not acknowledge
// is not delivered while the node is off the vnet, and comes again when it is back.
func TestShootdownsLeaveAndReturn(t *testing.T) {
	c := newCloud(t, 2, 4)
	s := newSite(c, ShootdownConfig{})
	own := &log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID}
	other := &log.NIC{MAC: testMAC(2), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[0].UUID}
	step := func(do func(), want ...log.MAC) {
		t.Helper()
		do()
		s.catchUp(c, len(c.entries))
		var macs []log.MAC
		for _, r := range poll(t, s, underlayAddr(0), 1020) {
			macs = append(macs, r.MAC)
		}
		if !slices.Equal(macs, want) {
			t.Errorf("told of %v, want %v", macs, want)
		}
	}
	step(func() { c.put(own) }, own.MAC)
	drain(t, s, underlayAddr(0), newCache())
	step(func() { c.put(other) }, other.MAC)
	step(func() { c.delete(own.MAC) })
	step(func() { c.put(own) }, own.MAC, other.MAC)
}

// TestShootdownsOtherLog: if the log is replaced by another, or goes back, the index
// begins again.
func TestShootdownsOtherLog(t *testing.T) {
	c := newCloud(t, 2, 2)
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s := newSite(c, ShootdownConfig{})
	drain(t, s, underlayAddr(0), newCache())
	s.cluster = testUUID(9, 10)
	if records := poll(t, s, underlayAddr(0), 1020); len(records) != 1 {
		t.Errorf("%d records of another log, want 1", len(records))
	}
}

// TestShootdownsBrokenLog: a log that cannot be read, or has bytes that are not an
// event, is reported, and does no harm later.
func TestShootdownsBrokenLog(t *testing.T) {
	c := newCloud(t, 2, 2)
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s := newSite(c, ShootdownConfig{})
	s.broken = errors.New("disk on fire")
	if _, ok := s.events.Events(nil, underlayAddr(0), 1020); ok {
		t.Errorf("a broken log is read")
	}
	s.broken = nil
	good := s.entries[2]
	s.entries[2].Bytes = []byte{1, 0xc1}
	if _, ok := s.events.Events(nil, underlayAddr(0), 1020); ok {
		t.Errorf("a corrupt entry is passed over")
	}
	s.entries[2] = good
	if records := poll(t, s, underlayAddr(0), 1020); len(records) != 1 {
		t.Errorf("%d records once the log is whole, want 1", len(records))
	}
	for _, cfg := range []ShootdownConfig{{}, {Source: s, Past: -1}, {Source: s, MaxMappings: -1}, {Source: s, MaxNodes: -1}} {
		if _, err := NewShootdowns(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
