package napi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/budget"
)

// Codes of errors beside those of package log; restify's words.
const (
	codeNotFound    = log.CodeResourceNotFound
	codeUnavailable = rest.CodeUnavailable
	codeInternal    = rest.CodeInternal
	codeContent     = "InvalidContent"
	codeTooLarge    = "RequestEntityTooLarge"
	codeBudget      = rest.CodeBudget
)

// Messages of the whole (spec/napi.md section 3.3).
const (
	messageInvalid = "Invalid parameters"
	messageMissing = "Missing parameters"
)

// problem is an error with its status; its JSON form is NAPI's.
type problem struct {
	status  int
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Errors  []element `json:"errors,omitempty"`
	// Network is the full network, if Code is SubnetFull.
	Network string `json:"network_uuid,omitempty"`
	// Budget is the one that is used up, with the time to retry.
	Budget *budget.Exceeded `json:"budget,omitempty"`
}

// element is what is wrong with one field.
type element struct {
	Field   any      `json:"field,omitempty"` // a name, or a list of unknown names
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Invalid []string `json:"invalid,omitempty"` // which of several values
	Type    string   `json:"type,omitempty"`    // of the object that prevents the request
	ID      string   `json:"id,omitempty"`
	UUID    string   `json:"uuid,omitempty"` // of a network that has more than its tag would
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

func fail(status int, code, message string) *problem {
	return &problem{status: status, Code: code, Message: message}
}

func notFound(what string) *problem {
	return fail(http.StatusNotFound, codeNotFound, what+" not found")
}

// invalid is the answer to bad parameters, sorted by field. If parameters are only
// missing, the message says so.
func invalid(elements ...element) *problem {
	slices.SortStableFunc(elements, func(a, b element) int { return cmp.Compare(fieldText(a), fieldText(b)) })
	message := messageMissing
	if slices.ContainsFunc(elements, func(e element) bool { return e.Code != log.ElementMissing }) {
		message = messageInvalid
	}
	return &problem{status: http.StatusUnprocessableEntity, Code: log.CodeInvalidParameters, Message: message, Errors: elements}
}

func fieldText(e element) string {
	text, _ := e.Field.(string)
	return text
}

func bad(field, message string) element {
	return element{Field: field, Code: log.ElementInvalid, Message: message}
}

func missing(field string) element {
	return element{Field: field, Code: log.ElementMissing, Message: "Missing parameter"}
}

// ofRefusal converts a refusal of the log into NAPI's form and words.
func ofRefusal(r *log.Refusal) *problem {
	p := &problem{status: rest.RefusalStatus(r.Code), Code: r.Code, Message: r.Message}
	for _, e := range r.Errors {
		p.Errors = append(p.Errors, translate(e))
	}
	if r.Code == log.CodeSubnetFull && r.Message == messagePoolFull {
		return invalid(bad("network_uuid", messagePoolFull))
	}
	switch r.Code {
	case log.CodeInvalidParameters:
		if p = invalid(missingTags(bothEnds(p.Errors))...); r.Message != messageInvalid {
			p.Message = r.Message // such as that of a network's name
		}
	case log.CodeInUse:
		for i := range p.Errors {
			p.Errors[i].Field = nil // NAPI names what uses the object, no field of it
		}
		p.Message = inUse(p.Message)
	case log.CodeResourceNotFound, log.CodePreconditionFailed, log.CodeSubnetFull, log.CodeSubnetsExhausted, log.CodeNotAuthorized:
		p.Errors = nil // NAPI names no field there
	}
	return p
}

// translate gives an element of a refusal NAPI's words where they differ. NAPI's form
// has no field for the remedy.
func translate(e log.FieldError) element {
	field := e.Field
	if rest, ok := strings.CutPrefix(field, "ops."); ok {
		_, field, _ = strings.Cut(rest, ".")
	}
	message := e.Message
	switch {
	case message == "owner cannot provision on network":
		message = "network owner_uuids do not match"
	case field == "network_uuid" && strings.HasSuffix(message, "does not exist"):
		message = "network does not exist"
	case e.Code == log.ElementDuplicate:
		return element{Field: field, Code: e.Code, Message: message}
	case e.Type == log.KindNetworkPool.String():
		e.Type = "network pool"
		message = strings.Replace(message, log.KindNetworkPool.String(), e.Type, 1)
	case field == "mtu" && e.Code == log.ElementUsedBy:
		return element{Field: field, Code: log.ElementInvalid, Message: "nic_tag mtu must be greater than its networks", UUID: e.ID}
	case field != "nic_tags_provided" && unknownTag(message) != "":
		message = "nic tag does not exist"
	}
	return element{Field: field, Code: e.Code, Message: message, Type: e.Type, ID: e.ID, Invalid: e.Invalid}
}

// inUse gives the message of an object in use NAPI's words where they differ.
func inUse(message string) string {
	if message == "network is in use" {
		return "Network is in use"
	}
	return message
}

// unknownTag returns the name in a message about a NIC tag that does not exist, or "".
func unknownTag(message string) string {
	name, ok := strings.CutPrefix(message, `nic tag "`)
	name, known := strings.CutSuffix(name, `" does not exist`)
	if !ok || !known {
		return ""
	}
	return name
}

// missingTags makes one element of those about NIC tags of nic_tags_provided that do not
// exist, as NAPI does.
func missingTags(elements []element) []element {
	var names []string
	others := slices.DeleteFunc(slices.Clone(elements), func(e element) bool {
		name := unknownTag(e.Message)
		if e.Field != "nic_tags_provided" || name == "" {
			return false
		}
		names = append(names, name)
		return true
	})
	if names == nil {
		return elements
	}
	message := "nic tags do not exist"
	if len(names) == 1 {
		message = "nic tag does not exist"
	}
	return append(others, element{Field: "nic_tags_provided", Code: log.ElementInvalid, Message: message, Invalid: names})
}

// messagePoolFull is for a pool without room, which NAPI calls a bad parameter.
const messagePoolFull = "all networks in pool are full"

// messageOrder is of a provision range that ends before it begins.
const messageOrder = "provision_start_ip must be before provision_end_ip"

// bothEnds names both ends of a reversed range, as NAPI does.
func bothEnds(elements []element) []element {
	for _, e := range elements {
		if e.Message == messageOrder && !slices.ContainsFunc(elements, func(o element) bool { return o.Field == "provision_end_ip" }) {
			return append(elements, bad("provision_end_ip", messageOrder))
		}
	}
	return elements
}

// ofKit converts an error of the kit, whose remedy NAPI's form has no field for.
func ofKit(e *rest.Error) *problem {
	p := fail(e.Status, e.Code, e.Message)
	if e.Remedy != "" {
		p.Message += ": " + e.Remedy
	}
	for _, f := range e.Errors {
		p.Errors = append(p.Errors, translate(f))
	}
	return p
}

// problemOf converts any error into an answer.
func problemOf(err error) *problem {
	var p *problem
	var refusal *log.Refusal
	var tooLarge *http.MaxBytesError
	var kit *rest.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &kit):
		return ofKit(kit)
	case errors.As(err, &refusal):
		return ofRefusal(refusal)
	case errors.As(err, &tooLarge):
		return fail(http.StatusRequestEntityTooLarge, codeTooLarge, "the body is over "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fail(http.StatusServiceUnavailable, codeUnavailable, "this server could not answer in time")
	}
	return fail(http.StatusInternalServerError, codeInternal, "Internal error")
}

func (s *Service) writeError(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.status == http.StatusInternalServerError {
		s.cfg.Logger.Error("napi request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	rest.RetryAfter(w, p.status, p.Budget)
	rest.WriteJSON(w, r, p.status, p)
}

// writeList answers with objects, and yields the processor while it prints them.
func writeList(w http.ResponseWriter, r *http.Request, forms []any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('[')
	for i, form := range forms {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(form); err != nil {
			return err
		}
		if i%printAtOnce == printAtOnce-1 {
			runtime.Gosched()
		}
	}
	b.WriteString("]\n")
	rest.WriteBody(w, r, http.StatusOK, b.Bytes())
	return nil
}

// noContent answers a deletion.
func noContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}
