package logserver

import (
	"errors"
	"maps"
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
	logquery "rutter/log/query"
)

// query has the parameters of GET /log.
type query struct {
	after   log.Seq
	cursor  log.Cursor // of after, if the client named it by one; else zero
	limit   uint64
	follow  bool
	events  bool // server-sent events in place of lines of JSON
	filter  *logquery.Filter
	matcher *logquery.Matcher // of filter
	// sees, if not nil, returns which events the client may see.
	sees func(*log.Event) bool
	// shown, set with sees, returns an event as the client may see it.
	shown func(*log.Event) *log.Event
	// uuids, if not nil: each selected entry has one of them in a field of its object,
	// before or after it.
	uuids    []log.UUID
	accounts guard.Accounts // of the client
	counting bool           // lines are not needed
}

// bind limits the query to what the client may see, and sets whose budget it uses.
func (q *query) bind(of *guard.Guard, g guard.Grant) {
	q.accounts = of.Accounts(g.Who)
	q.matcher = q.filter.Matcher()
	switch {
	case g.Decision == matrix.Own:
		q.sees = func(e *log.Event) bool { return matrix.SeesEvent(g.Who, g.Decision, e) }
		q.shown = func(e *log.Event) *log.Event { return matrix.ShownEvent(g.Who, g.Decision, e) }
		q.matcher.Within(g.Who.Owners)
		q.uuids = g.Who.Owners
	case len(q.filter.Owners) > 0:
		q.uuids = q.filter.Owners
	case len(q.filter.Networks) > 0:
		q.uuids = q.filter.Networks
	}
}

// position is where the query begins, before anything is read.
func (q *query) position(store Store) logread.Position {
	if q.cursor != (log.Cursor{}) {
		return logread.Position{Cursor: q.cursor, Known: true}
	}
	return logread.PositionAfter(store, q.after)
}

// parse reads the query of GET /log.
func (s *Server) parse(r *http.Request) (*query, error) {
	p, err := rest.Query(r, append(logquery.Names(), "after", "cursor", "follow", "limit", "last")...)
	if err != nil {
		return nil, err
	}
	q := &query{events: wantsEvents(r)}
	if q.follow, err = p.Flag("follow"); err != nil {
		return nil, err
	}
	if q.limit, err = p.Number("limit", maxLines, 1, maxLines); err != nil {
		return nil, err
	}
	if q.follow && !p.Has("limit") {
		q.limit = 1<<64 - 1
	}
	if q.filter, err = s.filterOf(r, p); err != nil {
		return nil, err
	}
	q.bind(s.guard, guard.GrantOf(r))
	if begun, err := s.begin(r, p, q); begun || err != nil {
		return q, err
	}
	q.cursor, q.after, err = From(r, s.store, p)
	return q, err
}

// filterOf reads the filters of a query, and waits as its consistent and min_seq ask.
func (s *Server) filterOf(r *http.Request, p rest.Parameters) (*logquery.Filter, error) {
	values := maps.Clone(p.Values())
	for _, name := range []string{"since", "until"} {
		if text := p.Text(name); text != "" && len(values[name]) == 1 {
			at, err := backend.MomentParameter(text, name)
			if err != nil {
				return nil, err
			}
			values.Set(name, at.String())
		}
	}
	filter, err := logquery.Parse(values)
	if err != nil {
		return nil, badFilter(err)
	}
	if err := s.cfg.Fresh(r, p); err != nil {
		return nil, err
	}
	filter.TimeSet = s.timeSet()
	return filter, nil
}

// badFilter converts a refusal of package query into an answer.
func badFilter(err error) error {
	var refused *logquery.ParameterError
	if !errors.As(err, &refused) {
		return err
	}
	return rest.BadParameter(refused.Name, log.ElementInvalid, refused.Remedy, "%s", refused.Reason)
}
