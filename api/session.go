package api

import (
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// session is one connection of a CN to the feed of this server.
type session struct {
	cn          log.UUID
	incarnation uint64
	number      uint64
	remote      string
	since       time.Time
	// subscriber is who sends the stream, and is told when a newer session of
	// the CN came.
	subscriber *subscriber

	mu        sync.Mutex // protects what follows
	sent      log.Seq    // the last bookmark, or the hello's that the log was found to have
	told      told
	early     *feed.Watermark // the last that came before the hello was judged
	lie       error           // why the session ends: what its CN said of itself cannot be
	watermark feed.Watermark
	heard     time.Time // the last frame
	again     uint32    // scopes that were sent anew because their digests differed
	condition feed.Condition
	remarks   int       // lines of this server's log about that, since remarked
	remarked  time.Time // within a minute before now, or none was
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

// setSent notes a bookmark. It is called before that can reach the CN.
func (a *session) setSent(seq log.Seq, chain log.ChainPrefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = seq
	a.told.tell(seq, chain)
}

// setReset notes that all is sent anew.
func (a *session) setReset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.restart()
}

// live is the session as the leader is told of it. The caller holds the lock, or
// is the only one who knows the session.
func (a *session) live() liveness.Session {
	w := &a.watermark
	return liveness.Session{
		CN: a.cn, Incarnation: a.incarnation, Number: a.number,
		Log: w.Log.Cluster, Sent: a.sent, Applied: w.Applied, Programmed: w.Programmed, Failing: w.Failing,
		Held: a.condition.Hold != "", Checked: w.Checked, Mismatches: w.Mismatches, Resets: w.Resets, LastReset: uint8(w.LastReset),
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

// tell takes a watermark, or returns why it cannot be: the session then counts as
// ended, and nothing of what it said last is believed for a moment.
func (g *registry) tell(a *session, w feed.Watermark) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.told.judged {
		a.early = &w
		return nil
	}
	return g.tellLocked(a, w)
}

func (g *registry) tellLocked(a *session, w feed.Watermark) error {
	if a.lie != nil {
		return a.lie
	}
	w, a.lie = a.told.judge(w)
	now := a.live()
	if now.Gone = a.lie != nil; !now.Gone {
		a.watermark = w
		now = a.live()
	}
	g.table.Put(now)
	return a.lie
}

// begin notes the log that a session is sent and whether that has the hello's
// cursor. It returns why the watermark that waited for this cannot be.
func (g *registry) begin(a *session, cluster log.UUID, accepted bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told.begin(cluster, accepted); accepted {
		a.sent = a.told.hello.Seq
	}
	if a.early == nil {
		return nil
	}
	w := *a.early
	a.early = nil
	return g.tellLocked(a, w)
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
		old.subscriber.wake(wakeReplaced)
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
