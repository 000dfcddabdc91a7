package napi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api/backend"
	"rutter/log"
	"rutter/log/budget"
)

// TestStatusOfUndecided: a change on which the servers' program failed is their fault.
func TestStatusOfUndecided(t *testing.T) {
	if p := ofRefusal(&log.Refusal{Code: log.CodeUndecided}); p.status != http.StatusInternalServerError {
		t.Errorf("status %d", p.status)
	}
}

// TestNotWritten: who has used up a budget is told which and when to come again, and
// that nothing was written where that is known, at once; else that it is not known.
func TestNotWritten(t *testing.T) {
	exceeded := fmt.Errorf("%w: %w", backend.ErrOverloaded, &budget.Exceeded{Name: budget.ForeignOperations, Who: "192.0.2.1", Wait: 6500 * time.Millisecond})
	for _, c := range []struct {
		errs   []error // of the tries, the last one of all that follow
		status int
		says   string
	}{
		{[]error{exceeded}, http.StatusTooManyRequests, `"BudgetExceeded"`},
		{[]error{fmt.Errorf("%w: apart", backend.ErrClock)}, http.StatusServiceUnavailable, "nothing was written"},
		{[]error{log.ErrNoRoom}, http.StatusInsufficientStorage, "NoRoom"},
		{[]error{backend.ErrUnknown, exceeded}, http.StatusServiceUnavailable, "not known whether"},
		{[]error{backend.ErrUnknown, log.ErrNoRoom}, http.StatusServiceUnavailable, "not known whether"},
	} {
		w := newWorld(t)
		w.store.fail = func(try int) (bool, error) { return false, c.errs[min(try, len(c.errs))-1] }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/nic_tags", strings.NewReader(`{"name":"other"}`))
		rec := httptest.NewRecorder()
		w.s.Handler().ServeHTTP(rec, r)
		cancel()
		if body := rec.Body.String(); rec.Code != c.status || !strings.Contains(body, c.says) || c.status == http.StatusTooManyRequests && rec.Header().Get("Retry-After") != "7" {
			t.Errorf("%v: %d %s %v", c.errs, rec.Code, body, rec.Header())
		}
	}
}
