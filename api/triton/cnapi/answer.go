package cnapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
)

func failure(status int, code, format string, args ...any) error {
	return rest.Fail(status, code, "", format, args...)
}

func badField(field, remedy, format string, args ...any) error {
	return rest.BadParameter(field, log.ElementInvalid, remedy, format, args...)
}

func missingField(field, remedy string) error {
	missing := rest.BadParameter(field, log.ElementMissing, remedy, "Missing parameter")
	missing.Message = "Missing parameters"
	return missing
}

// wrongKind returns the error for JSON of the wrong type, without Go's type names: a
// list, an object and the like.
func wrongKind(err error, want string) string {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	found, _, _ := strings.Cut(kind.Value, " ")
	return "it is no " + want + ", but of kind " + found
}

func notFound(format string, args ...any) error {
	return failure(http.StatusNotFound, log.CodeResourceNotFound, format, args...)
}

// writeError answers with an error in CNAPI's form, which is that of a refusal.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var answer *rest.Error
	var refusal *log.Refusal
	switch {
	case errors.As(err, &answer):
	case errors.As(err, &refusal):
		answer = rest.Refused(refusal)
		if answer.Status == http.StatusNotFound {
			answer.Errors = nil // which one, the path says
		}
	default:
		answer = rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "", "%v", err)
	}
	rest.RetryAfter(w, answer.Status, answer.Budget)
	shown := log.Refusal{Code: answer.Code, Message: answer.Message, Errors: answer.Errors}
	rest.WriteJSON(w, r, answer.Status, shown.Bounded())
}

// fieldsOf reads the fields of a request: those of its JSON object and those of
// its query, as restify does. Nothing is an empty object.
func fieldsOf(r *http.Request) (map[string]json.RawMessage, error) {
	fields := make(map[string]json.RawMessage)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, failure(http.StatusRequestEntityTooLarge, rest.CodeBadRequest, "the body cannot be read: %v", err)
	}
	if body = bytes.TrimSpace(body); len(body) > 0 {
		if err := json.Unmarshal(body, &fields); err != nil {
			return nil, failure(http.StatusBadRequest, rest.CodeBadRequest, "the body is not a JSON object: %s", wrongKind(err, "object"))
		}
		if fields == nil { // the body is null, which is nothing
			fields = make(map[string]json.RawMessage)
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, failure(http.StatusBadRequest, rest.CodeBadRequest, "the query cannot be read: %v", err)
	}
	for name, values := range query {
		if _, given := fields[name]; !given {
			fields[name], _ = json.Marshal(values[0])
		}
	}
	return fields, nil
}

// textField returns a field that is a text; "" if it is not there.
func textField(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok || string(raw) == "null" {
		return "", nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", badField(name, "send a text", "%.80s is no text", raw)
	}
	return text, nil
}

// canonical is a JSON value with its keys sorted and without blanks; numbers stay
// as they are written.
func canonical(raw []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("text after the value")
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// propose makes one change of operations for a request, or for the service itself if r
// is nil, and returns when this server has applied it.
func (s *Service) propose(ctx context.Context, r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.changeID(r)
	if err != nil {
		return log.Result{}, err
	}
	c := &log.Change{ID: id, Actor: Actor, Ops: ops}
	if r != nil {
		c.Content = rest.ContentOf(r)
	}
	if r != nil && s.cfg.Asker != nil {
		c.Actor, c.By = s.cfg.Asker(r)
	}
	return s.write(ctx, c)
}

// proposeNew is propose of one of several changes for a request: the id of a change that
// the request names is not used.
func (s *Service) proposeNew(r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.changeID(nil)
	if err != nil {
		return log.Result{}, err
	}
	c := &log.Change{ID: id, Actor: Actor, Ops: ops}
	if s.cfg.Asker != nil {
		c.Actor, c.By = s.cfg.Asker(r)
	}
	return s.write(r.Context(), c)
}

// write makes a change, and returns when this server has applied it.
func (s *Service) write(ctx context.Context, c *log.Change) (log.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	result, err := s.store.Propose(ctx, c)
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		answer := rest.Fail(http.StatusTooManyRequests, rest.CodeBudget, "", "nothing was written: %v", exceeded)
		answer.Budget = exceeded
		return result, answer
	}
	if errors.Is(err, log.ErrNoRoom) {
		return result, failure(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written: %v", err)
	}
	if err != nil {
		return result, fmt.Errorf("it is not known whether change %s was made: look, or send it again with %s: %s, which does it once: %w", c.ID, rest.HeaderChangeID, c.ID, err)
	}
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, s.store.WaitSeq(ctx, result.Last)
}

// ofItself returns the CN of the path, if the client may report about it.
func (s *Service) ofItself(r *http.Request) (log.UUID, error) {
	cn, err := serverOf(r)
	if err != nil || s.cfg.Asker == nil {
		return cn, err
	}
	if _, by := s.cfg.Asker(r); by.Role == log.RoleCN && by.CN != cn || by.Role == log.RoleReader {
		return cn, failure(http.StatusForbidden, log.CodeNotAuthorized, "a compute node speaks of itself only: use the certificate of %s", cn)
	}
	return cn, nil
}

// change makes one change for a request, and answers without content.
func (s *Service) change(w http.ResponseWriter, r *http.Request, op log.Op) error {
	if _, err := s.propose(r.Context(), r, op); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) changeID(r *http.Request) (log.UUID, error) {
	if r == nil || r.Header.Get(rest.HeaderChangeID) == "" {
		return s.cfg.NewID()
	}
	id, err := log.ParseUUID(r.Header.Get(rest.HeaderChangeID))
	if err != nil {
		return id, badField(rest.HeaderChangeID, "send a version 7 UUID, the same one with each retry", "%v", err)
	}
	return id, nil
}

// Actor is the actor of changes without a request.
const Actor = "cnapi"
