package backend

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
)

// Names of our headers.
const (
	headerAge = "Rutter-Age" // milliseconds since this server knew that it was up to date
)

// Codes of errors beside those of packages log and rest.
const (
	CodeOtherLog = "CursorOfOtherLog" // 409
	codeAhead    = "CursorAhead"      // 409
	codeClock    = "ServersClocks"    // 503
)

// ErrorOf converts any error into an answer.
func ErrorOf(err error) *rest.Error {
	var answer *rest.Error
	var refusal *log.Refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, ErrUnknown): // other errors that it wraps belong to another attempt
		return unknown(err)
	case errors.As(err, &refusal):
		return rest.Refused(refusal)
	case errors.As(err, &tooLarge):
		return rest.Fail(http.StatusRequestEntityTooLarge, rest.CodeTooLarge, "send less, in several requests", "the body is over %d bytes", tooLarge.Limit)
	case errors.Is(err, log.ErrOtherLog):
		return rest.Fail(http.StatusConflict, CodeOtherLog, "read the state anew, then follow from its Rutter-Cursor", "the cursor is of another log than this cluster's")
	case errors.Is(err, log.ErrAhead):
		return rest.Fail(http.StatusConflict, codeAhead, "if the seq came from this cluster, try again; else read the state anew", "this place is beyond the head of this log%s", aside(err, log.ErrAhead))
	case errors.Is(err, log.ErrCompacted):
		return rest.Fail(http.StatusGone, rest.CodeCompacted, "read the state anew, then follow from its Rutter-Cursor", "the log no longer keeps what follows this place%s", aside(err, log.ErrCompacted))
	case rest.ExceededOf(err) != nil:
		exceeded := rest.ExceededOf(err)
		answer := rest.Fail(http.StatusTooManyRequests, rest.CodeBudget, "nothing was done; come again when Retry-After says, with less, or have an operator raise the budget (rutter server --budget)", "%v", exceeded)
		answer.Budget = exceeded
		return answer
	case errors.Is(err, ErrNoLeader):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "nothing was written; try again in a second", "the cluster has no leader now")
	case errors.Is(err, log.ErrNoRoom):
		return rest.Fail(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written; delete what is not needed, or give the servers' disks more room: rutter cluster status", "%v", err)
	case errors.Is(err, ErrOverloaded):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "nothing was written; try again later, and less", "too many changes are waiting")
	case errors.Is(err, ErrClock):
		return rest.Fail(http.StatusServiceUnavailable, codeClock, "nothing was written; rutter cluster time shows the servers' clocks: whoever runs them sets them right", "%v", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "try again, or another server", "this server could not answer in time")
	}
	return rest.Fail(http.StatusInternalServerError, rest.CodeInternal, "see the server's log", "%v", err)
}

// aside returns the text of an error before its sentinel, such as where the head is.
func aside(err, sentinel error) string {
	if said, ok := strings.CutSuffix(err.Error(), ": "+sentinel.Error()); ok {
		return ": " + said
	}
	return ""
}

// WriteError answers with err.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	answer := ErrorOf(err).Bounded()
	rest.RetryAfter(w, answer.Status, answer.Budget)
	rest.WriteJSON(w, r, answer.Status, answer)
}
