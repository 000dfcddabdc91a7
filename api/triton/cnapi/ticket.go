package cnapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// defaultServer is CNAPI's name of no server: tickets of the whole cloud are its.
const defaultServer = "default"

// maxDeleted bounds the tickets that one change deletes.
const maxDeleted = 256

// ticketsOf returns the server whose tickets a path names: one of the log, or none.
func (s *Service) ticketsOf(r *http.Request) (log.UUID, error) {
	if r.PathValue("server") == defaultServer {
		return log.UUID{}, nil
	}
	o, err := s.needServer(r)
	if err != nil {
		return log.UUID{}, err
	}
	return o.UUID, nil
}

// createTicket takes {scope, id, expires_at, action, extra, reqid} and answers
// with the ticket's UUID and its line.
func (s *Service) createTicket(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ticketsOf(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	t := &log.Ticket{ServerUUID: cn}
	for name, to := range map[string]*string{"scope": &t.Scope, "id": &t.OfID, "action": &t.Action, "reqid": &t.ReqID} {
		if *to, err = textField(fields, name); err != nil {
			return err
		}
	}
	if text, err := textField(fields, "req_id"); err == nil && t.ReqID == "" {
		t.ReqID = cmp.Or(text, r.Header.Get("x-request-id"))
	}
	if raw, ok := fields["extra"]; ok && string(raw) != "null" {
		if t.Extra, err = canonical(raw); err != nil {
			return badField("extra", "send JSON", "%v", err)
		}
	}
	if text, err := textField(fields, "expires_at"); err != nil {
		return err
	} else if text != "" {
		if t.Expires, err = expiryOf(text); err != nil {
			return badField("expires_at", "send a time, as in 2026-11-21T12:00:00.000Z", "%v", err)
		}
	}
	s.store.View(func(state *projections.State, _ log.Cursor) { err = s.room.Check(state, cn) })
	if err != nil {
		return failure(http.StatusServiceUnavailable, rest.CodeOverloaded, "%v", err)
	}
	result, err := s.propose(r.Context(), r, log.Op{Action: log.Create, Kind: log.KindTicket, Object: t})
	if err != nil {
		return err
	}
	line := []*log.Ticket{}
	s.eachTicket(cn, func(other *log.Ticket) {
		if other.Waits() && other.Scope == t.Scope && other.OfID == t.OfID {
			line = append(line, other)
		}
	})
	slices.SortFunc(line, func(a, b *log.Ticket) int { return cmp.Compare(a.Place, b.Place) })
	rest.WriteJSON(w, r, http.StatusAccepted, map[string]any{"uuid": result.IDs[0], "queue": ticketForms(line)})
	return nil
}

// expiryOf reads a time of ISO 8601; one without a zone is UTC, as in CNAPI's examples.
func expiryOf(text string) (log.Time, error) {
	at, err := log.ParseTime(text)
	if err == nil {
		return at, nil
	}
	if plain, other := time.Parse("2006-01-02T15:04:05", text); other == nil {
		return log.TimeOf(plain), nil
	}
	return 0, err
}

// eachTicket calls fn with the tickets of a CN, while nothing is applied.
func (s *Service) eachTicket(cn log.UUID, fn func(*log.Ticket)) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.TicketsOn(cn) {
			fn(rec.Object.(*log.Ticket))
		}
	})
}

func ticketForm(t *log.Ticket) map[string]any {
	m := map[string]any{
		"uuid": t.UUID, "server_uuid": t.ServerUUID, "scope": t.Scope, "id": t.OfID, "status": t.Status, "action": t.Action,
		"reqid": t.ReqID, "created_at": t.Created, "updated_at": t.Updated, "expires_at": t.Expires, "place": t.Place,
	}
	if t.ServerUUID.IsZero() {
		m["server_uuid"] = defaultServer
	}
	if t.Extra != "" {
		m["extra"] = json.RawMessage(t.Extra)
	}
	return m
}

func ticketForms(list []*log.Ticket) []map[string]any {
	forms := make([]map[string]any, len(list))
	for i, t := range list {
		forms[i] = ticketForm(t)
	}
	return forms
}

// ticketOrders are the attributes that a list of tickets can be sorted by.
var ticketOrders = map[string]func(a, b *log.Ticket) int{
	"created_at": func(a, b *log.Ticket) int { return cmp.Compare(a.Created, b.Created) },
	"updated_at": func(a, b *log.Ticket) int { return cmp.Compare(a.Updated, b.Updated) },
	"expires_at": func(a, b *log.Ticket) int { return cmp.Compare(a.Expires, b.Expires) },
	"status":     func(a, b *log.Ticket) int { return cmp.Compare(a.Status, b.Status) },
	"scope":      func(a, b *log.Ticket) int { return cmp.Compare(a.Scope, b.Scope) },
	"id":         func(a, b *log.Ticket) int { return cmp.Compare(a.OfID, b.OfID) },
}

// listTickets answers tickets in the order of their creation, or by ?attribute= and
// ?order=.
func (s *Service) listTickets(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ticketsOf(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	limit, offset, err := pageOf(query)
	if err != nil {
		return err
	}
	by, known := ticketOrders[cmp.Or(query.Get("attribute"), "created_at")]
	if !known {
		return badField("attribute", "send one of created_at, updated_at, expires_at, status, scope, id", "tickets are not sorted by %.40q", query.Get("attribute"))
	}
	order := strings.ToUpper(cmp.Or(query.Get("order"), "ASC"))
	if order != "ASC" && order != "DESC" {
		return badField("order", "send ASC or DESC", "%.40q is no order", query.Get("order"))
	}
	list := []*log.Ticket{}
	s.eachTicket(cn, func(t *log.Ticket) { list = append(list, t) })
	slices.SortFunc(list, func(a, b *log.Ticket) int {
		c := cmp.Or(by(a, b), cmp.Compare(a.Created, b.Created), cmp.Compare(a.Place, b.Place), slices.Compare(a.UUID[:], b.UUID[:]))
		if order == "DESC" {
			return -c
		}
		return c
	})
	list = list[min(offset, len(list)):]
	rest.WriteJSON(w, r, http.StatusOK, ticketForms(list[:min(limit, len(list))]))
	return nil
}

func (s *Service) getTicket(w http.ResponseWriter, r *http.Request) error {
	t, err := s.needTicket(r)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, ticketForm(t))
	return nil
}

// waitTicket answers 204 when it is the ticket's turn, or it has expired; and 409 if it
// was released, so that its turn never comes.
func (s *Service) waitTicket(w http.ResponseWriter, r *http.Request) error {
	t, err := s.needTicket(r)
	if err != nil {
		return err
	}
	id := t.UUID
	in, err := s.waitUntil(w, r, func() bool {
		t = s.ticket(id)
		return t == nil || t.Status != log.TicketQueued
	})
	switch {
	case err != nil:
		return err
	case t == nil:
		return noTicket(id.String())
	case !in:
		return failure(http.StatusConflict, "TicketQueued", "it is not the ticket's turn yet: wait again")
	case t.Status == log.TicketFinished:
		return failure(http.StatusConflict, "TicketEnded", "the ticket is %s", t.Status)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// releaseTicket ends a ticket; one that has ended stays as it is.
func (s *Service) releaseTicket(w http.ResponseWriter, r *http.Request) error {
	err := s.changeTicket(w, r, log.Op{Action: log.Update, Set: []string{"status"}, Object: &log.Ticket{Status: log.TicketFinished}})
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Code == log.CodePreconditionFailed {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return err
}

func (s *Service) deleteTicket(w http.ResponseWriter, r *http.Request) error {
	return s.changeTicket(w, r, log.Op{Action: log.Delete})
}

// deleteTickets deletes all tickets of a server, those that wait longest the last, so
// that none of them gets its turn meanwhile. It takes only those that there are when it
// begins.
func (s *Service) deleteTickets(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ticketsOf(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	if force := string(fields["force"]); force != `"true"` && force != "true" {
		return failure(http.StatusPreconditionFailed, log.CodePreconditionFailed, "Will not delete all tickets without ?force=true")
	}
	list := []*log.Ticket{}
	s.eachTicket(cn, func(t *log.Ticket) { list = append(list, t) })
	slices.SortFunc(list, func(a, b *log.Ticket) int {
		return cmp.Or(cmp.Compare(b.Place, a.Place), slices.Compare(a.UUID[:], b.UUID[:]))
	})
	for some := range slices.Chunk(list, maxDeleted) {
		if err := s.deleteSome(r, some); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deleteSome deletes tickets in one change; if one of them is gone meanwhile, one by one.
func (s *Service) deleteSome(r *http.Request, list []*log.Ticket) error {
	ops := make([]log.Op, len(list))
	for i, t := range list {
		ops[i] = log.Op{Action: log.Delete, Kind: log.KindTicket, ID: t.ID()}
	}
	_, err := s.proposeNew(r, ops...)
	if err == nil || !isRefusal(err) {
		return err
	}
	for _, op := range ops {
		var refusal *log.Refusal
		if _, err := s.proposeNew(r, op); err != nil && (!errors.As(err, &refusal) || refusal.Code != log.CodeResourceNotFound) {
			return err
		}
	}
	return nil
}

func (s *Service) changeTicket(w http.ResponseWriter, r *http.Request, op log.Op) error {
	id, err := pathID(r, "ticket")
	if err != nil {
		return err
	}
	op.Kind, op.ID = log.KindTicket, id.String()
	err = s.change(w, r, op)
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Code == log.CodeResourceNotFound {
		return noTicket(op.ID)
	}
	return err
}

// noTicket is the answer that there is no such ticket, in CNAPI's words.
func noTicket(id string) error { return notFound("ticket %s not found", id) }
