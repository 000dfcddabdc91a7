package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/budget"
	"rutter/log/intake"
	"rutter/log/vmrule"
)

// Names of our headers.
const (
	headerSeq      = "Rutter-Seq"       // the seq that an answer is as of; of a long list, when it began
	headerAge      = "Rutter-Age"       // milliseconds since this server knew that it was up to date
	headerChangeID = "Rutter-Change-Id" // of a write, chosen by the client or by us
	headerCursor   = "Rutter-Cursor"    // of the head, with answers of GET /log
	headerChain    = "Rutter-Chain"     // SEQ:HASH of the first entry of an answer in the binary form
)

// Codes of errors beside those of package log.
const (
	codeBadRequest  = "BadRequest"           // 400
	codeNoRoute     = "ResourceNotFound"     // 404, as restify says it
	codeNoMethod    = "MethodNotAllowed"     // 405
	codeOtherLog    = "CursorOfOtherLog"     // 409
	codeAhead       = "CursorAhead"          // 409
	codeCompacted   = "CursorCompacted"      // 410
	codeTooLarge    = "RequestTooLarge"      // 413
	codeContentType = "UnsupportedMediaType" // 415
	codeLimited     = "RequestThrottled"     // 429, restify's word
	codeBudget      = "BudgetExceeded"       // 429: the answer names the budget
	codeInternal    = "InternalError"        // 500
	codeNotHere     = "NotImplemented"       // 501
	codeReadOnly    = "ReadOnly"             // 403
	codeNoLeader    = "NoLeader"             // 503
	codeOverloaded  = "Overloaded"           // 503
	codeUnknown     = "OutcomeUnknown"       // 503
	codeNotReady    = "NotReady"             // 503
	codeNotYet      = "NotYetApplied"        // 503
	codeClock       = "ServersClocks"        // 503
)

// answerError is an error with its status. Its JSON form is NAPI's
// (spec/napi.md section 3.3), with a remedy beside it.
type answerError struct {
	status  int
	Code    string           `json:"code"`
	Message string           `json:"message"`
	Remedy  string           `json:"remedy,omitempty"`
	Errors  []log.FieldError `json:"errors,omitempty"`
	// Fabric is what is known of a write that not every CN has programmed.
	Fabric *liveness.Verdict `json:"fabric,omitempty"`
	// Budget is the one that is used up, with when to come again.
	Budget *budget.Exceeded `json:"budget,omitempty"`
}

func (e *answerError) Error() string { return e.Code + ": " + e.Message }

func fail(status int, code, remedy, format string, args ...any) *answerError {
	return &answerError{status: status, Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// badParameter is NAPI's answer to a parameter that is wrong.
func badParameter(field, code, remedy, format string, args ...any) *answerError {
	return &answerError{
		status: http.StatusUnprocessableEntity, Code: log.CodeInvalidParameters, Message: "Invalid parameters",
		Errors: []log.FieldError{{Field: field, Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy}},
	}
}

func notFound(what string) *answerError {
	return fail(http.StatusNotFound, log.CodeResourceNotFound, "", "%s not found", what)
}

// refusalStatus are the statuses of refusals (spec/napi.md section 3.3).
var refusalStatus = map[string]int{
	log.CodeInvalidParameters:  http.StatusUnprocessableEntity,
	log.CodeInUse:              http.StatusUnprocessableEntity,
	log.CodeSubnetFull:         http.StatusInsufficientStorage,
	log.CodeResourceNotFound:   http.StatusNotFound,
	log.CodePreconditionFailed: http.StatusPreconditionFailed,
	log.CodeNotAuthorized:      http.StatusForbidden,
	log.CodeTooOld:             http.StatusConflict,
	log.CodeUndecided:          http.StatusInternalServerError,
	log.CodeSkipped:            http.StatusConflict,
	log.CodeIDReused:           http.StatusConflict,
	vmrule.Code:                vmrule.Status,
}

// errorOf turns any error into an answer.
func errorOf(err error) *answerError {
	var answer *answerError
	var refusal *log.Refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, ErrUnknown): // whatever else it wraps is of another try
		return unknown(err)
	case errors.As(err, &refusal):
		status, known := refusalStatus[refusal.Code]
		if !known {
			status = http.StatusUnprocessableEntity
		}
		return &answerError{status: status, Code: refusal.Code, Message: refusal.Message, Errors: refusal.Errors}
	case errors.As(err, &tooLarge):
		return fail(http.StatusRequestEntityTooLarge, codeTooLarge, "send less, in several requests", "the body is over %d bytes", tooLarge.Limit)
	case errors.Is(err, log.ErrOtherLog):
		return fail(http.StatusConflict, codeOtherLog, "read the state anew, then follow from its Rutter-Cursor", "the cursor is of another log than this cluster's")
	case errors.Is(err, log.ErrAhead):
		return fail(http.StatusConflict, codeAhead, "if the seq came from this cluster, try again; else read the state anew", "this place is beyond the head of this log%s", aside(err, log.ErrAhead))
	case errors.Is(err, log.ErrCompacted):
		return fail(http.StatusGone, codeCompacted, "read the state anew, then follow from its Rutter-Cursor", "the log no longer keeps what follows this place%s", aside(err, log.ErrCompacted))
	case exceededOf(err) != nil:
		exceeded := exceededOf(err)
		answer := fail(http.StatusTooManyRequests, codeBudget, "nothing was done; come again when Retry-After says, with less, or have an operator raise the budget (rutter server --budget)", "%v", exceeded)
		answer.Budget = exceeded
		return answer
	case errors.Is(err, ErrNoLeader):
		return fail(http.StatusServiceUnavailable, codeNoLeader, "nothing was written; try again in a second", "the cluster has no leader now")
	case errors.Is(err, log.ErrNoRoom):
		return fail(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written; delete what is not needed, or give the servers' disks more room: rutter cluster status", "%v", err)
	case errors.Is(err, ErrOverloaded):
		return fail(http.StatusServiceUnavailable, codeOverloaded, "nothing was written; try again later, and less", "too many changes are waiting")
	case errors.Is(err, ErrClock):
		return fail(http.StatusServiceUnavailable, codeClock, "nothing was written; rutter cluster time shows the servers' clocks: whoever runs them sets them right", "%v", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fail(http.StatusServiceUnavailable, codeNotYet, "try again, or another server", "this server could not answer in time")
	}
	return fail(http.StatusInternalServerError, codeInternal, "see the server's log", "%v", err)
}

// exceededOf is the budget that an error says is used up, or nil.
func exceededOf(err error) *budget.Exceeded {
	var exceeded *budget.Exceeded
	errors.As(err, &exceeded)
	return exceeded
}

// bounded returns the answer within the limits of a refusal, of which it may quote
// a whole body.
func (e *answerError) bounded() *answerError {
	message := strings.ReplaceAll(e.Message, "\n", "; ") // of errors that were joined
	r := (&log.Refusal{Code: e.Code, Message: message, Errors: e.Errors}).Bounded()
	cut := *e
	cut.Code, cut.Message, cut.Errors = r.Code, r.Message, r.Errors
	return &cut
}

// aside is what an error says before its sentinel, such as where the head is.
func aside(err, sentinel error) string {
	if said, ok := strings.CutSuffix(err.Error(), ": "+sentinel.Error()); ok {
		return ": " + said
	}
	return ""
}

// writeError answers with err.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	answer := errorOf(err).bounded()
	if answer.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if answer.Budget != nil {
		w.Header().Set("Retry-After", strconv.Itoa(answer.Budget.Seconds()))
	}
	writeJSON(w, r, answer.status, answer)
}

// writeJSON answers with v; HEAD gets the header of the same answer.
func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		fmt.Fprintf(&b, "{\"code\":%q,\"message\":%q}\n", codeInternal, "the answer cannot be printed: "+err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b.Bytes()) // a client that left is told nothing
	}
}

// jsonLine prints v on one line.
func jsonLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

// codeOf says on the wire why a change was not decided.
func codeOf(err error) intake.Code {
	var answer *answerError
	switch {
	case errors.Is(err, ErrUnknown):
		return intake.CodeUnknown
	case exceededOf(err) != nil:
		return intake.CodeBudget
	case errors.Is(err, ErrOverloaded), errors.Is(err, ErrClock):
		return intake.CodeOverloaded
	case errors.Is(err, ErrNoLeader):
		return intake.CodeNoLeader
	case errors.Is(err, log.ErrNoRoom):
		return intake.CodeNoRoom
	case errors.Is(err, log.ErrTooLarge), errors.As(err, &answer):
		return intake.CodeBad
	}
	return intake.CodeUnknown
}
