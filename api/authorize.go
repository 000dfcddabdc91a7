package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// Auditor takes records of who was let in and who was refused; *audit.Log does.
type Auditor interface{ Note(audit.Record) }

// grantKey is where a request's context has what was decided of it.
type grantKey struct{}

// grant is what was decided of a request.
type grant struct {
	who    matrix.Identity
	answer matrix.Answer
}

// grantOf returns what was decided of a request. One that came past measured, as
// none does, has nothing.
func grantOf(r *http.Request) grant {
	g, _ := r.Context().Value(grantKey{}).(grant)
	return g
}

// sees reports whether the request may be answered with an object that state holds.
func (g grant) sees(state *projections.State, o log.Object) bool {
	return matrix.Sees(g.who, g.answer, state, o)
}

// knows reports whether the answer to a write may tell of an object: a compute node
// hears nothing of another's but that it is not its own, as of one that there is not.
func (g grant) knows(state *projections.State, o log.Object) bool {
	return g.answer != matrix.Own || g.sees(state, o)
}

// identify says who asks: whom the connection's certificate names, or somebody on
// a listener that asks for no names.
func (s *Server) identify(r *http.Request) matrix.Identity {
	if s.cfg.Identify != nil {
		return s.cfg.Identify(r)
	}
	if id, ok := matrix.From(r.Context()); ok {
		return id
	}
	if r.TLS != nil {
		return matrix.Identity{Role: matrix.None, Name: hostOf(r.RemoteAddr)}
	}
	return matrix.Identity{Role: matrix.Local, Name: hostOf(r.RemoteAddr)}
}

// authorise asks the matrix about a request of who, and returns it with what was
// decided.
func (s *Server) authorise(r *http.Request, who matrix.Identity, row *matrix.Row) (*http.Request, error) {
	if who.Role == matrix.Reader {
		who.Owners = s.ownersOf(who)
	}
	answer, refusal := matrix.Decide(who, r.Method+" "+r.URL.Path, row)
	if refusal != nil {
		return nil, s.refused(r.RemoteAddr, refusal)
	}
	ctx := context.WithValue(matrix.With(r.Context(), who), grantKey{}, grant{who, answer})
	return r.WithContext(ctx), nil
}

// refused notes a refusal and makes it an answer.
func (s *Server) refused(remote string, refusal *matrix.Refusal) error {
	s.metrics.denied.WithLabelValues(refusal.Who.Role.String()).Inc()
	s.note(audit.Record{
		Event: audit.Refused, Actor: refusal.Who.Actor(), Serial: refusal.Who.Serial, Remote: remote, Asked: refusal.What, Why: refusal.Missing,
	})
	return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, refusal.Missing, "%v", refusal)
}

func (s *Server) note(r audit.Record) {
	if s.cfg.Audit != nil {
		s.cfg.Audit.Note(r)
	}
}

// actorOf names who asks, as far as an event has room for it.
func (s *Server) actorOf(r *http.Request) string {
	if s.cfg.Actor != nil {
		return s.cfg.Actor(r)
	}
	return grantOf(r).who.Actor()
}

// limitedPause is how long who asks too often waits to be told so: a connection
// that does not wait by itself has no more than four refusals a second.
const limitedPause = 250 * time.Millisecond

// enter takes a place for a request among those of its identity. Requests that
// will be refused for other reasons count: they cost as much.
func (s *Server) enter(r *http.Request, who matrix.Identity, stream bool) (leave func(), err error) {
	leave, limit := s.shares.enter(who, stream)
	if limit == "" {
		return leave, nil
	}
	s.metrics.limited.WithLabelValues(limit).Inc()
	s.noteLimit(r, who, limit)
	if limit == limitRate {
		s.pause(r.Context(), limitedPause)
	}
	return nil, rest.Fail(http.StatusTooManyRequests, rest.CodeLimited, "ask less often, or fewer things at once", "%s has reached the limit %q of this server", who.Actor(), limit)
}

// noteLimit tells the audit log which limit who has reached.
func (s *Server) noteLimit(r *http.Request, who matrix.Identity, limit string) {
	s.note(audit.Record{Event: audit.Limited, Actor: who.Actor(), Serial: who.Serial, Remote: r.RemoteAddr, Asked: limit})
}

// Enter is for a listener of a surface that is not the API's own: it takes a place
// for a request of who among those of its identity, or answers it with 429, and ok
// is false. leave must be called when the request is answered.
func (s *Server) Enter(w http.ResponseWriter, r *http.Request, who matrix.Identity) (leave func(), ok bool) {
	leave, err := s.enter(r, who, streamed[r.URL.Path])
	if err != nil {
		writeError(w, r, err)
		return nil, false
	}
	return leave, true
}

// pause waits, unless the request or the server ends before.
func (s *Server) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.draining:
	}
}

// hostOf is the host of HOST:PORT.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
