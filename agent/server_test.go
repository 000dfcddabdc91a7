package agent

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
	"rutter/projections/rules"
)

// tb is the part of *testing.T and *rapid.T that the helpers use.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// testServer is one server without Raft or HTTP: a log and its state.
type testServer struct {
	cluster log.UUID
	state   *projections.State
	entries []log.Entry
	events  []*log.Event
	deltas  []projections.Delta
	enc     *log.Encoder
	changes uint64
	floor   log.Seq // cursors before it are refused
}

func newTestServer(cluster byte) *testServer {
	return &testServer{cluster: log.UUID{cluster}, state: projections.NewState(), enc: log.NewEncoder()}
}

func (s *testServer) head() log.Seq { return log.Seq(len(s.entries)) }

func (s *testServer) chain(seq log.Seq) log.ChainPrefix {
	if seq == 0 {
		return log.ChainPrefix{}
	}
	return s.entries[seq-1].Hash.Prefix()
}

func (s *testServer) cursor(seq log.Seq) log.Cursor {
	return log.Cursor{Cluster: s.cluster, Seq: seq, Chain: s.chain(seq)}
}

// change applies operations as one change; a refusal is fine.
func (s *testServer) change(t tb, ops ...log.Op) log.Result {
	t.Helper()
	s.changes++
	id := log.UUID{6: 0x70}
	binary.BigEndian.PutUint64(id[8:], s.changes)
	events, result := rules.Decide(s.state, &log.Change{ID: id, Actor: "test", Time: log.Time(s.changes), Seed: s.changes, Ops: ops})
	for _, e := range events {
		seq := s.head() + 1
		b, err := s.enc.Event(e)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		var last log.Hash
		if seq > 1 {
			last = s.entries[seq-2].Hash
		}
		delta, err := s.state.Apply(seq, e)
		if err != nil {
			t.Fatalf("apply %d: %v", seq, err)
		}
		s.entries = append(s.entries, log.Entry{Seq: seq, Hash: last.Next(seq, b), Bytes: b})
		s.events = append(s.events, e)
		s.deltas = append(s.deltas, delta)
	}
	return result
}

// must is change, but a refusal ends the test.
func (s *testServer) must(t tb, ops ...log.Op) log.Result {
	t.Helper()
	result := s.change(t, ops...)
	if result.Refusal != nil {
		t.Fatalf("refused: %v", result.Refusal)
	}
	return result
}

func opJSON(t tb, action log.Action, kind log.Kind, id, text string) log.Op {
	t.Helper()
	o, set, err := log.ParseObject(kind, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return log.Op{Action: action, Kind: kind, ID: id, Set: set, Object: o}
}

func create(t tb, kind log.Kind, format string, args ...any) log.Op {
	t.Helper()
	return opJSON(t, log.Create, kind, "", fmt.Sprintf(format, args...))
}

func update(t tb, kind log.Kind, id, format string, args ...any) log.Op {
	t.Helper()
	return opJSON(t, log.Update, kind, id, fmt.Sprintf(format, args...))
}

// session is what the server remembers of one subscriber. Its messages are made one
// change at a time; what follows in the log is sent from the state of the head, as a
// real server does.
type session struct {
	*testServer
	me   log.UUID
	pos  log.Seq
	held map[log.Scope]bool
}

func (s *session) entry(seq log.Seq) feed.Message {
	return &feed.Entry{Seq: seq, Chain: s.chain(seq), Event: s.entries[seq-1].Bytes}
}

// bookmark has digests when the state is at its seq, as a real server's.
func (s *session) bookmark() feed.Message {
	m := &feed.Bookmark{Seq: s.pos, Chain: s.chain(s.pos)}
	for scope, held := range s.held {
		if held && s.pos == s.head() {
			m.Digests = append(m.Digests, feed.ScopeDigest{Scope: scope, Digest: s.state.Digest(scope)})
		}
	}
	slices.SortFunc(m.Digests, func(a, b feed.ScopeDigest) int { return a.Scope.Compare(b.Scope) })
	return m
}

func (s *session) object(t tb, scope log.Scope, r projections.Record) feed.Message {
	b, err := s.enc.Object(r.Object)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return &feed.Object{
		At: max(s.pos, r.Seq), Scope: scope, Kind: r.Object.Kind(), ID: r.Object.ID(), Revision: r.Revision, Seq: r.Seq, Bytes: b,
	}
}

// scope is a whole scope as of the head.
func (s *session) scope(t tb, scope log.Scope) []feed.Message {
	var objects []feed.Message
	for r := range s.state.InScope(scope) {
		objects = append(objects, s.object(t, scope, r))
	}
	n, h := uint32(len(objects)), s.head()
	s.held[scope] = true
	return slices.Concat(
		[]feed.Message{&feed.ScopeBegin{Scope: scope, AsOf: h, Count: n}}, objects,
		[]feed.Message{&feed.ScopeEnd{Scope: scope, AsOf: h, Chain: s.chain(h), Count: n}})
}

// hello answers a hello up to its bookmark.
func (s *testServer) hello(t tb, me log.UUID, cursor log.Cursor, scopes []feed.HeldScope) (*session, []feed.Message) {
	ss := &session{testServer: s, me: me, held: make(map[log.Scope]bool)}
	messages := []feed.Message{&feed.Welcome{Version: feed.Version, Head: s.cursor(s.head())}}
	interest := s.state.Interest(me)
	reason := feed.ResetReason(0)
	switch {
	case cursor == (log.Cursor{}): // everything, without a reset
	case cursor.Cluster != s.cluster:
		reason = feed.ResetOtherLog
	case cursor.Seq > s.head():
		reason = feed.ResetAhead
	case cursor.Seq < s.floor:
		reason = feed.ResetCompacted
	case s.chain(cursor.Seq) != cursor.Chain:
		reason = feed.ResetOtherLog
	}
	if reason != 0 {
		messages = append(messages, &feed.Reset{Head: s.head(), Reason: reason})
	} else if cursor != (log.Cursor{}) {
		ss.pos = cursor.Seq
		for _, held := range scopes {
			ss.held[held.Scope] = slices.Contains(interest, held.Scope)
		}
		for ss.pos < s.head() {
			messages = append(messages, ss.next(t, false)...)
		}
	}
	for _, scope := range interest {
		if !ss.held[scope] {
			messages = append(messages, ss.scope(t, scope)...)
		}
	}
	for _, held := range scopes {
		if !slices.Contains(interest, held.Scope) {
			messages = append(messages, &feed.ScopeDropped{Scope: held.Scope, At: s.head()})
		}
	}
	ss.pos = s.head()
	return ss, append(messages, ss.bookmark())
}

// next sends the change behind pos; live says whether scopes come and go with it.
func (s *session) next(t tb, live bool) []feed.Message {
	var messages []feed.Message
	for {
		s.pos++
		e, delta := s.events[s.pos-1], s.deltas[s.pos-1]
		heard := slices.ContainsFunc(e.Scopes, func(scope log.Scope) bool { return s.held[scope] })
		if live {
			heard = heard || s.gains(delta)
		}
		if heard {
			messages = append(messages, s.entry(s.pos))
			messages = append(messages, s.underlays(t, e)...)
		}
		if live {
			messages = append(messages, s.moved(t, delta)...)
		}
		if e.More == 0 {
			return messages
		}
	}
}

func (s *session) gains(d projections.Delta) bool {
	return slices.ContainsFunc(d.Gained, func(g projections.Gain) bool { return g.CN == s.me })
}

func (s *session) moved(t tb, d projections.Delta) []feed.Message {
	var messages []feed.Message
	for _, g := range d.Gained {
		if g.CN == s.me && !s.held[g.Scope] {
			messages = append(messages, s.scope(t, g.Scope)...)
		}
	}
	for _, g := range d.Lost {
		if g.CN == s.me {
			s.held[g.Scope] = false
			messages = append(messages, &feed.ScopeDropped{Scope: g.Scope, At: s.pos})
		}
	}
	return messages
}

// underlays sends the underlay NICs of the CN that a NIC is on, if they are of
// a vnet that is held: they may have entered it with the NIC.
func (s *session) underlays(t tb, e *log.Event) []feed.Message {
	nic, ok := e.Object.(*log.NIC)
	if !ok || nic.CNUUID.IsZero() {
		return nil
	}
	var messages []feed.Message
	for r := range s.state.UnderlayNICs(nic.CNUUID) {
		for _, scope := range s.state.ScopesOf(log.KindNIC, r.Object.ID()) {
			if s.held[scope] && scope.Type == log.ScopeVNet {
				messages = append(messages, s.object(t, scope, r))
				break
			}
		}
	}
	return messages
}

// deliver hands a message to a replica as feed.Conn does.
func deliver(r *replica, m feed.Message) error {
	switch m := m.(type) {
	case *feed.Welcome:
		return r.Welcome(m)
	case *feed.Reset:
		return r.Reset(m)
	case *feed.Entry:
		return r.Entry(m)
	case *feed.Object:
		return r.Object(m)
	case *feed.ScopeBegin:
		return r.ScopeBegin(m)
	case *feed.ScopeEnd:
		return r.ScopeEnd(m)
	case *feed.ScopeDropped:
		return r.ScopeDropped(m)
	case *feed.Bookmark:
		return r.Bookmark(m)
	}
	return fmt.Errorf("a message of type %T", m)
}

// expected returns what a CN must hold: the union of its interest's scopes.
func (s *testServer) expected(me log.UUID) map[objectKey]projections.Record {
	want := make(map[objectKey]projections.Record)
	for _, scope := range s.state.Interest(me) {
		for r := range s.state.InScope(scope) {
			want[keyOf(r)] = r
		}
	}
	return want
}

// compareReplica fails unless the replica holds exactly what it must.
func compareReplica(t tb, s *testServer, r *replica) {
	t.Helper()
	want := s.expected(r.cn)
	for kind := range maxKind {
		for got := range r.state.List(log.Kind(kind)) {
			w, ok := want[keyOf(got)]
			if !ok {
				t.Fatalf("at %d: %v is held, and should not be", s.head(), keyOf(got))
			}
			if w.Revision != got.Revision || w.Seq != got.Seq {
				t.Fatalf("at %d: %v is held as of %d, revision %d; want %d, %d", s.head(), keyOf(got), got.Seq, got.Revision, w.Seq, w.Revision)
			}
			delete(want, keyOf(got))
		}
	}
	for key := range want {
		t.Fatalf("at %d: %v is not held", s.head(), key)
	}
	for nic := range r.state.List(log.KindNIC) {
		n := nic.Object.(*log.NIC)
		network, ok := s.state.Get(log.KindNetwork, n.NetworkUUID.String())
		if !ok || !network.Object.(*log.Network).Fabric {
			continue
		}
		vnet := network.Object.(*log.Network).VNetID
		if !slices.Contains(s.state.Interest(r.cn), log.VNetScope(vnet)) {
			continue
		}
		wantMAC, wantAt, wantOK := s.state.VL3(vnet, n.IP)
		gotMAC, gotAt, gotOK := r.VL3(vnet, n.IP)
		if wantMAC != gotMAC || wantAt != gotAt || wantOK != gotOK {
			t.Fatalf("at %d: VL3 %d %s: got %s %v %v, want %s %v %v", s.head(), vnet, n.IP, gotMAC, gotAt, gotOK, wantMAC, wantAt, wantOK)
		}
	}
	if r.objects != len(s.expected(r.cn)) {
		t.Fatalf("at %d: %d objects counted, want %d", s.head(), r.objects, len(s.expected(r.cn)))
	}
}

// cnID, networkID and so on name the things of test histories.
func cnID(n int) log.UUID      { return log.UUID{0: 0xc0, 15: byte(n)} }
func networkID(n int) log.UUID { return log.UUID{0: 0x4e, 15: byte(n)} }
func vmID(n int) log.UUID      { return log.UUID{0: 0x7a, 15: byte(n)} }
func macOf(n int) log.MAC      { return log.MAC{0x90, 0xb8, 0xd0, 0, 0, byte(n)} }

const owner = "930896af-bf8c-48d4-885c-6573a94b1853"

// underlayMAC is that of a CN's underlay NIC.
func underlayMAC(cn int) log.MAC { return macOf(200 + cn) }

// baseHistory makes tags, three fabrics, a plain network, and cns CNs, each with an underlay NIC.
func baseHistory(t tb, s *testServer, cns int) {
	t.Helper()
	s.must(t, create(t, log.KindNICTag, `{"name":"sdc_underlay","mtu":9000}`))
	s.must(t, create(t, log.KindNICTag, `{"name":"external","mtu":1500}`))
	s.must(t, create(t, log.KindNetwork, `{"uuid":%q,"name":"underlay","nic_tag":"sdc_underlay","vlan_id":0,"subnet":"172.16.0.0/24",
		"provision_start_ip":"172.16.0.2","provision_end_ip":"172.16.0.250","mtu":9000}`, networkID(0)))
	for n := 1; n <= 3; n++ {
		s.must(t, create(t, log.KindNetwork, `{"uuid":%q,"name":"fabric%d","nic_tag":"sdc_underlay","vlan_id":0,"subnet":"10.0.0.0/24","fabric":true,"vnet_id":%d,
			"provision_start_ip":"10.0.0.2","provision_end_ip":"10.0.0.250","mtu":1400,"owner_uuids":[%q]}`, networkID(n), n, 100+n, owner))
	}
	s.must(t, create(t, log.KindNetwork, `{"uuid":%q,"name":"external","nic_tag":"external","vlan_id":7,"subnet":"192.0.2.0/24",
		"provision_start_ip":"192.0.2.2","provision_end_ip":"192.0.2.250","mtu":1500}`, networkID(4)))
	for n := 1; n <= cns; n++ {
		s.must(t, create(t, log.KindServer, `{"uuid":%q,"hostname":"cn%d"}`, cnID(n), n))
		s.must(t, create(t, log.KindNIC, `{"mac":%q,"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,
			"network_uuid":%q,"ip":"172.16.0.%d","underlay":true,"nic_tags_provided":["sdc_underlay"]}`, underlayMAC(n), cnID(n), owner, cnID(n), networkID(0), 1+n))
	}
}

// addNIC makes a VM's NIC on a CN and network; ip "" draws an address.
func nicOp(t tb, mac log.MAC, vm, cn, network int, ip string) log.Op {
	t.Helper()
	if ip != "" {
		ip = fmt.Sprintf(`,"ip":%q`, ip)
	}
	return create(t, log.KindNIC, `{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q%s}`,
		mac, vmID(vm), owner, cnID(cn), networkID(network), ip)
}

func vmOp(t tb, vm, cn int) log.Op {
	t.Helper()
	return create(t, log.KindVM, `{"uuid":%q,"owner_uuid":%q,"server_uuid":%q,"brand":"lx","state":"running"}`, vmID(vm), owner, cnID(cn))
}

func TestBaseHistoryIsAccepted(t *testing.T) {
	s := newTestServer(1)
	baseHistory(t, s, 2)
	s.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, ""))
	if got := s.state.Interest(cnID(1)); len(got) != 4 {
		t.Fatalf("interest of CN 1: got %v, want all, itself, the underlay and vnet 101", got)
	}
}
