package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// errStop ends a mirror's Follow when it has seen what the test waits for.
var errStop = errors.New("seen enough")

// mirror is a subscriber that keeps what it is sent, as a compute node does: a
// cursor and its cache move together, at bookmarks.
type mirror struct {
	cn      log.UUID
	number  uint64 // of the session
	until   log.Seq
	calls   []string
	check   func(m *mirror, at log.Seq) error // at each bookmark
	tell    func(feed.Watermark)              // of the connection; nil: nothing is told
	digests int                               // compared so far
	cluster log.UUID

	now, kept cache // kept is of the last bookmark
	reset     bool
	coming    map[string]bool
}

type cache struct {
	cursor  log.Cursor
	records map[string]projections.Record
	scopes  map[log.Scope]log.Seq
}

func (c cache) clone() cache { return cache{c.cursor, maps.Clone(c.records), maps.Clone(c.scopes)} }

func newMirror(cn log.UUID) *mirror {
	c := cache{records: map[string]projections.Record{}, scopes: map[log.Scope]log.Seq{}}
	return &mirror{cn: cn, now: c, kept: c.clone()}
}

func (m *mirror) hello() *feed.Hello {
	m.number++
	m.now, m.reset = m.kept.clone(), false
	h := &feed.Hello{CN: m.cn, Incarnation: 1, Session: m.number, Cursor: m.now.cursor}
	for scope, asOf := range m.now.scopes {
		h.Scopes = append(h.Scopes, feed.HeldScope{Scope: scope, AsOf: asOf})
	}
	return h
}

func (m *mirror) note(format string, args ...any) error {
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	return nil
}

func key(kind log.Kind, id string) string { return kind.String() + " " + id }

func (m *mirror) Welcome(w *feed.Welcome) error { m.cluster = w.Head.Cluster; return nil }

func (m *mirror) Reset(r *feed.Reset) error {
	m.reset = true
	clear(m.now.records)
	clear(m.now.scopes)
	return m.note("reset %s", r.Reason)
}

func (m *mirror) Entry(e *feed.Entry) error {
	event, err := log.DecodeEvent(e.Event)
	if err != nil {
		return err
	}
	k := key(event.Kind, event.ID)
	if held, ok := m.now.records[k]; !ok || held.Seq < e.Seq {
		m.now.records[k] = projections.Record{Object: event.Object, Revision: event.Revision, Seq: e.Seq}
		if event.Action == log.Delete {
			delete(m.now.records, k)
		}
	}
	m.dropOrphans()
	return m.note("entry %s %s", event.Action, event.Kind)
}

func (m *mirror) Object(o *feed.Object) error {
	object, err := log.DecodeObject(o.Kind, o.ID, o.Bytes)
	if err != nil {
		return err
	}
	k := key(o.Kind, o.ID)
	if held, ok := m.now.records[k]; !ok || held.Seq < o.Seq {
		m.now.records[k] = projections.Record{Object: object, Revision: o.Revision, Seq: o.Seq}
	}
	if m.coming != nil {
		m.coming[k] = true
		return nil
	}
	return m.note("object %s in %s", k, o.Scope)
}

func (m *mirror) ScopeBegin(s *feed.ScopeBegin) error {
	m.coming = map[string]bool{}
	return m.note("begin %s", s.Scope)
}

func (m *mirror) ScopeEnd(s *feed.ScopeEnd) error {
	for rec := range m.state().InScope(s.Scope) {
		if k := key(rec.Object.Kind(), rec.Object.ID()); !m.coming[k] && rec.Seq <= s.AsOf {
			delete(m.now.records, k)
		}
	}
	m.coming = nil
	m.now.scopes[s.Scope] = s.AsOf
	return nil
}

func (m *mirror) ScopeDropped(s *feed.ScopeDropped) error {
	delete(m.now.scopes, s.Scope)
	m.dropOrphans()
	return m.note("dropped %s", s.Scope)
}

// state is the cache as a projection.
func (m *mirror) state() *projections.State {
	state := projections.NewState()
	for _, k := range slices.Sorted(maps.Keys(m.now.records)) {
		if err := state.Load(m.now.records[k]); err != nil {
			panic(err)
		}
	}
	return state
}

func (m *mirror) Bookmark(b *feed.Bookmark) error {
	m.dropOrphans()
	m.now.cursor = log.Cursor{Cluster: m.cluster, Seq: b.Seq, Chain: b.Chain}
	m.kept = m.now.clone()
	if m.tell != nil { // an honest agent is never sent away for what it says
		m.tell(feed.Watermark{Log: m.now.cursor, Applied: b.Seq, Programmed: b.Seq, Checked: b.Seq})
	}
	for _, d := range b.Digests {
		if got := m.state().Digest(d.Scope); got != d.Digest {
			return fmt.Errorf("digest of %s at %d is %s here, %s on the server", d.Scope, b.Seq, got, d.Digest)
		}
		m.digests++
	}
	if m.check != nil {
		if err := m.check(m, b.Seq); err != nil {
			return err
		}
	}
	if b.Seq >= m.until {
		return errStop
	}
	return nil
}

// dropOrphans forgets what is in no scope that is held. At each entry: an
// underlay NIC that left with its CN may have been deleted before it would come
// back with it.
func (m *mirror) dropOrphans() {
	for _, rec := range m.state().Orphans(slices.Collect(maps.Keys(m.now.scopes))) {
		delete(m.now.records, key(rec.Object.Kind(), rec.Object.ID()))
	}
}

// replay returns the state of a memory at seq.
func (m *memory) replay(seq log.Seq) *projections.State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	state := projections.NewState()
	for _, e := range m.entries[:seq] {
		event, err := e.Event()
		if err != nil {
			panic(err)
		}
		if _, err := state.Apply(e.Seq, event); err != nil {
			panic(err)
		}
	}
	return state
}

// compare checks the mirror against the state of the log at a bookmark: it
// holds what its interest contained then, and nothing else.
func (b *bed) compare(m *mirror, at log.Seq) error {
	state := b.store.replay(at)
	var wrong []string
	wanted := map[string]bool{}
	for scope, asOf := range m.now.scopes {
		for rec := range state.InScope(scope) {
			k := key(rec.Object.Kind(), rec.Object.ID())
			wanted[k] = true
			held, ok := m.now.records[k]
			switch {
			case asOf > at:
				wrong = append(wrong, fmt.Sprintf("scope %s is of %d", scope, asOf))
			case ok && held.Seq == rec.Seq && log.Equal(held.Object, rec.Object):
			default:
				wrong = append(wrong, fmt.Sprintf("%s of %s: held at %d (%t), the log has it at %d", k, scope, held.Seq, ok, rec.Seq))
			}
		}
	}
	for k, held := range m.now.records {
		if !wanted[k] {
			wrong = append(wrong, fmt.Sprintf("%s at %d is held, and in none of the scopes", k, held.Seq))
		}
	}
	if got, want := slices.SortedFunc(maps.Keys(m.now.scopes), log.Scope.Compare), state.Interest(m.cn); !slices.Equal(got, want) {
		wrong = append(wrong, fmt.Sprintf("scopes %v are held, want %v", got, want))
	}
	if wrong != nil {
		return fmt.Errorf("at bookmark %d:\n%s", at, strings.Join(wrong, "\n"))
	}
	return nil
}

// connection is a feed of the bed's server over a pipe.
type connection struct {
	*feed.Conn
	done chan struct{}
}

// connect upgrades a pipe, as the client of package api/client does a socket.
func (b *bed) connect(ctx context.Context) *connection {
	near, far := net.Pipe()
	c := &connection{feed.NewConn(&skipAnswer{Conn: near}), make(chan struct{})}
	go func() {
		defer close(c.done)
		_ = b.s.serveFeed(far)
		far.Close()
	}()
	return c
}

// skipAnswer leaves out the HTTP answer that comes before the frames.
type skipAnswer struct {
	net.Conn
	once sync.Once
	err  error
}

func (s *skipAnswer) Read(p []byte) (int, error) {
	s.once.Do(s.skip)
	if s.err != nil {
		return 0, s.err
	}
	return s.Conn.Read(p)
}

func (s *skipAnswer) Write(p []byte) (int, error) {
	s.once.Do(s.skip)
	return s.Conn.Write(p)
}

func (s *skipAnswer) skip() {
	var last [4]byte
	for string(last[:]) != "\r\n\r\n" && s.err == nil {
		copy(last[:], last[1:])
		_, s.err = s.Conn.Read(last[3:])
	}
}

// follow has m follow until the bookmark at until, and returns Follow's error.
func (b *bed) follow(t interface{ Context() context.Context }, m *mirror, until log.Seq) error {
	m.until, m.calls = until, nil
	c := b.connect(t.Context())
	m.tell = c.Watermark
	err := c.Follow(t.Context(), m.hello(), m)
	<-c.done
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// sync follows to the head, and fails the test if that does not end well or in
// what the log has.
func (b *bed) sync(t *testing.T, m *mirror) {
	t.Helper()
	head := b.store.Head().Seq
	if err := b.follow(t, m, head); err != nil {
		t.Fatalf("follow to %d: %v; calls %q", head, err, m.calls)
	}
	if err := b.compare(m, head); err != nil {
		t.Fatalf("%v; calls %q", err, m.calls)
	}
}
