package vmapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/budget"
)

// failing is a store that takes no change.
type failing struct {
	*memory
	err error
}

func (f failing) Propose(context.Context, *log.Change) (log.Result, error) {
	return log.Result{}, f.err
}

// TestBudgetIsNamed: who has used one up is told which, and when to come again.
func TestBudgetIsNamed(t *testing.T) {
	m, _ := world(t)
	s, err := New(Config{Store: failing{m, fmt.Errorf("overloaded: %w", &budget.Exceeded{Name: budget.ForeignBytes, Who: "192.0.2.1", Wait: 6500 * time.Millisecond})}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/vms/"+theVM.String()+"?action=update_nics", strings.NewReader(`{"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.77/24"]}]}`)))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "7" || !strings.Contains(w.Body.String(), `"BudgetExceeded"`) {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}
