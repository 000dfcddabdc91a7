package liveness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Query is a barrier: wait until every CN that is interested in one of the
// scopes has programmed Seq, or all of it that Concern names.
type Query struct {
	Seq     log.Seq       `json:"seq"`
	Scopes  []log.Scope   `json:"scopes"`
	Timeout time.Duration `json:"timeout_ns"`
	// Concern is which objects of these kernels count; nil: all of them. A leader of an
	// earlier version waits for all.
	Concern *Concern `json:"concern,omitempty"`
}

// Verdict is the result of a barrier.
type Verdict struct {
	Done    bool          `json:"done"`
	Seq     log.Seq       `json:"seq"`
	CNs     int           `json:"cns"`       // in whose interest one of the scopes is
	Waited  time.Duration `json:"waited_ns"` // until it was done or timed out
	Missing []Laggard     `json:"missing"`   // at most MaxLaggards, sorted; empty when done
	Total   int           `json:"missing_total"`
	// Reason says why it is not done, if the cause is not a CN.
	Reason string `json:"reason,omitempty"`
	// Absent is what is concerned and not there because its VM is not to run; nothing
	// waits for it. At most MaxAbsent objects of AbsentTotal, by CN.
	Absent      []Waiting `json:"absent,omitempty"`
	AbsentTotal int       `json:"absent_total,omitempty"`
}

// Laggard is a CN that has not programmed what is waited for.
type Laggard struct {
	CN         log.UUID `json:"cn_uuid"`
	Hostname   string   `json:"hostname,omitempty"`
	Server     string   `json:"server,omitempty"` // that has its session
	Applied    log.Seq  `json:"applied"`
	Programmed log.Seq  `json:"programmed"`
	AgeMS      int64    `json:"heard_ms"` // since the last sign of it; -1: none since this leader was elected
	Reason     string   `json:"reason"`
	// Objects are those that it lacks, if only they are missing: at most maxObjects of
	// Waiting.
	Objects []Waiting `json:"objects,omitempty"`
	Waiting int       `json:"objects_total,omitempty"`
}

// Bounds of a barrier.
const (
	MaxLaggards = 100
	MaxTimeout  = 10 * time.Minute
	MinTimeout  = 100 * time.Millisecond // every server must be asked once
	// waitSlice is how long the leader holds one request of another server. That server
	// then asks again, so that a barrier outlives a leader.
	waitSlice = 2 * time.Second
)

// Wait waits until every interested CN has programmed q.Seq, or until q.Timeout: then
// the verdict is not Done and names the missing CNs. A CN of which nothing is known is
// missing. Errors: ctx's, and ErrNoLeader if there was no leader until the end.
func (f *Fabric) Wait(ctx context.Context, q Query) (Verdict, error) {
	began := time.Now()
	q.Timeout = min(max(q.Timeout, MinTimeout), MaxTimeout)
	var last Verdict
	err := fmt.Errorf("%w in %s", ErrNoLeader, q.Timeout)
	for first := true; first || time.Since(began) < q.Timeout; first = false {
		slice := q
		slice.Timeout = min(max(q.Timeout-time.Since(began), MinTimeout), waitSlice)
		moved := f.cfg.Peers.LeaderMoved()
		v, sliceErr := f.ask(ctx, slice)
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		if sliceErr == nil {
			last, err = v, nil
			if v.Done {
				break
			}
			continue
		}
		if last.Seq == 0 {
			err = sliceErr
		}
		again := time.NewTimer(askAgain)
		select {
		case <-moved:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
	last.Waited = time.Since(began)
	return last, err
}

// ask asks the leader to wait.
func (f *Fabric) ask(ctx context.Context, q Query) (v Verdict, err error) {
	if r := f.current(); r != nil {
		return r.wait(ctx, q)
	}
	body, err := json.Marshal(q)
	if err != nil {
		return v, err
	}
	asking, cancel := context.WithTimeout(ctx, q.Timeout+askWithin)
	defer cancel()
	b, err := f.cfg.Peers.Ask(asking, "", append([]byte{askWait}, body...))
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
}

func (f *Fabric) answerWait(ctx context.Context, body []byte) ([]byte, error) {
	var q Query
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("liveness: query: %w: %w", log.ErrFormat, err)
	}
	r := f.current()
	if r == nil {
		return nil, ErrNoLeader
	}
	q.Timeout = min(q.Timeout, waitSlice)
	v, err := r.wait(ctx, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// wait waits on the leader (SAFETY B2): first for a barrier of Raft in its term, then
// until everything up to the seq is applied, then for watermarks that were asked for
// after that.
func (r *leaderTerm) wait(ctx context.Context, q Query) (Verdict, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	v := Verdict{Seq: q.Seq, Missing: []Laggard{}}
	if _, err := r.cfg.Store.Consistent(ctx); err != nil {
		return v, fmt.Errorf("%w: the leader could not confirm itself: %w", ErrNoLeader, err)
	}
	if err := r.cfg.Store.WaitSeq(ctx, q.Seq); err != nil {
		v.Reason, v.Waited = "the log has not reached it: its head is "+r.cfg.Store.Head().Seq.String(), time.Since(began)
		return v, nil
	}
	concerned := concernOf(&q)
	r.look(q, concerned, nil) // records whom the servers must ask
	asked := r.beginWait()
	defer r.endWait()
	for {
		if term, leads := r.cfg.Peers.Leading(); !leads || term != r.term {
			return v, ErrNoLeader
		}
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		v = r.look(q, concerned, asked)
		if v.Done {
			v.Waited = time.Since(began)
			return v, nil
		}
		select {
		case <-changed:
		case <-r.over:
			return v, ErrNoLeader
		case <-ctx.Done():
			v.Waited = time.Since(began)
			return v, nil
		}
	}
}

// beginWait makes the servers ask their CNs at once, and returns the number of
// questions so far: only answers to later questions count.
func (r *leaderTerm) beginWait() map[*view]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters++
	asked := make(map[*view]uint64, len(r.views))
	for _, v := range r.views {
		v.needed = v.begun
		asked[v] = v.begun
		if v.takeBack != nil {
			v.takeBack()
		}
	}
	return asked
}

func (r *leaderTerm) endWait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiters--; r.waiters == 0 {
		clear(r.wants)
	}
}

// look checks all interested CNs once, with the present interest.
func (r *leaderTerm) look(q Query, concerned *concern, asked map[*view]uint64) Verdict {
	v := Verdict{Seq: q.Seq, Missing: []Laggard{}}
	interested := make(map[log.UUID]string)
	var strangers []log.UUID // CNs without an object in the log
	var cluster log.UUID
	r.cfg.Store.View(func(state *projections.State, head log.Cursor) {
		cluster = head.Cluster
		for _, scope := range q.Scopes {
			for _, cn := range state.CNs(scope) {
				if !isKnown(state, cn) {
					strangers = append(strangers, cn)
				} else if _, done := interested[cn]; !done {
					interested[cn] = hostname(state, cn)
				}
			}
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cn := range strangers {
		// If it is present all the same, it must remove what it had.
		if s := r.cns[cn]; s != nil && !s.session.Gone {
			interested[cn] = ""
		}
	}
	v.CNs = len(interested)
	now := r.now()
	settled := r.settled(asked)
	for cn, name := range interested {
		l := Laggard{CN: cn, Hostname: name, AgeMS: -1}
		if l.Reason = r.lacks(&l, q.Seq, cluster, now, settled); l.Reason == "" && l.Programmed < q.Seq {
			waited, idle := concerned.held(&r.cns[cn].session)
			if v.absent(&l, idle); len(waited) > 0 {
				l.Reason = l.name(waited)
			}
		}
		if l.Reason != "" {
			v.Missing = append(v.Missing, l)
			if s := r.cns[cn]; l.Programmed < q.Seq && (s == nil || s.session.Log != cluster || s.session.far() < q.Seq) {
				r.wants[cn] = max(r.wants[cn], q.Seq)
			}
		}
	}
	v.cut()
	slices.SortFunc(v.Missing, func(a, b Laggard) int {
		return cmp.Or(cmp.Compare(a.Programmed, b.Programmed), slices.Compare(a.CN[:], b.CN[:]))
	})
	v.Total = len(v.Missing)
	v.Missing = v.Missing[:min(v.Total, MaxLaggards)]
	v.Reason = settled
	v.Done = v.Total == 0 && settled == ""
	return v
}

// isKnown reports whether the log has the CN at all. The scope of a deleted CN counts
// in no barrier, unless the CN has a session.
func isKnown(state *projections.State, cn log.UUID) bool {
	if _, ok := state.Get(log.KindServer, cn.String()); ok {
		return true
	}
	return len(state.Interest(cn)) > len([]log.Scope{log.AllScope(), log.CNScope(cn)})
}

func hostname(state *projections.State, cn log.UUID) string {
	if rec, ok := state.Get(log.KindServer, cn.String()); ok {
		return rec.Object.(*log.Server).Hostname
	}
	return ""
}

// settled returns which server has not been asked since the wait began, or "". Until
// then there may be a newer session than the known ones. A server that does not answer
// delays a barrier only by the CNs whose sessions it has. The caller holds the lock.
func (r *leaderTerm) settled(asked map[*view]uint64) string {
	if len(r.views) == 0 {
		return "no server has been asked yet"
	}
	for _, v := range r.views {
		if v.failure == "" && !v.complete {
			return "server " + v.member.ID + " has not told its sessions yet"
		}
		if v.asked <= asked[v] {
			return "server " + v.member.ID + " is being asked"
		}
	}
	return ""
}

// lacks returns why a CN does not count as done, or "" if it does, except perhaps for
// objects of its list. The caller holds the lock.
func (r *leaderTerm) lacks(l *Laggard, seq log.Seq, cluster log.UUID, now time.Duration, settled string) string {
	s := r.cns[l.CN]
	if s == nil {
		if settled != "" {
			return settled
		}
		return "it has no session with any server"
	}
	age := now - s.at
	l.Server, l.AgeMS = s.server, age.Milliseconds()
	session := &s.session
	if session.Log == cluster {
		l.Applied, l.Programmed = session.Applied, session.Programmed
	}
	v := r.views[s.server]
	row, told := Reported{}, false
	if v != nil {
		row, told = v.sessions[l.CN]
	}
	switch {
	case session.Gone:
		return "its session has ended"
	case v == nil:
		return "its server " + s.server + " has left the cluster"
	case v.failure != "":
		return "its server " + s.server + " does not answer: " + v.failure
	case !told || row.Compare(session) != 0:
		return "its server " + s.server + " has lost its session"
	case settled != "":
		return settled
	case session.Log.IsZero():
		return "it has not said yet how far it is"
	case session.Log != cluster:
		return "it follows another log"
	case session.far() > session.Sent: // its server must have ended it (SAFETY B4); one of an earlier version does not
		return "it says that it is further than it was sent"
	case session.Held:
		return "it holds back what the log says, since that takes too much away: rutter cn accept " + l.CN.String() + " lets it"
	case session.far() >= seq: // the caller looks at what is left
		return ""
	case session.Failing > 0:
		return fmt.Sprintf("its kernel refuses %d steps", session.Failing)
	case session.Applied < seq:
		return "it has not received it"
	}
	return "its kernel is not there yet"
}
