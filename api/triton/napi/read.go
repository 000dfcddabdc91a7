package napi

import (
	"net/http"
	"slices"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// fresh waits as the query's consistent and min_seq ask, and until this server has
// applied what this surface acknowledged: a client that writes and then reads here
// finds what it wrote. A server that cannot serve returns an error.
func (s *Service) fresh(r *http.Request) error {
	return s.freshAs(r, r.URL.Query().Has("consistent"))
}

// freshAs is fresh with an explicit choice of consistency.
func (s *Service) freshAs(r *http.Request, consistent bool) error {
	if err := s.store.Serving(); err != nil {
		return fail(http.StatusServiceUnavailable, codeUnavailable, "this server shows nothing of its state: "+err.Error())
	}
	least := uint64(s.acknowledged.Seq())
	if text := r.URL.Query().Get("min_seq"); text != "" {
		seq, err := log.ParseSeq(text)
		if err != nil {
			return invalid(bad("min_seq", "must be a sequence number"))
		}
		least = max(least, uint64(seq))
	}
	if !consistent && uint64(s.store.Head().Seq) >= least {
		return nil
	}
	ctx, cancel := within(r, readTime)
	defer cancel()
	if consistent {
		if _, err := s.store.Consistent(ctx); err != nil {
			return fail(http.StatusServiceUnavailable, codeUnavailable, "no leader confirmed that this server is up to date")
		}
	}
	return s.store.WaitSeq(ctx, log.Seq(least))
}

// find returns an object and, from the same state, what shape makes of it.
func (s *Service) find(kind log.Kind, id, noun string, shape shaper) (rec projections.Record, body any, err error) {
	var ok bool
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok = state.Get(kind, id); ok {
			body = shape(state, rec.Object)
		}
	})
	if !ok {
		return rec, nil, notFound(noun)
	}
	return rec, body, nil
}

// shaper returns the form of an object in an answer, with fields of other objects of
// the same state. It runs while the state is locked, so it only gathers; printing is
// done later.
type shaper func(state *projections.State, o log.Object) any

// answerOne answers with an object.
func (s *Service) answerOne(w http.ResponseWriter, r *http.Request, kind log.Kind, id, noun string, shape shaper) error {
	rec, body, err := s.find(kind, id, noun, shape)
	if err != nil {
		return err
	}
	return answerTagged(w, r, rec.ETag(), body)
}

// answerTagged answers with a form that has an Etag.
func answerTagged(w http.ResponseWriter, r *http.Request, tag string, body any) error {
	w.Header().Set("Etag", tag)
	if rest.IsRead(r) {
		if err := conditions(r, tag); err != nil {
			return err
		}
	}
	if r.Header.Get("If-None-Match") != "" && rest.NotModified(w, r, tag, rest.HasBareTag) {
		return nil
	}
	rest.WriteJSON(w, r, http.StatusOK, body)
	return nil
}

// conditions checks If-Match and, for writes, If-None-Match against an object's tag, in
// restify's words, which have both as they are in the headers.
func conditions(r *http.Request, tag string) error {
	if match := r.Header.Get("If-Match"); match != "" && !rest.HasBareTag(match, tag) {
		return fail(http.StatusPreconditionFailed, log.CodePreconditionFailed, "if-match '"+match+"' didn't match etag '"+tag+"'")
	}
	if none := r.Header.Get("If-None-Match"); none != "" && !rest.IsRead(r) && rest.HasBareTag(none, tag) {
		return fail(http.StatusPreconditionFailed, log.CodePreconditionFailed, "if-none-match '"+none+"' matched etag '"+tag+"'")
	}
	return nil
}

// isConditional reports whether a write has a condition.
func isConditional(r *http.Request) bool {
	return r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
}

// listing says what a list shows.
type listing struct {
	walks         []projections.Walk // of one kind
	match         func(state *projections.State, o log.Object) bool
	shape         shaper
	limit, offset uint64
}

// item is an object found by a list, with its form.
type item struct {
	object log.Object
	form   any
}

// gather returns the forms of a listing. It locks the state only for sliceRows objects
// at a time, so that no write waits for a long list. An object that is not moved comes
// once.
func (s *Service) gather(r *http.Request, l listing) ([]any, error) {
	var found []item
	for _, walk := range l.walks {
		part, err := s.gatherWalk(r, walk, l, len(l.walks) == 1)
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	if len(l.walks) > 1 {
		slices.SortFunc(found, func(a, b item) int { return strings.Compare(a.object.ID(), b.object.ID()) })
		found = slices.CompactFunc(found, func(a, b item) bool { return a.object.ID() == b.object.ID() })
		found = found[min(l.offset, uint64(len(found))):]
		found = found[:min(l.limit, uint64(len(found)))]
	}
	forms := make([]any, len(found))
	for i, it := range found {
		forms[i] = it.form
	}
	return forms, nil
}

// gatherWalk returns the result of one walk: from offset on if it is the only walk,
// else everything up to the end of the page.
func (s *Service) gatherWalk(r *http.Request, walk projections.Walk, l listing, only bool) ([]item, error) {
	skip, limit := l.offset, l.limit
	if !only {
		skip, limit = 0, l.offset+l.limit
	}
	var found []item
	var last log.Object
	for slice, more := 0, true; more; slice++ {
		leave, err := s.yield(r, slice)
		if err != nil {
			return nil, err
		}
		more = false
		s.store.View(func(state *projections.State, _ log.Cursor) {
			seen := 0
			for rec := range state.Walk(walk, last) {
				if seen == sliceRows {
					more = true
					return
				}
				seen++
				last = rec.Object
				if l.match != nil && !l.match(state, rec.Object) {
					continue
				}
				if skip > 0 {
					skip--
					continue
				}
				found = append(found, item{rec.Object, l.shape(state, rec.Object)})
				if uint64(len(found)) == limit {
					return
				}
			}
		})
		leave()
	}
	return found, nil
}

// yield lets other goroutines run between two slices of a list. A long list rests after
// each slice, and all long lists of a server take turns. Together they use only a part
// of one processor, so that a write finds a free one. leave is called when the slice is
// done.
func (s *Service) yield(r *http.Request, slice int) (leave func(), err error) {
	if slice < shortSlices {
		return func() {}, nil
	}
	select {
	case s.long <- struct{}{}:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return func() {
		_ = pause(r.Context(), restTime) // the error is found by the next caller
		<-s.long
	}, nil
}

// bootstraps reports whether a list has all objects, page by page, as listeners of the
// change feed read them on any server after their registration. Such a list must
// include everything from before the registration, because no item reports it. A
// request with min_seq says itself what must be included.
func bootstraps(r *http.Request) bool {
	for name := range r.URL.Query() {
		if name != "limit" && name != "offset" {
			return false
		}
	}
	return true
}

// answerList answers with a listing.
func (s *Service) answerList(w http.ResponseWriter, r *http.Request, l listing) error {
	if err := s.freshAs(r, r.URL.Query().Has("consistent") || bootstraps(r)); err != nil {
		return err
	}
	found, err := s.gather(r, l)
	if err != nil {
		return err
	}
	return writeList(w, r, found)
}
