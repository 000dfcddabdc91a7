package apitest

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

// ErrStop ends a Mirror's Follow when it has seen what the test waits for.
var ErrStop = errors.New("seen enough")

// Mirror is a subscriber that keeps what it is sent, as a compute node does: its cursor
// and its cache change together, at bookmarks.
type Mirror struct {
	CN      log.UUID
	Number  uint64 // of the session
	Until   log.Seq
	Calls   []string
	Check   func(m *Mirror, at log.Seq) error // at each bookmark
	Tell    func(feed.Watermark)              // the connection's method; nil: it sends nothing
	Digests int                               // compared so far
	cluster log.UUID

	Now, Kept Cache // Kept is of the last bookmark
	reset     bool
	coming    map[string]bool
}

// Cache is what a Mirror holds at a position.
type Cache struct {
	Cursor  log.Cursor
	Records map[string]projections.Record
	Scopes  map[log.Scope]log.Seq
}

// Clone returns a copy.
func (c Cache) Clone() Cache { return Cache{c.Cursor, maps.Clone(c.Records), maps.Clone(c.Scopes)} }

// NewMirror returns a Mirror that knows nothing yet.
func NewMirror(cn log.UUID) *Mirror {
	c := Cache{Records: map[string]projections.Record{}, Scopes: map[log.Scope]log.Seq{}}
	return &Mirror{CN: cn, Now: c, Kept: c.Clone()}
}

// Hello begins a session with what is kept.
func (m *Mirror) Hello() *feed.Hello {
	m.Number++
	m.Now, m.reset = m.Kept.Clone(), false
	h := &feed.Hello{CN: m.CN, Incarnation: 1, Session: m.Number, Cursor: m.Now.Cursor}
	for scope, asOf := range m.Now.Scopes {
		h.Scopes = append(h.Scopes, feed.HeldScope{Scope: scope, AsOf: asOf})
	}
	return h
}

func (m *Mirror) note(format string, args ...any) error {
	m.Calls = append(m.Calls, fmt.Sprintf(format, args...))
	return nil
}

// Key names a record of a Cache.
func Key(kind log.Kind, id string) string { return kind.String() + " " + id }

func (m *Mirror) Welcome(w *feed.Welcome) error { m.cluster = w.Head.Cluster; return nil }

func (m *Mirror) Reset(r *feed.Reset) error {
	m.reset = true
	clear(m.Now.Records)
	clear(m.Now.Scopes)
	return m.note("reset %s", r.Reason)
}

func (m *Mirror) Entry(e *feed.Entry) error {
	event, err := log.DecodeEvent(e.Event)
	if err != nil {
		return err
	}
	k := Key(event.Kind, event.ID)
	if held, ok := m.Now.Records[k]; !ok || held.Seq < e.Seq {
		m.Now.Records[k] = projections.Record{Object: event.Object, Revision: event.Revision, Seq: e.Seq}
		if event.Action == log.Delete {
			delete(m.Now.Records, k)
		}
	}
	m.dropOrphans()
	return m.note("entry %s %s", event.Action, event.Kind)
}

func (m *Mirror) Object(o *feed.Object) error {
	object, err := log.DecodeObject(o.Kind, o.ID, o.Bytes)
	if err != nil {
		return err
	}
	k := Key(o.Kind, o.ID)
	if held, ok := m.Now.Records[k]; !ok || held.Seq < o.Seq {
		m.Now.Records[k] = projections.Record{Object: object, Revision: o.Revision, Seq: o.Seq}
	}
	if m.coming != nil {
		m.coming[k] = true
		return nil
	}
	return m.note("object %s in %s", k, o.Scope)
}

func (m *Mirror) ScopeBegin(s *feed.ScopeBegin) error {
	m.coming = map[string]bool{}
	return m.note("begin %s", s.Scope)
}

func (m *Mirror) ScopeEnd(s *feed.ScopeEnd) error {
	for rec := range m.State().InScope(s.Scope) {
		if k := Key(rec.Object.Kind(), rec.Object.ID()); !m.coming[k] && rec.Seq <= s.AsOf {
			delete(m.Now.Records, k)
		}
	}
	m.coming = nil
	m.Now.Scopes[s.Scope] = s.AsOf
	return nil
}

func (m *Mirror) ScopeDropped(s *feed.ScopeDropped) error {
	delete(m.Now.Scopes, s.Scope)
	m.dropOrphans()
	return m.note("dropped %s", s.Scope)
}

// State returns the cache as a projection.
func (m *Mirror) State() *projections.State {
	state := projections.NewState()
	for _, k := range slices.Sorted(maps.Keys(m.Now.Records)) {
		if err := state.Load(m.Now.Records[k]); err != nil {
			panic(err)
		}
	}
	return state
}

func (m *Mirror) Bookmark(b *feed.Bookmark) error {
	m.dropOrphans()
	m.Now.Cursor = log.Cursor{Cluster: m.cluster, Seq: b.Seq, Chain: b.Chain}
	m.Kept = m.Now.Clone()
	if m.Tell != nil { // an honest agent is never disconnected for its watermarks
		m.Tell(feed.Watermark{Log: m.Now.Cursor, Applied: b.Seq, Programmed: b.Seq, Checked: b.Seq})
	}
	for _, d := range b.Digests {
		if got := m.State().Digest(d.Scope); got != d.Digest {
			return fmt.Errorf("digest of %s at %d is %s here, %s on the server", d.Scope, b.Seq, got, d.Digest)
		}
		m.Digests++
	}
	if m.Check != nil {
		if err := m.Check(m, b.Seq); err != nil {
			return err
		}
	}
	if b.Seq >= m.Until {
		return ErrStop
	}
	return nil
}

// dropOrphans removes what is in no held scope. It runs at each entry: an underlay NIC
// that left with its CN may be deleted before the CN returns.
func (m *Mirror) dropOrphans() {
	state := m.State()
	held := func(scope log.Scope) bool { _, ok := m.Now.Scopes[scope]; return ok }
	for key, rec := range m.Now.Records {
		_, unknown := rec.Object.(*log.Unknown)
		if !unknown && !slices.ContainsFunc(state.ScopesOf(rec.Object.Kind(), rec.Object.ID()), held) {
			delete(m.Now.Records, key)
		}
	}
}

// Compare checks the mirror against the state of the log at a bookmark: it
// holds what its interest contained then, and nothing else.
func (w *World) Compare(m *Mirror, at log.Seq) error {
	state := w.Store.Replay(at)
	var wrong []string
	wanted := map[string]bool{}
	for scope, asOf := range m.Now.Scopes {
		for rec := range state.InScope(scope) {
			k := Key(rec.Object.Kind(), rec.Object.ID())
			wanted[k] = true
			held, ok := m.Now.Records[k]
			switch {
			case asOf > at:
				wrong = append(wrong, fmt.Sprintf("scope %s is of %d", scope, asOf))
			case ok && held.Seq == rec.Seq && log.Equal(held.Object, rec.Object):
			default:
				wrong = append(wrong, fmt.Sprintf("%s of %s: held at %d (%t), the log has it at %d", k, scope, held.Seq, ok, rec.Seq))
			}
		}
	}
	for k, held := range m.Now.Records {
		if !wanted[k] {
			wrong = append(wrong, fmt.Sprintf("%s at %d is held, and in none of the scopes", k, held.Seq))
		}
	}
	if got, want := slices.SortedFunc(maps.Keys(m.Now.Scopes), log.Scope.Compare), state.Interest(m.CN); !slices.Equal(got, want) {
		wrong = append(wrong, fmt.Sprintf("scopes %v are held, want %v", got, want))
	}
	if wrong != nil {
		return fmt.Errorf("at bookmark %d:\n%s", at, strings.Join(wrong, "\n"))
	}
	return nil
}

// Connection is a feed over a pipe.
type Connection struct {
	*feed.Conn
	Done chan struct{} // closed when the server has ended it
}

// Connect calls serve with one end of a pipe, as if its request was upgraded.
func Connect(serve func(net.Conn)) *Connection {
	near, far := net.Pipe()
	c := &Connection{feed.NewConn(&SkipAnswer{Conn: near}), make(chan struct{})}
	go func() {
		defer close(c.Done)
		serve(far)
		far.Close()
	}()
	return c
}

// SkipAnswer leaves out the HTTP answer that comes before the frames.
type SkipAnswer struct {
	net.Conn
	once sync.Once
	err  error
}

func (s *SkipAnswer) Read(p []byte) (int, error) {
	s.once.Do(s.skip)
	if s.err != nil {
		return 0, s.err
	}
	return s.Conn.Read(p)
}

func (s *SkipAnswer) Write(p []byte) (int, error) {
	s.once.Do(s.skip)
	return s.Conn.Write(p)
}

func (s *SkipAnswer) skip() {
	var last [4]byte
	for string(last[:]) != "\r\n\r\n" && s.err == nil {
		copy(last[:], last[1:])
		_, s.err = s.Conn.Read(last[3:])
	}
}

// Follow makes m follow until the bookmark at until, and returns the error of
// Conn.Follow.
func (w *World) Follow(ctx context.Context, c *Connection, m *Mirror, until log.Seq) error {
	m.Until, m.Calls = until, nil
	m.Tell = c.Watermark
	err := c.Follow(ctx, m.Hello(), m)
	<-c.Done
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// Sync follows to the head. It fails the test if that returns an error, or if the
// result differs from the log.
func (w *World) Sync(t *testing.T, c *Connection, m *Mirror) {
	t.Helper()
	head := w.Store.Head().Seq
	if err := w.Follow(t.Context(), c, m, head); err != nil {
		t.Fatalf("follow to %d: %v; calls %q", head, err, m.Calls)
	}
	if err := w.Compare(m, head); err != nil {
		t.Fatalf("%v; calls %q", err, m.Calls)
	}
}
