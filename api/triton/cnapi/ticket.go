package cnapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// createTicket takes {scope, id, expires_at, action, extra, reqid} and answers
// with the ticket's UUID and its line.
func (s *Service) createTicket(w http.ResponseWriter, r *http.Request) error {
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	t := &log.Ticket{ServerUUID: o.UUID}
	for name, to := range map[string]*string{"scope": &t.Scope, "id": &t.OfID, "action": &t.Action, "reqid": &t.ReqID} {
		if *to, err = textField(fields, name); err != nil {
			return err
		}
	}
	if text, err := textField(fields, "req_id"); err == nil && t.ReqID == "" {
		t.ReqID = text
	}
	if raw, ok := fields["extra"]; ok && string(raw) != "null" {
		if t.Extra, err = canonical(raw); err != nil {
			return badField("extra", "send JSON", "%v", err)
		}
	}
	if text, err := textField(fields, "expires_at"); err != nil {
		return err
	} else if text != "" {
		if t.Expires, err = log.ParseTime(text); err != nil {
			return badField("expires_at", "send a time, as in 2026-11-21T12:00:00.000Z", "%v", err)
		}
	}
	result, err := s.propose(r.Context(), r, log.Op{Action: log.Create, Kind: log.KindTicket, Object: t})
	if err != nil {
		return err
	}
	line := []map[string]any{}
	s.eachTicket(o.UUID, func(other *log.Ticket) {
		if other.Waits() && other.Scope == t.Scope && other.OfID == t.OfID {
			line = append(line, ticketForm(other))
		}
	})
	rest.WriteJSON(w, r, http.StatusAccepted, map[string]any{"uuid": result.IDs[0], "queue": line})
	return nil
}

// eachTicket calls fn with up to maxList tickets of a CN.
func (s *Service) eachTicket(cn log.UUID, fn func(*log.Ticket)) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		left := maxList
		for rec := range state.TicketsOn(cn) {
			if left--; left < 0 {
				return
			}
			fn(rec.Object.(*log.Ticket))
		}
	})
}

func ticketForm(t *log.Ticket) map[string]any {
	m := map[string]any{
		"uuid": t.UUID, "server_uuid": t.ServerUUID, "scope": t.Scope, "id": t.OfID, "status": t.Status, "action": t.Action,
		"reqid": t.ReqID, "created_at": t.Created, "updated_at": t.Updated, "expires_at": t.Expires, "place": t.Place,
	}
	if t.Extra != "" {
		m["extra"] = json.RawMessage(t.Extra)
	}
	return m
}

func (s *Service) listTickets(w http.ResponseWriter, r *http.Request) error {
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	list := []map[string]any{}
	s.eachTicket(o.UUID, func(t *log.Ticket) { list = append(list, ticketForm(t)) })
	rest.WriteJSON(w, r, http.StatusOK, list)
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

// waitTicket answers 204 when it is the ticket's turn, 409 if it never will be.
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
		return notFound(noTicket)
	case !in:
		return failure(http.StatusConflict, "TicketQueued", "it is not the ticket's turn yet: wait again")
	case t.Status != log.TicketActive:
		return failure(http.StatusConflict, "TicketEnded", "the ticket is %s", t.Status)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) releaseTicket(w http.ResponseWriter, r *http.Request) error {
	return s.changeTicket(w, r, log.Op{Action: log.Update, Set: []string{"status"}, Object: &log.Ticket{Status: log.TicketFinished}})
}

func (s *Service) deleteTicket(w http.ResponseWriter, r *http.Request) error {
	return s.changeTicket(w, r, log.Op{Action: log.Delete})
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
		return notFound(noTicket)
	}
	return err
}
