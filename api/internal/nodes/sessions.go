package nodes

import (
	"context"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/feedserver"
	"rutter/api/internal/rest"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Session is a session of a CN in an answer.
type Session struct {
	CN          log.UUID `json:"cn_uuid"`
	Hostname    string   `json:"hostname,omitempty"`
	Server      string   `json:"server"` // id of the server that answers
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
	// Reached is Programmed but for the objects that wait: Waiting are those that barriers
	// of changes that concern them wait for, Idle those whose VMs are not to run. Waits has
	// at most liveness.MaxShown of both.
	Reached log.Seq            `json:"reached"`
	Waiting int                `json:"waiting"`
	Idle    int                `json:"idle"`
	Waits   []liveness.Waiting `json:"waits,omitempty"`
	Healed  uint64             `json:"healed"`
	Drift   string             `json:"drift,omitempty"` // of Healed: what was last repaired
	// BehindMS is the age of the oldest entry that the CN has not applied, in
	// milliseconds; 0: none.
	BehindMS   int64   `json:"lag_ms"`
	DigestOK   bool    `json:"digest_ok"`      // at the last bookmark that had digests
	Checked    log.Seq `json:"digest_checked"` // the last bookmark at which all were equal
	Mismatches uint32  `json:"digest_mismatches"`
	Repaired   uint32  `json:"scopes_repaired"` // scopes sent again on this session
	Resets     uint32  `json:"resets"`
	LastReset  string  `json:"last_reset,omitempty"` // why
	Gone       bool    `json:"gone,omitempty"`       // the session has ended, or its server does not answer
	HeardMS    *int64  `json:"heard_ms,omitempty"`   // milliseconds since the last sign reported to the leader; -1: none in its term
	// Hold is what the CN holds back of the log; Trouble is what else an operator must
	// act on.
	Hold    *holdForm `json:"hold,omitempty"`
	Trouble string    `json:"trouble,omitempty"`
}

func formOfSession(a *feedserver.Session, head log.Seq, server string) Session {
	m := &a.Watermark
	f := Session{
		CN: a.CN, Server: server, Incarnation: a.Incarnation, Session: a.Number, Remote: a.Remote, Since: log.TimeOf(a.Since),
		Sent: a.Sent, Applied: m.Applied, Programmed: m.Programmed, Objects: m.Objects, Links: m.Links,
		Neighbours: m.Neighbours, FDB: m.FDB, Failing: m.Failing, Healed: m.Healed, Drift: m.Drift,
		DigestOK: m.Checked > 0, Checked: m.Checked, Mismatches: m.Mismatches, Repaired: a.Repaired,
		Resets: m.Resets,
	}
	f.Reached, f.Waiting, f.Idle, f.Waits = m.Far(), a.Waiting, a.Idle, liveness.FormsOf(m.Waits)
	if m.LastReset != 0 {
		f.LastReset = m.LastReset.String()
	}
	if head > m.Applied {
		f.Lag = head - m.Applied
	}
	if !a.LastFrame.IsZero() {
		f.Heard = log.TimeOf(a.LastFrame)
	}
	f.Hold, f.Trouble = holdOf(&a.Condition), a.Condition.Trouble
	return f
}

// Here returns the sessions with this server, sorted by CN.
func (s *Routes) Here(head log.Seq, server string) []Session {
	sessions := s.cfg.Feed.Sessions()
	forms := make([]Session, 0, len(sessions))
	for i := range sessions {
		forms = append(forms, formOfSession(&sessions[i], head, server))
	}
	return forms
}

// list answers GET /cns: the CNs that are connected to this server, or with
// ?everywhere=1 the newest session of each CN with any server. With ?at= it lists the
// CNs of the log at that seq, without sessions, which are not in the log.
func (s *Routes) list(w http.ResponseWriter, r *http.Request) error {
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
	server := s.cfg.ServerID()
	forms := []Session{}
	if everywhere {
		if forms, err = s.Everywhere(r.Context(), head); err != nil {
			return err
		}
	} else {
		for _, f := range s.Here(head, server) {
			forms = append(forms, s.dated(s.named(f)))
		}
	}
	rest.WriteJSON(w, r, http.StatusOK, forms)
	return nil
}

// Everywhere asks the leader for all sessions. Details that only a session's server has
// are left out.
func (s *Routes) Everywhere(ctx context.Context, head log.Seq) ([]Session, error) {
	if s.cfg.Fabric == nil {
		return nil, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server knows no sessions but its own")
	}
	known, err := s.cfg.Fabric.List(ctx)
	if err != nil {
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again, or leave everywhere out", "the leader could not be asked for the sessions: %v", err)
	}
	forms := make([]Session, 0, len(known))
	for _, k := range known {
		a := feedserver.Session{CN: k.CN, Incarnation: k.Incarnation, Number: k.Number, Sent: k.Sent, Watermark: feed.Watermark{
			Applied: k.Applied, Programmed: k.Programmed, Failing: k.Failing, Checked: k.Checked,
			Mismatches: k.Mismatches, Resets: k.Resets, LastReset: feed.ResetReason(k.LastReset),
			Reached: k.Reached, Waits: k.Waits,
		}, Waiting: k.Waiting, Idle: k.Idle}
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
func (s *Routes) get(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.pathCN(w, r)
	if err != nil {
		return err
	}
	p, err := rest.Query(r, "at")
	if err != nil {
		return err
	}
	if p.Has("at") {
		return s.getAt(w, r, p, cn)
	}
	a, known := s.cfg.Feed.Session(cn)
	if g := guard.GrantOf(r); g.Decision == matrix.Own && cn != g.Who.UUID {
		known = false // as if it did not exist
	}
	if !known {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "ask the other servers: a CN is connected to one of them", "CN %s is not connected to this server", cn)
	}
	head := s.store.Head().Seq
	rest.SetSeq(w, head)
	rest.WriteJSON(w, r, http.StatusOK, s.dated(s.named(formOfSession(&a, head, s.cfg.ServerID()))))
	return nil
}

// cnForm is a CN in the log at a seq.
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
func (s *Routes) listAt(w http.ResponseWriter, r *http.Request, p rest.Parameters) error {
	if err := s.cfg.Fresh(r, p); err != nil {
		return err
	}
	forms := []cnForm{}
	if err := s.cfg.ViewAt(w, r, p, log.UUID{}, func(state *projections.State) {
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
func (s *Routes) getAt(w http.ResponseWriter, r *http.Request, p rest.Parameters, cn log.UUID) error {
	if err := s.cfg.Fresh(r, p); err != nil {
		return err
	}
	var rec projections.Record
	known := false
	if err := s.cfg.ViewAt(w, r, p, cn, func(state *projections.State) {
		rec, known = state.Get(log.KindServer, cn.String())
	}); err != nil {
		return err
	}
	if !known {
		return rest.Fail(http.StatusNotFound, log.CodeResourceNotFound, "give a later place, or look at GET /log/history?kind=server&object="+cn.String(), "the log did not know CN %s at %s", cn, p.Text("at"))
	}
	rest.WriteJSON(w, r, http.StatusOK, formOfCN(rec))
	return nil
}

// named adds the host name that the log has for the CN.
func (s *Routes) named(f Session) Session {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, f.CN.String()); ok {
			f.Hostname = rec.Object.(*log.Server).Hostname
		}
	})
	return f
}

// dated adds the age of the entry that the CN must apply next.
func (s *Routes) dated(f Session) Session {
	if f.Lag == 0 {
		return f
	}
	if items, err := s.cfg.Tail.After(f.Applied); err == nil && len(items) > 0 {
		f.BehindMS = max(0, time.Since(items[0].Head.Time.Std()).Milliseconds())
	}
	return f
}
