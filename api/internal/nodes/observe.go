package nodes

import (
	"net/http"

	"rutter/api/internal/logserver"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/feed"
)

// frameForm is one frame of a feed as a line of JSON.
type frameForm struct {
	Frame string  `json:"frame"` // entry, object, scope_begin, scope_end, scope_dropped, bookmark, reset or drain
	Seq   log.Seq `json:"seq"`
	// Chain is that of a bookmark. With the cluster of the answer's Rutter-Cursor and
	// Seq it is the cursor to continue from.
	Chain  *log.ChainPrefix  `json:"chain,omitempty"`
	Entry  *log.Line         `json:"entry,omitempty"`
	Scope  *log.Scope        `json:"scope,omitempty"`
	Kind   string            `json:"kind,omitempty"`
	ID     string            `json:"id,omitempty"`
	Object log.Object        `json:"object,omitempty"`
	Count  uint32            `json:"count,omitempty"`
	Text   string            `json:"text,omitempty"`
	Sums   []scopeDigestForm `json:"digests,omitempty"`
}

type scopeDigestForm struct {
	Scope  log.Scope  `json:"scope"`
	Digest log.Digest `json:"digest"`
}

// observe answers GET /cns/UUID/feed: exactly what this server would send to a CN that
// holds its interest and is at ?after (default: the head), as lines of JSON. It makes
// no session.
func (s *Routes) observe(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.pathCN(w, r)
	if err != nil {
		return err
	}
	p, err := rest.Query(r, "after")
	if err != nil {
		return err
	}
	_, after, err := logserver.From(r, s.store, p)
	if err != nil {
		return err
	}
	if !p.Has("after") {
		after = s.store.Head().Seq
	}
	hello, err := s.cfg.Feed.HelloOf(cn, after)
	if err != nil {
		return err
	}
	done, err := s.cfg.Streams.Enter()
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	rest.SetCursor(w, s.store.Head())
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := rest.NewStream(w)
	s.cfg.Feed.Observe(r.Context(), hello, func(m feed.Message) bool {
		form, ok := formOfFrame(m)
		if !ok {
			return true
		}
		line, err := rest.JSONLine(form)
		if err != nil {
			return false
		}
		return out.Write(line) == nil && out.Flush() == nil
	})
	return nil
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
			form.Sums = append(form.Sums, scopeDigestForm(d))
		}
		return form, true
	case *feed.Reset:
		return frameForm{Frame: "reset", Seq: m.Head, Text: m.Reason.String() + ": " + m.Text}, true
	case *feed.Drain:
		return frameForm{Frame: "drain", Seq: m.At, Text: m.Reason.String() + ": " + m.Text}, true
	}
	return frameForm{}, false
}
