package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"rutter/log"
)

// view is what one server said of its sessions.
type view struct {
	member Member
	drop   context.CancelFunc // ends the gathering
	ctx    context.Context    // of the gathering

	// The rest is protected by the term's lock.
	run, version uint64
	sessions     map[log.UUID]Reported
	complete     bool          // it has told all its sessions once
	fresh        time.Duration // steady time of the last question that was answered
	begun        uint64        // questions put so far
	asked        uint64        // the last of them that is over, answered or not
	needed       uint64        // a barrier waits for what is asked after this one
	takeBack     func()        // gives up the question that a server holds back; nil if there is none
	failure      string        // of the last; "" if it was answered
}

// seen is what the term remembers of a CN: its newest session, and when that
// was last known to be there. It survives the server that told of it.
type seen struct {
	session Session
	at      time.Duration // steady
	since   time.Duration // steady, from when it has been there without a pause; judged by Settle
	server  string
}

// leaderTerm is the time of one leader: from its election it gathers anew.
type leaderTerm struct {
	cfg  Config
	term uint64

	over chan struct{} // closed at the end

	mu      sync.Mutex // protects what follows
	views   map[string]*view
	cns     map[log.UUID]*seen
	beats   map[log.UUID]*lastBeats // of CNs without an agent of ours
	last    time.Time               // when steady was last moved
	steady  time.Duration           // since the term began, as long as the process was not stopped and the clock did not jump
	waiters int
	wants   map[log.UUID]log.Seq // what the CNs that are waited for lack; empty while no barrier waits
	changed chan struct{}        // closed at each answer
}

func newLeaderTerm(cfg Config, term uint64) *leaderTerm {
	return &leaderTerm{
		cfg: cfg, term: term, views: make(map[string]*view), cns: make(map[log.UUID]*seen), beats: make(map[log.UUID]*lastBeats), wants: make(map[log.UUID]log.Seq), last: cfg.Now(),
		changed: make(chan struct{}), over: make(chan struct{}),
	}
}

func (r *leaderTerm) end() { close(r.over) }

// now moves and returns the steady time. A step of the clock counts for at most
// two rounds, and one backwards for nothing: a process that was stopped, or a
// clock that was set, must not let leases run out (nor can it keep them alive).
// The caller holds the lock.
func (r *leaderTerm) now() time.Duration {
	now := r.cfg.Now()
	r.steady += min(max(now.Sub(r.last), 0), 2*r.cfg.Every)
	r.last = now
	return r.steady
}

// members adjusts the views to who belongs to the cluster, and returns the new
// ones, whose sessions are to be gathered.
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

// gather asks one server for its sessions until it left the cluster or the term ends.
func (r *leaderTerm) gather(v *view) {
	defer v.drop()
	var atLeast time.Duration // the first question is answered at once
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

// ask puts one question. It is answered after atLeast; while a barrier waits, at
// once, and then at each change. more means that the next is due at once.
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
		return true, nil // it is asked anew, for a barrier that came meanwhile
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

// wanted returns what a server's CNs are to be asked for: those whose newest
// session it has, and those that no server knows. The caller holds the lock.
func (r *leaderTerm) wanted(v *view) (seq log.Seq, cns []log.UUID) {
	for cn, lacks := range r.wants {
		s := r.cns[cn]
		if s != nil && s.session.Programmed >= lacks {
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

func (r *leaderTerm) question(ctx context.Context, m Member, p poll) (*answer, error) {
	if m.ID == r.cfg.Peers.Self() {
		return r.cfg.Table.poll(ctx, p), ctx.Err()
	}
	b, err := r.cfg.Peers.Ask(ctx, m.Address, append([]byte{askSessions}, p.encode()...))
	if err != nil {
		return nil, err
	}
	return decodeAnswer(b)
}

// take puts what a server said at a steady time. The caller holds the lock.
func (r *leaderTerm) take(v *view, a *answer, at time.Duration) {
	if a.full {
		clear(v.sessions)
	}
	v.run, v.version = a.run, a.version
	v.complete = v.complete || !a.more
	for _, row := range a.rows {
		v.sessions[row.CN] = row
		r.see(v, row, at)
	}
}

// see notes a session that a server told of. Only the newest of a CN counts.
// The caller holds the lock.
func (r *leaderTerm) see(v *view, row Reported, at time.Duration) {
	known := r.cns[row.CN]
	if known == nil || known.session.Compare(&row.Session) < 0 {
		// A CN that moves keeps its time: it is as much there as before. Another
		// is there since it was told of: it may have come only now.
		since := r.steady
		if known != nil && !known.session.Gone {
			since = known.since
		}
		known = &seen{at: -r.cfg.Lease, since: since}
		r.cns[row.CN] = known
	} else if known.session.Compare(&row.Session) > 0 {
		return // of an older session: it is no news
	}
	known.session, known.server = row.Session, v.member.ID
	if !row.Gone {
		known.at = max(known.at, at)
	} else {
		known.at = max(known.at, at-row.Silent)
	}
}

// alive reports whether the newest session of a CN is there, as far as its
// server has said lately. The caller holds the lock.
func (r *leaderTerm) alive(s *seen, now time.Duration) bool {
	v := r.views[s.server]
	if s.session.Gone || v == nil || !v.complete || v.failure != "" || now-v.fresh > 3*r.cfg.Every {
		return false
	}
	row, told := v.sessions[s.session.CN] // a server that was started anew has none
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
