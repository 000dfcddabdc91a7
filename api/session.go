package api

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// session is one connection of a CN to the feed of this server.
type session struct {
	cn          log.UUID
	incarnation uint64
	number      uint64
	remote      string
	since       time.Time
	// replaced is closed when a newer session of the CN came.
	replaced chan struct{}

	mu        sync.Mutex // protects what follows
	sent      log.Seq    // the last bookmark
	watermark feed.Watermark
	heard     time.Time // the last frame
	told      bool      // a watermark came
	again     uint32    // scopes that were sent anew because their digests differed
}

// newer reports whether a is of a later incarnation or session than b.
func (a *session) newer(b *session) bool {
	if a.incarnation != b.incarnation {
		return a.incarnation > b.incarnation
	}
	return a.number > b.number
}

func (a *session) countAgain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again++
}

func (a *session) setSent(seq log.Seq) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = seq
}

// live is the session as the leader is told of it. The caller holds the lock, or
// is the only one who knows the session.
func (a *session) live() liveness.Session {
	w := &a.watermark
	return liveness.Session{
		CN: a.cn, Incarnation: a.incarnation, Number: a.number,
		Log: w.Log.Cluster, Sent: a.sent, Applied: w.Applied, Programmed: w.Programmed, Failing: w.Failing,
		Checked: w.Checked, Mismatches: w.Mismatches, Resets: w.Resets, LastReset: uint8(w.LastReset),
	}
}

// registry holds the sessions of CNs with this server: soft state, the newest
// of each CN (SAFETY B1). table is told of all that happens to them; one that
// begins with an older session than it remembers does not count there.
type registry struct {
	table *liveness.Table

	mu       sync.Mutex // protects sessions
	sessions map[log.UUID]*session
}

func newRegistry(table *liveness.Table) *registry {
	return &registry{table: table, sessions: make(map[log.UUID]*session)}
}

// tell takes a watermark.
func (g *registry) tell(a *session, w feed.Watermark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watermark, a.told = w, true
	g.table.Put(a.live())
}

// heard notes that a frame came.
func (g *registry) heard(a *session) {
	a.mu.Lock()
	a.heard = time.Now()
	a.mu.Unlock()
	g.table.Heard(a.cn, a.incarnation, a.number)
}

// add takes a session, and sends an older one of the same CN away. It is false
// if a newer or the same one is there already.
func (g *registry) add(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.sessions[s.cn]; old != nil {
		if !s.newer(old) {
			return false
		}
		close(old.replaced)
	}
	g.sessions[s.cn] = s
	g.table.Put(s.live())
	return true
}

// remove forgets a session, unless another took its place.
func (g *registry) remove(s *session) {
	s.mu.Lock()
	ended := s.live()
	s.mu.Unlock()
	ended.Gone = true
	g.table.Put(ended)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.cn] == s {
		delete(g.sessions, s.cn)
	}
}

func (g *registry) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions)
}

// all returns the sessions, sorted by CN.
func (g *registry) all() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*session, 0, len(g.sessions))
	for _, s := range g.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return strings.Compare(string(a.cn[:]), string(b.cn[:])) })
	return all
}

func (g *registry) get(cn log.UUID) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[cn]
}

// sessionForm is a session in an answer.
type sessionForm struct {
	CN          log.UUID `json:"cn_uuid"`
	Hostname    string   `json:"hostname,omitempty"`
	Server      string   `json:"server"` // id of the one that answers
	Incarnation uint64   `json:"incarnation"`
	Session     uint64   `json:"session"`
	Remote      string   `json:"remote"`
	Since       log.Time `json:"connected_since"`
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
	// BehindMS is how old the newest entry is that the CN has not applied; 0: none.
	BehindMS   int64   `json:"lag_ms"`
	DigestOK   bool    `json:"digest_ok"`      // at the last bookmark that had digests
	Checked    log.Seq `json:"digest_checked"` // the last bookmark at which all were equal
	Mismatches uint32  `json:"digest_mismatches"`
	Repaired   uint32  `json:"scopes_repaired"` // scopes sent anew on this session
	Resets     uint32  `json:"resets"`
	LastReset  string  `json:"last_reset,omitempty"` // why
}

func (a *session) form(head log.Seq, server string) sessionForm {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.watermark
	f := sessionForm{
		CN: a.cn, Server: server, Incarnation: a.incarnation, Session: a.number, Remote: a.remote, Since: log.TimeOf(a.since),
		Sent: a.sent, Applied: m.Applied, Programmed: m.Programmed, Objects: m.Objects, Links: m.Links,
		Neighbours: m.Neighbours, FDB: m.FDB, Failing: m.Failing, Healed: m.Healed,
		DigestOK: m.Checked > 0, Checked: m.Checked, Mismatches: m.Mismatches, Repaired: a.again,
		Resets: m.Resets,
	}
	if m.LastReset != 0 {
		f.LastReset = m.LastReset.String()
	}
	if head > m.Applied {
		f.Lag = head - m.Applied
	}
	if !a.heard.IsZero() {
		f.Heard = log.TimeOf(a.heard)
	}
	return f
}

// listSessions answers GET /cns: the CNs that are connected to this server.
func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	head := s.store.Head().Seq
	setSeq(w, head)
	server := s.store.Status().ID
	forms := []sessionForm{}
	for _, a := range s.cns.all() {
		forms = append(forms, s.dated(s.named(a.form(head, server))))
	}
	writeJSON(w, r, http.StatusOK, forms)
	return nil
}

// getSession answers GET /cns/UUID.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	id, err := kindOf(log.KindServer).id(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	a := s.cns.get(uuidOf(id))
	if a == nil {
		return fail(http.StatusNotFound, log.CodeResourceNotFound, "ask the other servers: a CN is connected to one of them", "CN %s is not connected to this server", id)
	}
	head := s.store.Head().Seq
	setSeq(w, head)
	writeJSON(w, r, http.StatusOK, s.dated(s.named(a.form(head, s.store.Status().ID))))
	return nil
}

// named adds the host name that the log has for the CN.
func (s *Server) named(f sessionForm) sessionForm {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, f.CN.String()); ok {
			f.Hostname = rec.Object.(*log.Server).Hostname
		}
	})
	return f
}

// dated adds how long ago the entry was written that the CN has to apply next.
func (s *Server) dated(f sessionForm) sessionForm {
	if f.Lag == 0 {
		return f
	}
	if items, err := s.tail.after(f.Applied); err == nil && len(items) > 0 {
		f.BehindMS = max(0, time.Since(items[0].event.Time.Std()).Milliseconds())
	}
	return f
}
