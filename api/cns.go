package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/feedserver"
	"rutter/api/logread"
	"rutter/api/rest"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// sessionForm is a session in an answer.
type sessionForm struct {
	CN          log.UUID `json:"cn_uuid"`
	Hostname    string   `json:"hostname,omitempty"`
	Server      string   `json:"server"` // id of the one that answers
	Incarnation uint64   `json:"incarnation"`
	Session     uint64   `json:"session"`
	Remote      string   `json:"remote"`
	Since       log.Time `json:"connected_since,omitzero"`
	Heard       log.Time `json:"heard,omitzero"` // of the last watermark
	Sent        log.Seq  `json:"sent"`           // the last bookmark
	Applied     log.Seq  `json:"applied"`
	Programmed  log.Seq  `json:"programmed"`
	Lag         log.Seq  `json:"lag_entries"` // entries between the head and Applied
	Objects     uint32   `json:"objects"`
	Links       uint32   `json:"links"`
	Neighbours  uint32   `json:"neighbours"`
	FDB         uint32   `json:"fdb"`
	Failing     uint32   `json:"failing"`
	Healed      uint64   `json:"healed"`
	Drift       string   `json:"drift,omitempty"` // of Healed, what was put right last
	// BehindMS is how old the newest entry is that the CN has not applied; 0: none.
	BehindMS   int64   `json:"lag_ms"`
	DigestOK   bool    `json:"digest_ok"`      // at the last bookmark that had digests
	Checked    log.Seq `json:"digest_checked"` // the last bookmark at which all were equal
	Mismatches uint32  `json:"digest_mismatches"`
	Repaired   uint32  `json:"scopes_repaired"` // scopes sent anew on this session
	Resets     uint32  `json:"resets"`
	LastReset  string  `json:"last_reset,omitempty"` // why
	Gone       bool    `json:"gone,omitempty"`       // the session has ended, or its server is silent
	HeardMS    *int64  `json:"heard_ms,omitempty"`   // ago, as the leader was told; -1: never in its time
	// Hold is what of the log the CN does not do, and Trouble what else is to be seen to.
	Hold    *holdForm `json:"hold,omitempty"`
	Trouble string    `json:"trouble,omitempty"`
}

func formOfSession(a *feedserver.Session, head log.Seq, server string) sessionForm {
	m := &a.Watermark
	f := sessionForm{
		CN: a.CN, Server: server, Incarnation: a.Incarnation, Session: a.Number, Remote: a.Remote, Since: log.TimeOf(a.Since),
		Sent: a.Sent, Applied: m.Applied, Programmed: m.Programmed, Objects: m.Objects, Links: m.Links,
		Neighbours: m.Neighbours, FDB: m.FDB, Failing: m.Failing, Healed: m.Healed, Drift: m.Drift,
		DigestOK: m.Checked > 0, Checked: m.Checked, Mismatches: m.Mismatches, Repaired: a.Repaired,
		Resets: m.Resets,
	}
	if m.LastReset != 0 {
		f.LastReset = m.LastReset.String()
	}
	if head > m.Applied {
		f.Lag = head - m.Applied
	}
	if !a.Heard.IsZero() {
		f.Heard = log.TimeOf(a.Heard)
	}
	f.Hold, f.Trouble = holdOf(&a.Condition), a.Condition.Trouble
	return f
}

// cnServer answers what people ask about CNs: their sessions, what they hold back, and
// what they would be sent.
type cnServer struct {
	store   Store
	tail    *logread.Tail // of store
	feed    *feedserver.Server
	vmms    *vmm.Service // nil: CNs are not asked
	fabric  Fabric       // nil: only sessions with this server are known
	logger  *slog.Logger
	audit   func(audit.Record)
	streams *guard.Streams
	read    *stateReader
}

func newCNServer(s *Server) *cnServer {
	return &cnServer{
		store: s.store, tail: s.tail, feed: s.feed, vmms: s.cfg.VMMs, fabric: s.cfg.Fabric, logger: s.logger, audit: s.guard.Note,
		streams: s.streams, read: s.read,
	}
}

func (s *cnServer) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/cns", Serve: s.list},
		{Method: "GET", Pattern: "/cns/{id}", Serve: s.get},
		{Method: "POST", Pattern: "/cns/{id}/accept", Serve: s.accept},
		{Method: "GET", Pattern: "/cns/{id}/feed", Serve: s.observe},
	}
}

// here has the sessions with this server, sorted by CN.
func (s *cnServer) here(head log.Seq, server string) []sessionForm {
	sessions := s.feed.Sessions()
	forms := make([]sessionForm, 0, len(sessions))
	for i := range sessions {
		forms = append(forms, formOfSession(&sessions[i], head, server))
	}
	return forms
}

// list answers GET /cns: the CNs that are connected to this server, or
// with ?everywhere=1 the newest session of each CN, with any server. With ?at= it
// has the CNs that the log knew then: sessions do not stand in the log.
func (s *cnServer) list(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "everywhere", "at")
	if err != nil {
		return err
	}
	if p.Has("at") {
		return s.listAt(w, r, p)
	}
	everywhere, err := p.Flag("everywhere")
	if err != nil {
		return err
	}
	head := s.store.Head().Seq
	rest.SetSeq(w, head)
	server := s.store.Status().ID
	forms := []sessionForm{}
	if everywhere {
		if forms, err = s.everywhere(r.Context(), head); err != nil {
			return err
		}
	} else {
		for _, f := range s.here(head, server) {
			forms = append(forms, s.dated(s.named(f)))
		}
	}
	rest.WriteJSON(w, r, http.StatusOK, forms)
	return nil
}

// everywhere asks the leader for all sessions. What only the server of a session
// knows of it is left out.
func (s *cnServer) everywhere(ctx context.Context, head log.Seq) ([]sessionForm, error) {
	if s.fabric == nil {
		return nil, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server knows no sessions but its own")
	}
	known, err := s.fabric.List(ctx)
	if err != nil {
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again, or leave everywhere out", "the leader could not be asked for the sessions: %v", err)
	}
	forms := make([]sessionForm, 0, len(known))
	for _, k := range known {
		a := feedserver.Session{CN: k.CN, Incarnation: k.Incarnation, Number: k.Number, Sent: k.Sent, Watermark: feed.Watermark{
			Applied: k.Applied, Programmed: k.Programmed, Failing: k.Failing, Checked: k.Checked,
			Mismatches: k.Mismatches, Resets: k.Resets, LastReset: feed.ResetReason(k.LastReset),
		}}
		f := s.dated(s.named(formOfSession(&a, head, k.Server)))
		f.Gone, f.HeardMS, f.Since = !k.Alive, &k.HeardMS, 0
		if k.Held && k.Alive {
			f.Hold = &holdForm{Names: []string{}}
		}
		forms = append(forms, f)
	}
	s.fillHolds(ctx, forms)
	return forms, nil
}

// get answers GET /cns/UUID.
func (s *cnServer) get(w http.ResponseWriter, r *http.Request) error {
	id, err := kindOf(log.KindServer).id(r)
	if err != nil {
		return err
	}
	p, err := rest.Query(r, "at")
	if err != nil {
		return err
	}
	if p.Has("at") {
		return s.getAt(w, r, p, id)
	}
	a, known := s.feed.Session(uuidOf(id))
	if g := guard.GrantOf(r); g.Answer == matrix.Own && uuidOf(id) != g.Who.UUID {
		known = false // as if there were none
	}
	if !known {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "ask the other servers: a CN is connected to one of them", "CN %s is not connected to this server", id)
	}
	head := s.store.Head().Seq
	rest.SetSeq(w, head)
	rest.WriteJSON(w, r, http.StatusOK, s.dated(s.named(formOfSession(&a, head, s.store.Status().ID))))
	return nil
}

// cnForm is a CN as the log knew it at some time.
type cnForm struct {
	CN       log.UUID     `json:"cn_uuid"`
	Hostname string       `json:"hostname,omitempty"`
	Status   string       `json:"status"`   // running or unknown
	Revision log.Revision `json:"revision"` // of its server object
	Seq      log.Seq      `json:"seq"`      // of the entry that says so
}

func formOfCN(rec projections.Record) cnForm {
	server := rec.Object.(*log.Server)
	return cnForm{server.UUID, server.Hostname, server.Status, rec.Revision, rec.Seq}
}

// listAt answers GET /cns?at=.
func (s *cnServer) listAt(w http.ResponseWriter, r *http.Request, p rest.Parameters) error {
	if err := s.read.fresh(r, p); err != nil {
		return err
	}
	forms := []cnForm{}
	if err := s.read.viewAt(w, r, p, PastPart{Kinds: []log.Kind{log.KindServer}}, func(state *projections.State) {
		for rec := range state.List(log.KindServer) {
			forms = append(forms, formOfCN(rec))
		}
	}); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, forms)
	return nil
}

// getAt answers GET /cns/UUID?at=.
func (s *cnServer) getAt(w http.ResponseWriter, r *http.Request, p rest.Parameters, id string) error {
	if err := s.read.fresh(r, p); err != nil {
		return err
	}
	var rec projections.Record
	known := false
	if err := s.read.viewAt(w, r, p, PastPart{Objects: []PastObject{{log.KindServer, id}}}, func(state *projections.State) {
		rec, known = state.Get(log.KindServer, id)
	}); err != nil {
		return err
	}
	if !known {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "give a later place, or look at GET /log/history?kind=server&object="+id, "the log did not know CN %s at %s", id, p.Text("at"))
	}
	rest.WriteJSON(w, r, http.StatusOK, formOfCN(rec))
	return nil
}

// named adds the host name that the log has for the CN.
func (s *cnServer) named(f sessionForm) sessionForm {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, f.CN.String()); ok {
			f.Hostname = rec.Object.(*log.Server).Hostname
		}
	})
	return f
}

// dated adds how long ago the entry was written that the CN has to apply next.
func (s *cnServer) dated(f sessionForm) sessionForm {
	if f.Lag == 0 {
		return f
	}
	if items, err := s.tail.After(f.Applied); err == nil && len(items) > 0 {
		f.BehindMS = max(0, time.Since(items[0].Head.Time.Std()).Milliseconds())
	}
	return f
}
