package api

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/rest"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// frameForm is one frame of a feed as a line of JSON.
type frameForm struct {
	Frame string  `json:"frame"` // entry, object, scope_begin, scope_end, scope_dropped, bookmark, reset or drain
	Seq   log.Seq `json:"seq"`
	// Chain is that of a bookmark: with the cluster of the answer's Rutter-Cursor and
	// Seq it is the cursor to go on from.
	Chain  *log.ChainPrefix `json:"chain,omitempty"`
	Entry  *log.Line        `json:"entry,omitempty"`
	Scope  *log.Scope       `json:"scope,omitempty"`
	Kind   string           `json:"kind,omitempty"`
	ID     string           `json:"id,omitempty"`
	Object log.Object       `json:"object,omitempty"`
	Count  uint32           `json:"count,omitempty"`
	Text   string           `json:"text,omitempty"`
	Sums   []sumOfForm      `json:"digests,omitempty"`
}

type sumOfForm struct {
	Scope  log.Scope  `json:"scope"`
	Digest log.Digest `json:"digest"`
}

// observe answers GET /cns/UUID/feed: exactly what this server would send to a CN
// that holds what it must and is at ?after (default: the head), as lines of JSON.
// It is the CN's stream, but no session of it.
func (s *Server) observe(w http.ResponseWriter, r *http.Request) error {
	id, err := kindOf(log.KindServer).id(r)
	if err != nil {
		return err
	}
	p, err := rest.Query(r, "after")
	if err != nil {
		return err
	}
	q := &logQuery{}
	if err := s.from(r, p, q); err != nil {
		return err
	}
	if !p.Has("after") {
		q.after = s.store.Head().Seq
	}
	hello, err := s.helloOf(uuidOf(id), q.after)
	if err != nil {
		return err
	}
	done, err := s.stream()
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	backend.SetPlace(w, s.store.Head())
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &lines{w: w, control: http.NewResponseController(w), q: &logQuery{limit: 1<<64 - 1}}
	_ = out.control.SetReadDeadline(time.Time{})
	s.pour(r.Context(), out, hello)
	return nil
}

// helloOf is what a CN would say that is at a seq and holds its interest of now.
func (s *Server) helloOf(cn log.UUID, after log.Seq) (*feed.Hello, error) {
	hello := &feed.Hello{Version: feed.Version, CN: cn}
	head := s.store.Head()
	hello.Cursor = log.Cursor{Cluster: head.Cluster, Seq: after, Chain: head.Chain}
	if after < head.Seq {
		// The chain at a place is carried by the entry there.
		hello.Cursor.Chain = log.ChainPrefix{}
		if after > s.store.Floor() {
			items, err := s.tail.after(after - 1)
			if err != nil {
				return nil, err
			}
			hello.Cursor.Chain = items[0].entry.Hash.Prefix()
		}
	}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, scope := range state.Interest(cn) {
			hello.Scopes = append(hello.Scopes, feed.HeldScope{Scope: scope, AsOf: after})
		}
	})
	return hello, nil
}

// pour runs a subscriber against a pipe, and writes what comes out of it.
func (s *Server) pour(ctx context.Context, out *lines, hello *feed.Hello) {
	near, far := net.Pipe()
	u := newSubscriber(s, far, matrix.Identity{Role: matrix.CN, UUID: hello.CN}, hello)
	s.crew.join(u)
	defer func() {
		near.Close()
		u.wake(wakeEnd)
		<-u.over // its last frame says why
	}()
	stop := context.AfterFunc(ctx, func() { near.Close() })
	defer stop()
	reader := feed.NewReader(bufio.NewReader(near))
	for {
		f, err := reader.Next()
		if err != nil {
			return
		}
		m, err := feed.Decode(f)
		if err != nil {
			continue // of no use to a reader of lines
		}
		form, ok := formOfFrame(m)
		if !ok {
			continue
		}
		line, err := rest.JSONLine(form)
		if err != nil {
			return
		}
		out.buf = append(out.buf, line...)
		if err := out.flush(); errors.Is(err, errGone) {
			return
		}
	}
}

func formOfFrame(m feed.Message) (frameForm, bool) {
	switch m := m.(type) {
	case *feed.Entry:
		event, err := log.DecodeEvent(m.Event)
		if err != nil {
			return frameForm{}, false
		}
		return frameForm{Frame: "entry", Seq: m.Seq, Entry: &log.Line{Seq: m.Seq, Chain: m.Chain, Event: event}}, true
	case *feed.Object:
		o, err := log.DecodeObject(m.Kind, m.ID, m.Bytes)
		return frameForm{Frame: "object", Seq: m.Seq, Scope: &m.Scope, Kind: m.Kind.String(), ID: m.ID, Object: o}, err == nil
	case *feed.ScopeBegin:
		return frameForm{Frame: "scope_begin", Seq: m.AsOf, Scope: &m.Scope, Count: m.Count}, true
	case *feed.ScopeEnd:
		return frameForm{Frame: "scope_end", Seq: m.AsOf, Scope: &m.Scope, Count: m.Count}, true
	case *feed.ScopeDropped:
		return frameForm{Frame: "scope_dropped", Seq: m.At, Scope: &m.Scope}, true
	case *feed.Bookmark:
		form := frameForm{Frame: "bookmark", Seq: m.Seq, Chain: &m.Chain}
		for _, d := range m.Digests {
			form.Sums = append(form.Sums, sumOfForm(d))
		}
		return form, true
	case *feed.Reset:
		return frameForm{Frame: "reset", Seq: m.Head, Text: m.Reason.String() + ": " + m.Text}, true
	case *feed.Drain:
		return frameForm{Frame: "drain", Seq: m.At, Text: m.Reason.String() + ": " + m.Text}, true
	}
	return frameForm{}, false
}
