package world

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"rutter/agent"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/feed"
)

// tapped records what the agent of a node is sent on its feed connections.
type tapped struct {
	agent.Dialer
	n      *node
	keeper *tlsgate.Keeper // of its certificate; nil: it has none
}

// certificate is the one that the node shows now.
func (d tapped) certificate() (c seen.Certificate) {
	if d.keeper == nil {
		return c
	}
	leaf := d.keeper.Leaf()
	after, err := pki.AfterOf(leaf)
	if err != nil {
		return c
	}
	return seen.Certificate{Serial: pki.Serial(leaf), Created: after.Created, IssuedBefore: after.IssuedBefore}
}

// Feed implements agent.Dialer.
func (d tapped) Feed(ctx context.Context, server string) (net.Conn, error) {
	before := d.certificate()
	conn, err := d.Dialer.Feed(ctx, server)
	if err != nil {
		return nil, err
	}
	shown := d.certificate()
	if shown != before {
		shown = seen.Certificate{} // one of the two
	}
	return &tap{Conn: conn, n: d.n, shown: shown, of: d.Dialer, server: named(d.n.w.servers, server)}, nil
}

// tap is one feed connection. What is read is recorded before the agent sees it.
type tap struct {
	net.Conn
	n        *node
	of       agent.Dialer
	server   string // its name
	shown    seen.Certificate
	down, up frames // of the reader, and of the writer

	mu    sync.Mutex // protects what follows
	begun bool       // the hello was sent
	scope *seen.Scope
}

// Read implements net.Conn.
func (t *tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.down.take(b[:n], t.came)
	return n, err
}

// Write implements net.Conn. A hello is recorded before its answer can come.
func (t *tap) Write(b []byte) (int, error) {
	t.up.take(b, t.went)
	return t.Conn.Write(b)
}

// Close implements net.Conn.
func (t *tap) Close() error {
	t.mu.Lock()
	begun, half := t.begun, t.scope != nil
	t.begun, t.scope = false, nil
	t.mu.Unlock()
	if begun && half {
		t.n.w.count(coverage.HalfScope, 1)
	}
	if begun {
		t.n.w.seen.Add(t.n.name, seen.StreamEnded{Stream: t.n.name})
	}
	return t.Conn.Close()
}

// went takes what the agent says.
func (t *tap) went(m feed.Message) {
	hello, is := m.(*feed.Hello)
	if !is {
		return
	}
	t.mu.Lock()
	t.begun = true
	t.mu.Unlock()
	e := seen.StreamBegun{Stream: t.n.name, Kind: "feed", Filter: "cn=" + hello.CN.String(), After: hello.Cursor, Held: map[log.Scope]log.Seq{}, Server: t.server, Known: t.n.w.certificates != nil, Certificate: t.shown}
	for _, h := range hello.Scopes {
		e.Held[h.Scope] = h.AsOf
	}
	t.n.w.seen.Add(t.n.name, e)
}

// came takes what the server says. What comes after the agent has closed the connection counts
// for nothing: another stream of it may have begun.
func (t *tap) came(m feed.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		return
	}
	name := t.n.name
	switch m := m.(type) {
	case *feed.Entry:
		t.n.w.seen.Add(name, seen.Item{Stream: name, Seq: m.Seq, Chain: m.Chain, Bytes: bytes.Clone(m.Event)})
	case *feed.ScopeBegin:
		t.scope = &seen.Scope{Stream: name, Scope: m.Scope, AsOf: m.AsOf}
	case *feed.Object:
		o := seen.Object{Kind: m.Kind, ID: m.ID, Revision: m.Revision, Seq: m.Seq, Bytes: bytes.Clone(m.Bytes)}
		if t.scope != nil {
			t.scope.Objects = append(t.scope.Objects, o)
		}
	case *feed.ScopeEnd:
		if t.scope != nil {
			t.scope.Chain = m.Chain
			t.n.w.seen.Add(name, *t.scope)
			t.n.w.count(coverage.ScopeSnapshot, 1)
		}
		t.scope = nil
	case *feed.ScopeDropped:
		t.n.w.seen.Add(name, seen.Scope{Stream: name, Scope: m.Scope, AsOf: m.At, Dropped: true})
	case *feed.Reset:
		t.n.w.seen.Add(name, seen.Reset{Stream: name, Reason: m.Reason.String()})
	case *feed.Bookmark:
		e := seen.Bookmark{Stream: name, Seq: m.Seq, Chain: m.Chain, Digests: map[log.Scope]log.Digest{}}
		for _, d := range m.Digests {
			e.Digests[d.Scope] = d.Digest
		}
		t.n.w.seen.Add(name, e)
		t.n.wasFed(t.of)
	}
}

// frames takes bytes of a stream as they come, and finds the frames in them.
type frames struct {
	rest []byte
	bad  bool // the bytes are no frames: the agent says so
}

func (f *frames) take(b []byte, each func(feed.Message)) {
	if f.bad || len(b) == 0 {
		return
	}
	f.rest = append(f.rest, b...)
	for len(f.rest) >= 4 {
		reader := bytes.NewReader(f.rest)
		if binary.BigEndian.Uint32(f.rest) > feed.MaxPayload {
			f.bad = true
			return
		}
		frame, err := feed.NewReader(reader).Next()
		if err != nil {
			return // the rest of it comes
		}
		f.rest = f.rest[len(f.rest)-reader.Len():]
		m, err := feed.Decode(frame)
		if errors.Is(err, feed.ErrUnknownType) {
			continue
		}
		if err != nil {
			f.bad = true
			return
		}
		each(m)
	}
	f.rest = bytes.Clone(f.rest)
}
