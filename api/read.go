package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// parameters are a query whose names were checked.
type parameters struct{ values url.Values }

// freshness are the query parameters that every read takes.
var freshness = []string{"consistent", "min_seq"}

// query returns the request's query, or an error if it has a parameter that is
// neither among allowed nor about freshness, or one twice.
func query(r *http.Request, allowed ...string) (parameters, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return parameters{}, fail(http.StatusBadRequest, codeBadRequest, "encode it as name=value&name=value", "the query cannot be read: %v", err)
	}
	allowed = append(slices.Clone(allowed), freshness...)
	slices.Sort(allowed)
	bad := &answerError{status: http.StatusUnprocessableEntity, Code: log.CodeInvalidParameters, Message: "Invalid parameters"}
	for _, name := range sortedNames(values) {
		switch {
		case !slices.Contains(allowed, name):
			bad.Errors = append(bad.Errors, log.FieldError{
				Field: name, Code: log.ElementUnknown, Message: "unknown query parameter",
				Remedy: "leave it out, or use one of: " + strings.Join(allowed, ", "),
			})
		case len(values[name]) > 1:
			bad.Errors = append(bad.Errors, log.FieldError{
				Field: name, Code: log.ElementInvalid, Message: "given more than once", Remedy: "give it once; lists are parted by commas",
			})
		}
	}
	if bad.Errors != nil {
		return parameters{}, bad
	}
	return parameters{values}, nil
}

func sortedNames(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p parameters) has(name string) bool    { return p.values.Has(name) }
func (p parameters) text(name string) string { return p.values.Get(name) }

// number returns a parameter between low and high, or def if it is not given.
func (p parameters) number(name string, def, low, high uint64) (uint64, error) {
	if !p.has(name) {
		return def, nil
	}
	n, err := strconv.ParseUint(p.text(name), 10, 64)
	if err != nil || n < low || n > high {
		return 0, badParameter(name, log.ElementInvalid, "send a whole number from "+strconv.FormatUint(low, 10)+" to "+strconv.FormatUint(high, 10), "got %q", p.text(name))
	}
	return n, nil
}

// flag returns a parameter that is on when it stands alone or is true or 1.
func (p parameters) flag(name string) (bool, error) {
	if !p.has(name) {
		return false, nil
	}
	switch p.text(name) {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, badParameter(name, log.ElementInvalid, "send "+name+" alone, or true or false", "got %q", p.text(name))
}

// fresh waits as the query's consistent and min_seq ask, and until this server
// has what it has acknowledged itself: whoever writes and then reads here finds
// what they wrote.
//
// A server whose state differs from the others' answers nothing from it
// (DESIGN section 2, rule 3).
func (s *Server) fresh(r *http.Request, p parameters) error {
	if err := s.store.Serving(); err != nil {
		return fail(http.StatusServiceUnavailable, codeNotReady, "ask another server, and have this one rebuilt: rutter cluster rebuild", "this server shows nothing of its state: %v", err)
	}
	consistent, err := p.flag("consistent")
	if err != nil {
		return err
	}
	named, err := seqParameter(r.Context(), s.store, p, "min_seq")
	if err != nil {
		return err
	}
	least := max(uint64(named), s.answered.Load())
	if !consistent && uint64(s.store.Head().Seq) >= least {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
	defer cancel()
	if consistent {
		if _, err := s.store.Consistent(ctx); err != nil {
			return fail(http.StatusServiceUnavailable, codeNoLeader, "try again, or read without ?consistent", "no leader confirmed in %s that this server is up to date: %v", waitTime, err)
		}
	}
	if err := s.store.WaitSeq(ctx, log.Seq(least)); err != nil {
		return fail(http.StatusServiceUnavailable, codeNotYet, "try again, or another server", "this server is at seq %d and did not reach %d in %s", s.store.Head().Seq, least, waitTime)
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
func (s *Server) inSlices(w http.ResponseWriter, r *http.Request, p parameters, part PastPart, walk projections.Walk, look func(*projections.State, projections.Record), more func() bool) error {
	var last log.Object
	slice := func(state *projections.State) (ended bool) {
		seen := 0
		defer func() { s.accountsOf(r.Context()).look(seen) }()
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
		if p.has("at") {
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
