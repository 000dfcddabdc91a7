package world

import (
	"context"
	"time"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// sampler looks at servers until ctx ends.
func (w *world) sampler(ctx context.Context) {
	for ctx.Err() == nil {
		w.sample()
		pause(ctx, time.Second)
	}
}

// sample looks at all servers once.
func (w *world) sample() {
	for _, s := range w.servers {
		w.look(s)
		w.points(s)
	}
	w.gather()
}

// look records a server's position.
func (w *world) look(s *server) (e seen.Server, ok bool) {
	store := s.store()
	if store == nil {
		return e, false
	}
	before := store.Status()
	st := store.Status()
	// Status reads raft's state before its term: a server that led in a term may be told of a new
	// one between. Only if the term was the same before and after did it lead in that term.
	leads := st.State == "Leader" && st.Term == before.Term
	e = seen.Server{Applied: st.Applied, Head: st.Head, Term: st.Term, Leads: leads, Leader: st.LeaderID, Ready: st.NotReady, Lag: st.LagEvents, Features: st.Feature}
	if st.Diverged != "" {
		w.fail("%s serves no more at %v: %s", s.name, w.seen.Since(time.Now()), st.Diverged)
	}
	w.seen.Add(s.name, e)
	return e, true
}

// points records the digests of a server's state at all raft indexes since the last look.
func (w *world) points(s *server) {
	store := s.store()
	if store == nil {
		return
	}
	s.mu.Lock()
	if s.looked != store {
		s.looked, s.pointed = store, 0
	}
	after := s.pointed
	s.mu.Unlock()
	for _, p := range store.Points(after) {
		e := seen.State{Applied: p.Index, Seq: p.Seq}
		copy(e.Digest[:], p.Digest[:])
		w.seen.Add(s.name, e)
		after = p.Index
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pointed = after
}

// witness is the cluster's log as it was read while it was written: servers delete its begin.
type witness struct {
	timeline int
	entries  []log.Entry
}

// gather reads what is new in the log, from a server that has it.
func (w *world) gather() {
	for _, s := range w.servers {
		store, timeline := s.store(), w.timeline()
		if store == nil {
			continue
		}
		p := &w.past
		if p.timeline != timeline { // what the backup had stays
			p.timeline = timeline
			p.entries = p.entries[:min(len(p.entries), int(w.backedUp()))]
		}
		for {
			more, err := store.Entries(log.Seq(len(p.entries)), 1000)
			if err != nil || len(more) == 0 || timeline != w.timeline() || s.store() != store {
				break
			}
			if more[0].Seq != log.Seq(len(p.entries))+1 {
				w.count("witness has a gap", 1)
				break
			}
			p.entries = append(p.entries, more...)
		}
	}
}

// backedUp is the lowest head to which the cluster was restored.
func (w *world) backedUp() log.Seq {
	to, _ := restoredTo(w.seen.Records(), 0)
	return to
}

// tell records the whole log.
func (w *world) tell() {
	w.gather()
	if len(w.past.entries) > 0 {
		w.seen.Add("world", seen.Entries{Floor: 1, Entries: w.past.entries})
	}
}
