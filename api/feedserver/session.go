package feedserver

import (
	"sync"
	"sync/atomic"
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
	wake        func(reason)  // of who sends the stream
	wanted      atomic.Uint64 // the seq that a barrier waits for

	mu        sync.Mutex // protects what follows
	sent      log.Seq    // the last bookmark, or the hello's that the log was found to have
	verifier  verifier
	early     *feed.Watermark // the last that came before the hello was judged
	untrue    error           // why the session ends: what its CN said of itself cannot be
	watermark feed.Watermark
	heard     time.Time // the last frame
	repaired  uint32    // scopes that were sent anew because their digests differed
	condition feed.Condition
	logged    int // lines of this server's log about that, since loggedSince
	// loggedSince is within a minute before now, or no line was logged.
	loggedSince time.Time
}

func newSession(hello *feed.Hello, remote string, wake func(reason)) *session {
	return &session{
		cn: hello.CN, incarnation: hello.Incarnation, number: hello.Session, remote: remote, since: time.Now(), wake: wake,
		verifier: verifier{hello: hello.Cursor},
	}
}

// Session is what is known of a session of a CN with this server.
type Session struct {
	CN          log.UUID
	Incarnation uint64
	Number      uint64
	Remote      string         // address that the CN connects from
	Since       time.Time      // when the session began
	Sent        log.Seq        // the last bookmark
	Watermark   feed.Watermark // the last that was believed
	Heard       time.Time      // when the last frame came; zero: none came
	Repaired    uint32         // scopes that were sent anew because their digests differed
	Condition   feed.Condition // what the CN says that people must see to
}

func (a *session) view() Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Session{
		CN: a.cn, Incarnation: a.incarnation, Number: a.number, Remote: a.remote, Since: a.since,
		Sent: a.sent, Watermark: a.watermark, Heard: a.heard, Repaired: a.repaired, Condition: a.condition,
	}
}

// want asks the CN how far it is, unless it was asked, or has said that it has
// programmed seq.
func (a *session) want(seq log.Seq) {
	a.mu.Lock()
	known := a.watermark.Programmed >= seq
	a.mu.Unlock()
	for old := a.wanted.Load(); !known && old < uint64(seq); old = a.wanted.Load() {
		if a.wanted.CompareAndSwap(old, uint64(seq)) {
			a.wake(wakeWanted)
		}
	}
}

// newer reports whether a is of a later incarnation or session than b.
func (a *session) newer(b *session) bool {
	if a.incarnation != b.incarnation {
		return a.incarnation > b.incarnation
	}
	return a.number > b.number
}

// countRepaired counts a scope that is sent anew.
func (a *session) countRepaired() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.repaired++
}

// setSent notes a bookmark. It is called before that can reach the CN.
func (a *session) setSent(seq log.Seq, chain log.ChainPrefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = seq
	a.verifier.sent(seq, chain)
}

// setReset notes that all is sent anew.
func (a *session) setReset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verifier.restart()
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

// whyDisbelieved says why what the CN said cannot be.
func (a *session) whyDisbelieved() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "the watermark cannot be right: " + a.untrue.Error()
}

// sessions holds the sessions of CNs with this server: soft state, the newest
// of each CN (SAFETY B1). table takes all that happens to them; one that
// begins with an older session than it remembers does not count there.
type sessions struct {
	table *liveness.Table

	mu     sync.Mutex // protects newest
	newest map[log.UUID]*session
}

func newSessions(table *liveness.Table) *sessions {
	return &sessions{table: table, newest: make(map[log.UUID]*session)}
}

// take takes a watermark, or returns why it cannot be: the session then counts as
// ended, and nothing of what it said last is believed for a moment.
func (g *sessions) take(a *session, w feed.Watermark) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.verifier.begun {
		a.early = &w
		return nil
	}
	return g.takeLocked(a, w)
}

func (g *sessions) takeLocked(a *session, w feed.Watermark) error {
	if a.untrue != nil {
		return a.untrue
	}
	w, a.untrue = a.verifier.verify(w)
	now := a.live()
	if now.Gone = a.untrue != nil; !now.Gone {
		a.watermark = w
		now = a.live()
	}
	g.table.Put(now)
	return a.untrue
}

// begin notes the log that a session is sent and whether that has the hello's
// cursor. It returns why the watermark that waited for this cannot be.
func (g *sessions) begin(a *session, cluster log.UUID, accepted bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verifier.begin(cluster, accepted); accepted {
		a.sent = a.verifier.hello.Seq
	}
	if a.early == nil {
		return nil
	}
	w := *a.early
	a.early = nil
	return g.takeLocked(a, w)
}

// noteFrame notes that a frame came.
func (g *sessions) noteFrame(a *session) {
	a.mu.Lock()
	a.heard = time.Now()
	a.mu.Unlock()
	g.table.Heard(a.cn, a.incarnation, a.number)
}

// add takes a session, and sends an older one of the same CN away. It is false
// if a newer or the same one is there already.
func (g *sessions) add(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.newest[s.cn]; old != nil {
		if !s.newer(old) {
			return false
		}
		old.wake(wakeReplaced)
	}
	g.newest[s.cn] = s
	g.table.Put(s.live())
	return true
}

// remove forgets a session, unless another took its place.
func (g *sessions) remove(s *session) {
	s.mu.Lock()
	ended := s.live()
	s.mu.Unlock()
	ended.Gone = true
	g.table.Put(ended)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.newest[s.cn] == s {
		delete(g.newest, s.cn)
	}
}

func (g *sessions) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.newest)
}

// all returns the sessions, in no order.
func (g *sessions) all() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*session, 0, len(g.newest))
	for _, s := range g.newest {
		all = append(all, s)
	}
	return all
}

func (g *sessions) get(cn log.UUID) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest[cn]
}

// want asks CNs how far they are, since a barrier waits until they have
// programmed seq; all, if none are named.
func (g *sessions) want(seq log.Seq, cns []log.UUID) {
	if cns == nil {
		for _, a := range g.all() {
			a.want(seq)
		}
	}
	for _, cn := range cns {
		if a := g.get(cn); a != nil {
			a.want(seq)
		}
	}
}
