package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
	"rutter/log/budget"
	"rutter/log/vmrule"
)

// Codes of errors that every surface may answer with, beside those of package log.
const (
	CodeBadRequest  = "BadRequest"         // 400
	CodeReadOnly    = "ReadOnly"           // 403
	CodeNoMethod    = "MethodNotAllowed"   // 405
	CodeTooLarge    = "RequestTooLarge"    // 413
	CodeLimited     = "RequestThrottled"   // 429, restify's word
	CodeBudget      = "BudgetExceeded"     // 429: the answer names the budget
	CodeInternal    = "InternalError"      // 500
	CodeNotHere     = "NotImplemented"     // 501
	CodeUnavailable = "ServiceUnavailable" // 503, in Triton's words
	CodeNoLeader    = "NoLeader"           // 503
	CodeOverloaded  = "Overloaded"         // 503
	CodeUnknown     = "OutcomeUnknown"     // 503: it is unknown whether the change was made
	CodeNotReady    = "NotReady"           // 503
	CodeNotYet      = "NotYetApplied"      // 503
)

// Error is an error with the status and the body of its answer. The JSON form is NAPI's
// (spec/napi.md section 3.3) plus a remedy.
type Error struct {
	Status  int              `json:"-"`
	Code    string           `json:"code"`
	Message string           `json:"message"`
	Remedy  string           `json:"remedy,omitempty"`
	Errors  []log.FieldError `json:"errors,omitempty"`
	// Fabric is the progress of a write that not every CN has programmed.
	Fabric any `json:"fabric,omitempty"`
	// Candidates are the objects that an ambiguous name means.
	Candidates any `json:"candidates,omitempty"`
	// Budget is the one that is used up, with the time to retry.
	Budget *budget.Exceeded `json:"budget,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Fail returns an error with its status, its code and its remedy, which may be "".
func Fail(status int, code, remedy, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// OfParameter returns an answer to a bad value, as one to the parameter that has it. Other
// errors are returned as they are.
func OfParameter(name string, err error) error {
	answer, is := errors.AsType[*Error](err)
	if !is || len(answer.Errors) != 1 {
		return err
	}
	renamed := *answer
	renamed.Errors = slices.Clone(answer.Errors)
	renamed.Errors[0].Field = name
	return &renamed
}

// BadParameter is NAPI's answer to a parameter that is wrong.
func BadParameter(field, code, remedy, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: log.CodeInvalidParameters, Message: "Invalid parameters",
		Errors: []log.FieldError{{Field: field, Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy}},
	}
}

// NotFound is the answer for a missing object; what is its kind in NAPI's words.
func NotFound(what string) *Error {
	return Fail(http.StatusNotFound, log.CodeResourceNotFound, "", "%s not found", what)
}

// refusalStatus are the statuses of refusals that are not 422 (spec/napi.md section 3.3).
var refusalStatus = map[string]int{
	log.CodeSubnetFull:         http.StatusInsufficientStorage,
	log.CodeSubnetsExhausted:   http.StatusInsufficientStorage,
	log.CodeResourceNotFound:   http.StatusNotFound,
	log.CodePreconditionFailed: http.StatusPreconditionFailed,
	log.CodeNotAuthorized:      http.StatusForbidden,
	log.CodeTooOld:             http.StatusConflict,
	log.CodeUndecided:          http.StatusInternalServerError,
	log.CodeSkipped:            http.StatusConflict,
	log.CodeIDReused:           http.StatusConflict,
	vmrule.Code:                vmrule.Status,
}

// RefusalStatus is the status of a refusal with that code.
func RefusalStatus(code string) int {
	if status, ok := refusalStatus[code]; ok {
		return status
	}
	return http.StatusUnprocessableEntity
}

// Refused is the answer to a change that the log refused.
func Refused(r *log.Refusal) *Error {
	return &Error{Status: RefusalStatus(r.Code), Code: r.Code, Message: r.Message, Errors: r.Errors}
}

// ExceededOf returns the budget that an error reports as used up, or nil.
func ExceededOf(err error) *budget.Exceeded {
	var exceeded *budget.Exceeded
	errors.As(err, &exceeded)
	return exceeded
}

// Bounded returns the error within the limits of a refusal, because it may quote a
// whole body.
func (e *Error) Bounded() *Error {
	message := strings.ReplaceAll(e.Message, "\n", "; ") // of joined errors
	r := (&log.Refusal{Code: e.Code, Message: message, Errors: e.Errors}).Bounded()
	cut := *e
	cut.Code, cut.Message, cut.Errors = r.Code, r.Message, r.Errors
	return &cut
}

// RetryAfter returns when to retry: a 503 after 1 s, and a used-up budget when there is
// enough of it again. The budget may be nil.
func RetryAfter(w http.ResponseWriter, status int, exceeded *budget.Exceeded) {
	switch {
	case exceeded != nil:
		w.Header().Set("Retry-After", strconv.Itoa(exceeded.Seconds()))
	case status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
}
