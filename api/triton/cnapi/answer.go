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
	"strconv"
	"strings"

	"rutter/api/asked"
	"rutter/log"
	"rutter/log/budget"
)

// Codes of answers beside those of refusals.
const (
	codeUnavailable = "ServiceUnavailable"
	codeBadRequest  = "BadRequest"
	codeBudget      = "BudgetExceeded"
)

// answerError is an error with the status of its answer.
type answerError struct {
	status int
	log.Refusal
	after int // when to come again, in seconds; 0: it is not said
}

func failure(status int, code, format string, args ...any) error {
	return &answerError{status: status, Refusal: log.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func badField(field, remedy, format string, args ...any) error {
	return &answerError{status: http.StatusUnprocessableEntity, Refusal: log.Refusal{
		Code: log.CodeInvalidParameters, Message: "Invalid parameters",
		Errors: []log.FieldError{{Field: field, Code: log.ElementInvalid, Message: fmt.Sprintf(format, args...), Remedy: remedy}},
	}}
}

func missingField(field, remedy string) error {
	return &answerError{status: http.StatusUnprocessableEntity, Refusal: log.Refusal{
		Code: log.CodeInvalidParameters, Message: "Missing parameters",
		Errors: []log.FieldError{{Field: field, Code: log.ElementMissing, Message: "Missing parameter", Remedy: remedy}},
	}}
}

// wrongKind says of JSON that it is not of the kind that is wanted, in no words of
// Go's: a list, an object and the like.
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

// refusalStatus are the statuses of refusals of the log (spec/napi.md section 3.3).
var refusalStatus = map[string]int{
	log.CodeInvalidParameters: http.StatusUnprocessableEntity, log.CodeInUse: http.StatusUnprocessableEntity,
	log.CodeSubnetFull: http.StatusInsufficientStorage, log.CodeResourceNotFound: http.StatusNotFound,
	log.CodePreconditionFailed: http.StatusPreconditionFailed, log.CodeNotAuthorized: http.StatusForbidden, log.CodeTooOld: http.StatusConflict,
	log.CodeSkipped: http.StatusConflict, log.CodeUndecided: http.StatusInternalServerError,
	log.CodeIDReused: http.StatusConflict,
}

func writeError(w http.ResponseWriter, err error) {
	var answer *answerError
	var refusal *log.Refusal
	switch {
	case errors.As(err, &answer):
	case errors.As(err, &refusal):
		status, ok := refusalStatus[refusal.Code]
		if !ok {
			status = http.StatusUnprocessableEntity
		}
		answer = &answerError{status: status, Refusal: *refusal}
		if status == http.StatusNotFound {
			answer.Errors = nil // which one, the path says
		}
	default:
		answer = &answerError{status: http.StatusServiceUnavailable, Refusal: log.Refusal{Code: codeUnavailable, Message: err.Error()}}
	}
	switch {
	case answer.after > 0:
		w.Header().Set("Retry-After", strconv.Itoa(answer.after))
	case answer.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, answer.status, answer.Refusal.Bounded())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		fmt.Fprintf(&b, "{\"code\":\"InternalError\",\"message\":%q}\n", err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that left is told nothing; for HEAD net/http drops it
}

// fieldsOf reads the fields of a request: those of its JSON object and those of
// its query, as restify does. Nothing is an empty object.
func fieldsOf(r *http.Request) (map[string]json.RawMessage, error) {
	fields := make(map[string]json.RawMessage)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, failure(http.StatusRequestEntityTooLarge, codeBadRequest, "the body cannot be read: %v", err)
	}
	if body = bytes.TrimSpace(body); len(body) > 0 {
		if err := json.Unmarshal(body, &fields); err != nil {
			return nil, failure(http.StatusBadRequest, codeBadRequest, "the body is not a JSON object: %s", wrongKind(err, "object"))
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, failure(http.StatusBadRequest, codeBadRequest, "the query cannot be read: %v", err)
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

// propose makes one change of operations on behalf of a request, or of the
// service itself if r is nil, and returns when this server has applied it.
func (s *Service) propose(ctx context.Context, r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.changeID(r)
	if err != nil {
		return log.Result{}, err
	}
	c := &log.Change{ID: id, Actor: Actor, Ops: ops}
	if r != nil {
		c.Content = asked.Of(r)
	}
	if r != nil && s.cfg.Asker != nil {
		c.Actor, c.By = s.cfg.Asker(r)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	result, err := s.store.Propose(ctx, c)
	var exceeded *budget.Exceeded
	if errors.As(err, &exceeded) {
		return result, &answerError{
			status: http.StatusTooManyRequests, after: exceeded.Seconds(),
			Refusal: log.Refusal{Code: codeBudget, Message: "nothing was written: " + exceeded.Error()},
		}
	}
	if errors.Is(err, log.ErrNoRoom) {
		return result, failure(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written: %v", err)
	}
	if err != nil {
		return result, fmt.Errorf("it is not known whether change %s was made: look, or send it again with %s: %s, which does it once: %w", id, HeaderChangeID, id, err)
	}
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, s.store.WaitSeq(ctx, result.Last)
}

// ofItself is the CN of the path, if who asks may speak of it.
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

// change makes one change on behalf of a request, and answers with no content.
func (s *Service) change(w http.ResponseWriter, r *http.Request, op log.Op) error {
	if _, err := s.propose(r.Context(), r, op); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// HeaderChangeID names the change of a request: one that is sent again with it is
// done once (DESIGN rule 4).
const HeaderChangeID = asked.Header

func (s *Service) changeID(r *http.Request) (log.UUID, error) {
	if r == nil || r.Header.Get(HeaderChangeID) == "" {
		return s.cfg.NewID()
	}
	id, err := log.ParseUUID(r.Header.Get(HeaderChangeID))
	if err != nil {
		return id, badField(HeaderChangeID, "send a version 7 UUID, the same one with each retry", "%v", err)
	}
	return id, nil
}

// Actor is who makes the changes that no request asked for.
const Actor = "cnapi"
