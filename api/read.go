package api

import (
	"context"
	"net/http"
	"strconv"

	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// fresh waits as the query's consistent and min_seq ask, and until this server
// has what it has acknowledged itself: whoever writes and then reads here finds
// what they wrote.
//
// A server whose state differs from the others' answers nothing from it
// (DESIGN section 2, rule 3).
func (s *Server) fresh(r *http.Request, p rest.Parameters) error {
	if err := s.store.Serving(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "ask another server, and have this one rebuilt: rutter cluster rebuild", "this server shows nothing of its state: %v", err)
	}
	consistent, err := p.Flag("consistent")
	if err != nil {
		return err
	}
	named, err := seqParameter(r.Context(), s.store, p, "min_seq")
	if err != nil {
		return err
	}
	least := max(uint64(named), uint64(s.answered.Seq()))
	if !consistent && uint64(s.store.Head().Seq) >= least {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
	defer cancel()
	if consistent {
		if _, err := s.store.Consistent(ctx); err != nil {
			return rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again, or read without ?consistent", "no leader confirmed in %s that this server is up to date: %v", waitTime, err)
		}
	}
	if err := s.store.WaitSeq(ctx, log.Seq(least)); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "try again, or another server", "this server is at seq %d and did not reach %d in %s", s.store.Head().Seq, least, waitTime)
	}
	return nil
}

// view calls fn with the state, and sets the headers that say how fresh it is.
func (s *Server) view(w http.ResponseWriter, fn func(state *projections.State)) {
	s.store.View(func(state *projections.State, head log.Cursor) {
		setPlace(w, head)
		fn(state)
	})
	if s.cfg.Age != nil {
		w.Header().Set(headerAge, strconv.FormatInt(s.cfg.Age().Milliseconds(), 10))
	}
}

// inSlices calls look with the records of a walk, in order, and holds the state
// still for sliceRows of them at a time, so that no write waits for a long list.
// more is called after each slice, while nothing is held, and says whether to go
// on. An object comes once at most. The answer says the seq of the first slice:
// who reads the log from there misses nothing of those after it.
func (s *Server) inSlices(w http.ResponseWriter, r *http.Request, p rest.Parameters, part PastPart, walk projections.Walk, look func(*projections.State, projections.Record), more func() bool) error {
	var last log.Object
	slice := func(state *projections.State) (ended bool) {
		seen := 0
		defer func() { s.guard.AccountsOf(r.Context()).Look(seen) }()
		for rec := range state.Walk(walk, last) {
			if seen == sliceRows {
				return false
			}
			look(state, rec)
			last = rec.Object
			seen++
		}
		return true
	}
	var past *projections.State
	ended := false
	if err := s.viewAt(w, r, p, part, func(state *projections.State) {
		ended = slice(state)
		if p.Has("at") {
			past = state // which nobody else has
		}
	}); err != nil {
		return err
	}
	for more() && !ended {
		if err := r.Context().Err(); err != nil {
			return err
		}
		if past != nil {
			ended = slice(past)
		} else {
			s.store.View(func(state *projections.State, _ log.Cursor) { ended = slice(state) })
		}
	}
	return nil
}

func setSeq(w http.ResponseWriter, seq log.Seq) { w.Header().Set(headerSeq, seq.String()) }

// setPlace sets the seq that an answer is as of, and the cursor to follow the log
// from there.
func setPlace(w http.ResponseWriter, at log.Cursor) {
	setSeq(w, at.Seq)
	w.Header().Set(headerCursor, at.String())
}
