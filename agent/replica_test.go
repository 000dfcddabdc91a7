package agent

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func opened(t tb, folder string) (*cache, *replica, *persister) {
	t.Helper()
	c, held, err := openCache(folder, cnID(1), time.Unix(1, 0), silent())
	if err != nil {
		t.Fatalf("open cache: %v", err)
	}
	r := newReplica(cnID(1), silent())
	if err := r.load(held); err != nil {
		t.Fatalf("load: %v", err)
	}
	return c, r, newPersister(r, c, silent())
}

// TestReplicaFollowsAnyHistory: at each bookmark the replica holds exactly what the
// server's state has in its interest, whatever was cut, saved or lost before, and
// however often the agent restarted from its disk.
func TestReplicaFollowsAnyHistory(t *testing.T) {
	folder := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		h := &history{t: t, server: newTestServer(1), folder: fmt.Sprintf("%s/%d", folder, runs)}
		baseHistory(t, h.server, 3)
		h.restart()
		defer func() { h.close(); os.RemoveAll(h.folder) }()
		t.Repeat(map[string]func(*rapid.T){
			"":        h.check,
			"change":  h.change,
			"changes": func(t *rapid.T) { h.change(t); h.change(t); h.change(t) },
			"deliver": h.deliver,
			"connect": h.connect,
			"keep":    h.keep,
			"crash":   func(*rapid.T) { h.close(); h.restart() },
			"compact": func(t *rapid.T) {
				h.server.floor = h.server.head() - min(h.server.head(), log.Seq(rapid.IntRange(0, 10).Draw(t, "kept")))
			},
			"other log": h.otherLog,
		})
		h.connect(t)
		for len(h.queue) > 0 || h.session.pos < h.server.head() {
			h.deliver(t)
		}
		h.check(t)
	})
}

// history is one random run.
type history struct {
	t         *rapid.T
	server    *testServer
	folder    string
	cache     *cache
	replica   *replica
	persister *persister
	session   *session // nil: not connected
	queue     []feed.Message
	logs      byte
}

func (h *history) restart() {
	h.cache, h.replica, h.persister = opened(h.t, h.folder)
	h.session, h.queue = nil, nil
}

func (h *history) close() {
	if err := h.cache.Close(); err != nil {
		h.t.Fatalf("close: %v", err)
	}
}

// connect begins a connection; an older one is cut wherever it was.
func (h *history) connect(t *rapid.T) {
	cursor, scopes := h.replica.resumePoint()
	h.session, h.queue = h.server.hello(t, h.replica.cn, cursor, scopes)
}

// deliver sends some of the waiting messages, or some new ones.
func (h *history) deliver(t *rapid.T) {
	if h.session == nil {
		h.connect(t)
	}
	if len(h.queue) == 0 {
		for n := rapid.IntRange(1, 5).Draw(t, "changes sent"); n > 0 && h.session.pos < h.server.head(); n-- {
			h.queue = append(h.queue, h.session.next(t, true)...)
		}
		h.queue = append(h.queue, h.session.bookmark())
	}
	n := rapid.IntRange(1, len(h.queue)).Draw(t, "messages delivered")
	for _, m := range h.queue[:n] {
		if err := deliver(h.replica, m); err != nil {
			t.Fatalf("%T %+v: %v", m, m, err)
		}
		// Whatever was sent twice is known already.
		if _, is := m.(*feed.Entry); is && rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
			if err := deliver(h.replica, m); err != nil {
				t.Fatalf("%T again: %v", m, err)
			}
		}
	}
	h.queue = h.queue[n:]
}

func (h *history) keep(t *rapid.T) {
	if err := h.persister.commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func (h *history) otherLog(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
		return
	}
	h.logs++
	h.server = newTestServer(1 + h.logs%3)
	baseHistory(t, h.server, 3)
	for range rapid.IntRange(0, 20).Draw(t, "changes of the other log") {
		h.change(t)
	}
	h.session, h.queue = nil, nil
}

// check compares at a bookmark after which nothing waits.
func (h *history) check(t *rapid.T) {
	if h.session == nil || len(h.queue) > 0 || h.session.pos < h.server.head() {
		return
	}
	compareReplica(t, h.server, h.replica)
	if h.replica.applied != h.server.head() || !h.replica.complete || h.replica.reset != nil {
		t.Fatalf("at %d: applied %d, complete %v, missing %q", h.server.head(), h.replica.applied, h.replica.complete, h.replica.missing)
	}
	got, want := h.replica.wanted(&desired.Limits{}), desired.Of(h.server.state, h.replica.cn)
	if !got.complete || got.at.seq != h.server.head() || h.inOnePlace() && !reflect.DeepEqual(got.links, want) {
		t.Fatalf("at %d: links wanted: got %+v, want %+v", h.server.head(), got, want)
	}
}

// inOnePlace reports whether all of each VM that has a NIC on this CN is here. If a VM
// is between two CNs, a CN does not receive all of it.
func (h *history) inOnePlace() bool {
	for rec := range h.server.state.NICsOnCN(h.replica.cn) {
		vm := rec.Object.(*log.NIC).BelongsToUUID
		if r, ok := h.server.state.Get(log.KindVM, vm.String()); ok && r.Object.(*log.VM).ServerUUID != h.replica.cn {
			return false
		}
		for other := range h.server.state.NICsOf(vm) {
			if other.Object.(*log.NIC).CNUUID != h.replica.cn {
				return false
			}
		}
	}
	return true
}

// change makes a random change, often one of several operations.
func (h *history) change(t *rapid.T) {
	var ops []log.Op
	for range rapid.IntRange(1, 3).Draw(t, "ops") {
		ops = append(ops, h.op(t))
	}
	h.server.change(t, ops...)
}

func (h *history) op(t *rapid.T) log.Op {
	nic := rapid.IntRange(1, 8).Draw(t, "nic")
	vm, cn, network := rapid.IntRange(1, 4).Draw(t, "vm"), rapid.IntRange(1, 3).Draw(t, "cn"), rapid.IntRange(1, 4).Draw(t, "network")
	ip := fmt.Sprintf("10.0.0.%d", 10+rapid.IntRange(0, 2).Draw(t, "ip"))
	if network == 4 {
		ip = fmt.Sprintf("192.0.2.%d", 10+rapid.IntRange(0, 2).Draw(t, "ip"))
	}
	switch rapid.IntRange(0, 11).Draw(t, "op") {
	case 0, 1, 2:
		return nicOp(t, macOf(nic), vm, cn, network, ip)
	case 3, 4:
		return log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(nic).String()}
	case 5:
		return update(t, log.KindNIC, macOf(nic).String(), `{"cn_uuid":%q}`, cnID(cn))
	case 6:
		return update(t, log.KindNIC, macOf(nic).String(), `{"network_uuid":%q,"ip":%q}`, networkID(network), ip)
	case 7:
		return vmOp(t, vm, cn)
	case 8:
		return update(t, log.KindVM, vmID(vm).String(), `{"server_uuid":%q}`, cnID(cn))
	case 9:
		return log.Op{Action: log.Delete, Kind: log.KindVM, ID: vmID(vm).String()}
	case 10:
		return update(t, log.KindNetwork, networkID(network).String(), `{"description":%q}`, ip)
	default:
		return update(t, log.KindNIC, underlayMAC(cn).String(), `{"ip":"172.16.0.%d"}`, rapid.IntRange(2, 40).Draw(t, "underlay"))
	}
}

func deliverAll(t tb, r *replica, messages []feed.Message) {
	t.Helper()
	for _, m := range messages {
		if err := deliver(r, m); err != nil {
			t.Fatalf("%T %+v: %v", m, m, err)
		}
	}
}

// caughtUp returns a server with two fabrics' worth of NICs, and a replica of CN 1 at its head.
func caughtUp(t tb) (*testServer, *replica, *session) {
	t.Helper()
	s := newTestServer(1)
	baseHistory(t, s, 3)
	s.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"), nicOp(t, macOf(2), 1, 1, 2, "10.0.0.12"))
	s.must(t, vmOp(t, 2, 2), nicOp(t, macOf(3), 2, 2, 1, "10.0.0.13"), nicOp(t, macOf(4), 2, 2, 2, "10.0.0.14"))
	r := newReplica(cnID(1), silent())
	ss, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	compareReplica(t, s, r)
	return s, r, ss
}

func TestResetKeepsWantedLinks(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("other log %v", other), func(t *testing.T) {
			s, r, _ := caughtUp(t)
			before := r.wanted(&desired.Limits{}).links
			if other {
				s.cluster = log.UUID{9}
			} else {
				s.must(t, update(t, log.KindNetwork, networkID(3).String(), `{"description":"moved on"}`))
				s.floor = s.head()
			}
			cursor, scopes := r.resumePoint()
			_, messages := s.hello(t, r.cn, cursor, scopes)
			for _, m := range messages[:len(messages)-1] {
				deliverAll(t, r, []feed.Message{m})
				w := r.wanted(&desired.Limits{})
				if !reflect.DeepEqual(w.links, before) {
					t.Fatalf("after %T %+v: links wanted are %+v, before the reset %+v", m, m, w.links, before)
				}
				if _, welcome := m.(*feed.Welcome); w.complete && !welcome {
					t.Fatalf("after %T: complete within a reset", m)
				}
			}
			deliverAll(t, r, messages[len(messages)-1:])
			if w := r.wanted(&desired.Limits{}); !w.complete || w.at.seq != s.head() {
				t.Errorf("after the reset: complete %v, seq %d, want true, %d", w.complete, w.at.seq, s.head())
			}
			compareReplica(t, s, r)
		})
	}
}

func TestResetDropsWhatIsGone(t *testing.T) {
	s, r, _ := caughtUp(t)
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(3).String()})
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(2).String()})
	s.floor = s.head()
	cursor, scopes := r.resumePoint()
	_, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	compareReplica(t, s, r)
	if slices.ContainsFunc(r.scopes.sorted(), func(h feed.HeldScope) bool { return h.Scope == log.VNetScope(102) }) {
		t.Error("vnet 102 is still held")
	}
}

func TestCutResetBeginsAnew(t *testing.T) {
	s, r, _ := caughtUp(t)
	s.floor = s.head() + 1
	cursor, scopes := r.resumePoint()
	_, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages[:len(messages)/2])
	if cursor, scopes := r.resumePoint(); cursor != (log.Cursor{}) || scopes != nil {
		t.Errorf("hello within a reset: got %v and %v, want nothing", cursor, scopes)
	}
}

// TestCutFirstConnectionBeginsAnew: what the first connection brought before it broke, and the log
// has deleted since, does not stay.
func TestCutFirstConnectionBeginsAnew(t *testing.T) {
	s, _, _ := caughtUp(t)
	r := newReplica(cnID(1), silent())
	_, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages[:len(messages)-1]) // all scopes, and no bookmark
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(3).String()})
	cursor, scopes := r.resumePoint()
	_, messages = s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	compareReplica(t, s, r)
	if r.mismatches > 0 || r.resets != 1 {
		t.Errorf("%d digests differ after %d resets; want none after 1", r.mismatches, r.resets)
	}
}

func TestHalfAChangeIsNotApplied(t *testing.T) {
	s, r, ss := caughtUp(t)
	s.must(t, nicOp(t, macOf(5), 1, 1, 1, "10.0.0.15"), nicOp(t, macOf(6), 2, 2, 1, "10.0.0.16"))
	messages := ss.next(t, true)
	at := r.at()
	deliverAll(t, r, messages[:1])
	if _, held := r.state.Get(log.KindNIC, macOf(5).String()); held || r.at() != at {
		t.Fatalf("the first of two events was applied: held %v, cursor %d, before %d", held, r.at(), at)
	}
	deliverAll(t, r, messages[1:])
	deliverAll(t, r, []feed.Message{ss.bookmark()})
	compareReplica(t, s, r)
}

func TestOldAndDoubleEntriesAreIgnored(t *testing.T) {
	s, r, ss := caughtUp(t)
	s.must(t, nicOp(t, macOf(5), 1, 1, 1, "10.0.0.15"))
	first := ss.next(t, true)
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(5).String()})
	second := ss.next(t, true)
	deliverAll(t, r, slices.Concat(first, second, first, second, first, []feed.Message{ss.bookmark()}))
	compareReplica(t, s, r)
}

func TestAddressTakenOverWhileHeld(t *testing.T) {
	s, r, _ := caughtUp(t)
	// In a snapshot the new holder of an address comes while the old one is still held.
	s.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(4).String()}, nicOp(t, macOf(0), 2, 2, 2, "10.0.0.14"))
	s.floor = s.head()
	cursor, scopes := r.resumePoint()
	_, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	compareReplica(t, s, r)
}

func TestStreamThatCannotBeRight(t *testing.T) {
	_, r, ss := caughtUp(t)
	for _, test := range []struct {
		name     string
		messages []feed.Message
	}{
		{"another log without a reset", []feed.Message{&feed.Welcome{Head: log.Cursor{Cluster: log.UUID{7}, Seq: 9}}, ss.bookmark()}},
		{"an end without a begin", []feed.Message{&feed.ScopeEnd{Scope: log.AllScope()}}},
		{"the end of another scope", []feed.Message{&feed.ScopeBegin{Scope: log.AllScope(), AsOf: ss.pos}, &feed.ScopeEnd{Scope: log.VNetScope(101), AsOf: ss.pos}}},
		{"a bookmark within a scope", []feed.Message{&feed.ScopeBegin{Scope: log.AllScope(), AsOf: ss.pos}, ss.bookmark()}},
		{"an entry that is none", []feed.Message{&feed.Entry{Seq: 99, Event: []byte("nonsense")}}},
		{"an object that is none", []feed.Message{&feed.Object{Kind: log.KindNIC, ID: "x", Bytes: []byte{1}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.resumePoint()
			if err := deliver(r, &feed.Welcome{Head: ss.cursor(ss.pos)}); err != nil {
				t.Fatal(err)
			}
			var err error
			for _, m := range test.messages {
				if err = deliver(r, m); err != nil {
					break
				}
			}
			if err == nil {
				t.Error("it was taken")
			}
			compareReplica(t, ss.testServer, r)
		})
	}
}

func TestABookmarkWithoutTheInterestDoesNotCount(t *testing.T) {
	s, r, ss := caughtUp(t)
	at := r.applied
	s.must(t, nicOp(t, macOf(5), 1, 1, 3, "10.0.0.15"))
	ss.pos = s.head()
	// The server forgets the new vnet.
	deliverAll(t, r, []feed.Message{ss.entry(ss.pos), ss.bookmark()})
	if r.applied != at || r.missing == "" {
		t.Errorf("applied %d, missing %q; want %d and a reason", r.applied, r.missing, at)
	}
	deliverAll(t, r, append(ss.scope(t, log.VNetScope(103)), ss.bookmark()))
	if r.applied != s.head() || r.missing != "" {
		t.Errorf("applied %d, missing %q; want %d and none", r.applied, r.missing, s.head())
	}
}

// TestMovedNICIsNotHalfKnown: between a NIC's move to a new vnet and the arrival of
// that vnet's objects nothing may be removed. The next process does not know of the
// move, and continues from the last bookmark.
func TestMovedNICIsNotHalfKnown(t *testing.T) {
	s, _, _ := caughtUp(t)
	c, r, p := opened(t, t.TempDir())
	defer c.Close()
	ss, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	bookmark := string(r.state.Dump())
	s.must(t, update(t, log.KindNIC, macOf(1).String(), `{"network_uuid":%q,"ip":"10.0.0.99"}`, networkID(3)))
	messages = append(ss.next(t, true), ss.bookmark())
	for n, m := range messages {
		if n > 0 {
			if w := r.wanted(&desired.Limits{}); w.complete {
				t.Fatalf("before %T: complete", m)
			}
			if err := p.commit(); err != nil {
				t.Fatal(err)
			}
			copied := t.TempDir()
			file, err := os.ReadFile(c.path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(copied+"/"+cacheName, file, 0o600); err != nil {
				t.Fatal(err)
			}
			again, restarted, _ := opened(t, copied)
			if got := string(restarted.state.Dump()); got != bookmark {
				t.Errorf("restarted before %T: holds\n%s\nwant\n%s", m, got, bookmark)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
		deliverAll(t, r, []feed.Message{m})
		if _, end := m.(*feed.ScopeEnd); end {
			break
		}
	}
	if w := r.wanted(&desired.Limits{}); !w.complete {
		t.Errorf("after the scope: not complete (%s)", r.missing)
	}
}

func TestUnknownKindsAreCarried(t *testing.T) {
	_, r, ss := caughtUp(t)
	e := &log.Event{
		Kind: 99, Action: log.Create, ID: "x", Revision: 1, ChangeID: log.UUID{1}, Scopes: []log.Scope{log.AllScope()},
		Object: &log.Unknown{OfKind: 99, Key: "x"},
	}
	b, err := ss.enc.Event(e)
	if err != nil {
		t.Fatal(err)
	}
	deliverAll(t, r, []feed.Message{&feed.Entry{Seq: ss.pos + 1, Event: b}})
	if _, held := r.state.Get(99, "x"); !held {
		t.Error("an object of an unknown kind was dropped")
	}
}
