package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"rutter/log"
)

// view is what one server reported of its sessions.
type view struct {
	member Member
	drop   context.CancelFunc // ends its goroutine
	ctx    context.Context    // of its goroutine

	// The rest is protected by the term's lock.
	run, version uint64
	sessions     map[log.UUID]Reported
	complete     bool          // it has reported all its sessions once
	fresh        time.Duration // steady time of the last answered question
	begun        uint64        // questions sent so far
	asked        uint64        // the last question that is over, answered or not
	needed       uint64        // a barrier waits for the answer to a later question than this
	takeBack     func()        // cancels the question that a server holds back; nil if there is none
	failure      string        // of the last question; "" if it was answered
}

// seen is what the term remembers of a CN: its newest session, and when it was last
// known to be present. It remains when the server that reported it fails.
type seen struct {
	session Session
	at      time.Duration // steady time
	since   time.Duration // steady time since which it is present without a gap; compared with Settle
	server  string
}

// leaderTerm is the time of one leader. After its election it gathers everything again.
type leaderTerm struct {
	cfg  Config
	term uint64

	over chan struct{} // closed at the end

	mu      sync.Mutex // protects what follows
	views   map[string]*view
	cns     map[log.UUID]*seen
	beats   map[log.UUID]*lastBeats // of CNs without a Rutter agent
	last    time.Time               // when steady was last advanced
	steady  time.Duration           // since the term began, without stops of the process and jumps of the clock
	waiters int
	wants   map[log.UUID]log.Seq // what a barrier needs of each CN; empty while no barrier waits
	changed chan struct{}        // closed at each answer
}

func newLeaderTerm(cfg Config, term uint64) *leaderTerm {
	return &leaderTerm{
		cfg: cfg, term: term, views: make(map[string]*view), cns: make(map[log.UUID]*seen), beats: make(map[log.UUID]*lastBeats), wants: make(map[log.UUID]log.Seq), last: cfg.Now(),
		changed: make(chan struct{}), over: make(chan struct{}),
	}
}

func (r *leaderTerm) end() { close(r.over) }

// now advances and returns the steady time. A forward step of the clock counts for at
// most two rounds, and a backward step for nothing: a stopped process or a changed
// clock must not end leases, and cannot extend them. The caller holds the lock.
func (r *leaderTerm) now() time.Duration {
	now := r.cfg.Now()
	r.steady += min(max(now.Sub(r.last), 0), 2*r.cfg.Every)
	r.last = now
	return r.steady
}

// members adjusts the views to the members of the cluster, and returns the new ones,
// whose sessions must be gathered.
func (r *leaderTerm) members(ctx context.Context, members []Member) (fresh []*view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, v := range r.views {
		if !slices.Contains(members, v.member) {
			v.drop()
			delete(r.views, id)
		}
	}
	for _, m := range members {
		if r.views[m.ID] == nil {
			v := &view{member: m, sessions: make(map[log.UUID]Reported)}
			v.ctx, v.drop = context.WithCancel(ctx)
			r.views[m.ID] = v
			fresh = append(fresh, v)
		}
	}
	return fresh
}

// gather asks one server for its sessions until it leaves the cluster or the term ends.
func (r *leaderTerm) gather(v *view) {
	defer v.drop()
	var atLeast time.Duration // the first question needs an answer at once
	for v.ctx.Err() == nil {
		more, err := r.ask(v, atLeast)
		switch {
		case err != nil:
			pause(v.ctx, askAgain)
			fallthrough
		case more:
			atLeast = 0
		default:
			atLeast = r.cfg.Every
		}
	}
}

// ask sends one question. The server answers after atLeast; while a barrier waits, at
// once and then at each change. more: the next question is due at once.
func (r *leaderTerm) ask(v *view, atLeast time.Duration) (more bool, err error) {
	asking, cancel := context.WithTimeout(v.ctx, askWithin+r.cfg.Every)
	defer cancel()
	r.mu.Lock()
	began := r.now()
	p := poll{run: v.run, since: v.version, atLeast: atLeast, atMost: atLeast}
	switch {
	case v.begun <= v.needed:
		p.atLeast, p.atMost = 0, 0
	case r.waiters > 0:
		p.atLeast, p.atMost = hurryGap, hurryHold
	}
	p.wanted, p.cns = r.wanted(v)
	v.begun++
	number, taken := v.begun, false
	if p.atMost > 0 {
		v.takeBack = func() { taken = true; cancel() }
	}
	r.mu.Unlock()
	a, err := r.question(asking, v.member, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	v.takeBack = nil
	if err != nil && taken {
		return true, nil // it is asked again, for a barrier that came meanwhile
	}
	v.asked = number
	close(r.changed)
	r.changed = make(chan struct{})
	if err != nil {
		v.failure = err.Error()
		return false, err
	}
	v.failure, v.fresh = "", began
	r.take(v, a, began)
	return a.more, nil
}

// wanted returns what a server must ask its CNs for: those whose newest session it has,
// and those without a known session. The caller holds the lock.
func (r *leaderTerm) wanted(v *view) (seq log.Seq, cns []log.UUID) {
	for cn, lacks := range r.wants {
		s := r.cns[cn]
		if s != nil && s.session.far() >= lacks {
			delete(r.wants, cn)
			continue
		}
		if s == nil || s.server == v.member.ID {
			seq, cns = max(seq, lacks), append(cns, cn)
		}
	}
	if len(cns) > MaxWanted {
		cns = nil
	}
	return seq, cns
}

func (r *leaderTerm) question(ctx context.Context, m Member, p poll) (*pollAnswer, error) {
	if m.ID == r.cfg.Peers.Self() {
		return r.cfg.Table.poll(ctx, p), ctx.Err()
	}
	b, err := r.cfg.Peers.Ask(ctx, m.Address, append([]byte{askSessions}, p.encode()...))
	if err != nil {
		return nil, err
	}
	return decodeAnswer(b)
}

// take stores a server's answer with its steady time. The caller holds the lock.
func (r *leaderTerm) take(v *view, a *pollAnswer, at time.Duration) {
	if a.full {
		clear(v.sessions)
	}
	v.run, v.version = a.run, a.version
	v.complete = v.complete || !a.more
	for _, row := range a.rows {
		if !row.listed && row.List != 0 {
			if known, is := v.sessions[row.CN]; is && known.List == row.List && known.Compare(&row.Session) == 0 {
				row.Waits = known.Waits
			} else { // it cannot be: only Programmed counts
				row.List, row.Reached = 0, 0
			}
		}
		v.sessions[row.CN] = row
		r.see(v, row, at)
	}
}

// see stores a reported session. Only the newest of a CN counts. The caller holds the
// lock.
func (r *leaderTerm) see(v *view, row Reported, at time.Duration) {
	known := r.cns[row.CN]
	if known == nil || known.session.Compare(&row.Session) < 0 {
		// A CN that moves to another server keeps its time, because it was present all
		// along. Another CN counts from its report: it may have come just now.
		since := r.steady
		if known != nil && !known.session.Gone {
			since = known.since
		}
		known = &seen{at: -r.cfg.Lease, since: since}
		r.cns[row.CN] = known
	} else if known.session.Compare(&row.Session) > 0 {
		return // of an older session
	}
	known.session, known.server = row.Session, v.member.ID
	if !row.Gone {
		known.at = max(known.at, at)
	} else {
		known.at = max(known.at, at-row.Silent)
	}
}

// alive reports whether the newest session of a CN is present by its server's recent
// answers. The caller holds the lock.
func (r *leaderTerm) alive(s *seen, now time.Duration) bool {
	v := r.views[s.server]
	if s.session.Gone || v == nil || !v.complete || v.failure != "" || now-v.fresh > 3*r.cfg.Every {
		return false
	}
	row, told := v.sessions[s.session.CN] // a restarted server has none
	return told && row.Compare(&s.session) == 0
}

// sorted returns the keys in order.
func sorted[V any](set map[log.UUID]V) []log.UUID {
	cns := make([]log.UUID, 0, len(set))
	for cn := range set {
		cns = append(cns, cn)
	}
	slices.SortFunc(cns, log.UUID.Compare)
	return cns
}
