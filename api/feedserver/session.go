package feedserver

import (
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/internal/nodemetrics"
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
	wake        func(reason)  // wakes the subscriber
	wanted      atomic.Uint64 // the seq that a barrier waits for, or that is measured
	node        *nodemetrics.Node

	mu        sync.Mutex // protects what follows
	sent      log.Seq    // the last bookmark, or the hello's seq once the log is known to have it
	verifier  verifier
	early     *feed.Watermark // the last watermark that came before the hello was checked
	untrue    error           // why the session ends: the CN's report about itself cannot be true
	watermark feed.Watermark
	lastFrame time.Time // time of the last frame
	repaired  uint32    // scopes that were sent again because their digests differed
	condition feed.Condition
	logged    int // lines in this server's log about the condition, since loggedSince
	// loggedSince is less than a minute ago, or no line was logged.
	loggedSince time.Time
}

func newSession(hello *feed.Hello, remote string, wake func(reason), node *nodemetrics.Node) *session {
	return &session{
		cn: hello.CN, incarnation: hello.Incarnation, number: hello.Session, remote: remote, since: time.Now(), wake: wake, node: node,
		verifier: verifier{hello: hello.Cursor},
	}
}

// Session is what this server knows about the session of a CN.
type Session struct {
	CN          log.UUID
	Incarnation uint64
	Number      uint64
	Remote      string         // address that the CN connects from
	Since       time.Time      // when the session began
	Sent        log.Seq        // the last bookmark
	Watermark   feed.Watermark // the last one that was accepted
	LastFrame   time.Time      // time of the last frame; zero: there was none
	Repaired    uint32         // scopes that were sent again because their digests differed
	Condition   feed.Condition // what the CN reports to operators
	Waiting     int            // objects of the watermark's list that are not idle
	Idle        int            // those that are
}

func (a *session) view() Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	progress := a.node.Progress()
	return Session{
		Waiting: progress.Waiting, Idle: progress.Idle,
		CN: a.cn, Incarnation: a.incarnation, Number: a.number, Remote: a.remote, Since: a.since,
		Sent: a.sent, Watermark: a.watermark, LastFrame: a.lastFrame, Repaired: a.repaired, Condition: a.condition,
	}
}

// want asks the CN for its progress, unless it was already asked, or has reported that
// it has reached seq. Changes of its list are reported at once.
func (a *session) want(seq log.Seq) {
	a.mu.Lock()
	known := a.watermark.Far() >= seq
	a.mu.Unlock()
	if !known && a.raiseWanted(seq) {
		a.wake(wakeWanted)
	}
}

// raiseWanted records that the CN is to be asked for its progress at seq, and reports
// whether it was not to be asked for it or more before.
func (a *session) raiseWanted(seq log.Seq) bool {
	for old := a.wanted.Load(); old < uint64(seq); old = a.wanted.Load() {
		if a.wanted.CompareAndSwap(old, uint64(seq)) {
			return true
		}
	}
	return false
}

// sample reports whether the CN is to be asked for its progress at seq because the time
// until it is there is measured.
func (a *session) sample(seq log.Seq) bool { return a.node.Sample(seq) && a.raiseWanted(seq) }

// newer reports whether a is of a later incarnation or session than b.
func (a *session) newer(b *session) bool {
	if a.incarnation != b.incarnation {
		return a.incarnation > b.incarnation
	}
	return a.number > b.number
}

// countRepaired counts a scope that is sent again.
func (a *session) countRepaired() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.repaired++
}

// setSent records a bookmark. It is called before the CN can get it.
func (a *session) setSent(seq log.Seq, chain log.ChainPrefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = seq
	a.verifier.sent(seq, chain)
}

// setReset records that everything is sent again.
func (a *session) setReset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verifier.restart()
}

// live returns the session in the form for the leader. The caller holds the lock, or
// has the only reference.
func (a *session) live() liveness.Session {
	w := &a.watermark
	return liveness.Session{
		CN: a.cn, Incarnation: a.incarnation, Number: a.number,
		Log: w.Log.Cluster, Sent: a.sent, Applied: w.Applied, Programmed: w.Programmed, Failing: w.Failing,
		Reached: w.Reached, List: w.List, Waits: w.Waits, Held: a.condition.Hold != "", Checked: w.Checked, Mismatches: w.Mismatches, Resets: w.Resets, LastReset: uint8(w.LastReset),
	}
}

// whyDisbelieved returns why the CN's report cannot be true.
func (a *session) whyDisbelieved() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "the watermark cannot be right: " + a.untrue.Error()
}

// sessions holds the newest session of each CN with this server. It is soft state
// (SAFETY B1). table receives every change. A session that is older than one that table
// remembers does not count.
type sessions struct {
	table *liveness.Table

	mu     sync.Mutex // protects newest
	newest map[log.UUID]*session
}

func newSessions(table *liveness.Table) *sessions {
	return &sessions{table: table, newest: make(map[log.UUID]*session)}
}

// take accepts a watermark, or returns why it cannot be true: then the session counts
// as ended at once, and its last values are discarded.
func (g *sessions) take(a *session, w feed.Watermark) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.verifier.begun {
		w = withList(a.early, w)
		a.early = &w
		return nil
	}
	return g.takeLocked(a, w)
}

func (g *sessions) takeLocked(a *session, w feed.Watermark) error {
	if a.untrue != nil {
		return a.untrue
	}
	w, a.untrue = a.verifier.verify(withList(&a.watermark, w))
	now := a.live()
	if now.Gone = a.untrue != nil; !now.Gone {
		a.watermark = w
		now = a.live()
		if w.Log.Cluster == a.verifier.cluster {
			a.node.Said(&w)
		}
	}
	g.table.Put(now)
	return a.untrue
}

// begin records which log is sent and whether it has the hello's cursor. It returns why
// the watermark that waited for this cannot be true.
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

// noteFrame records the time of a frame.
func (g *sessions) noteFrame(a *session) {
	a.mu.Lock()
	a.lastFrame = time.Now()
	a.mu.Unlock()
	g.table.Touch(a.cn, a.incarnation, a.number)
}

// add registers a session, and ends an older one of the same CN. It returns false if a
// newer one or the same one is registered.
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

// remove forgets a session, unless another one has replaced it.
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

// nodes returns the measures of the sessions.
func (g *sessions) nodes() map[log.UUID]*nodemetrics.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	nodes := make(map[log.UUID]*nodemetrics.Node, len(g.newest))
	for cn, s := range g.newest {
		nodes[cn] = s.node
	}
	return nodes
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

// want asks CNs for their progress, because a barrier waits until they have programmed
// seq; all CNs if none are named.
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
