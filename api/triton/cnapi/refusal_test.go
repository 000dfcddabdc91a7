package cnapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/budget"
)

// TestRefusalsAreAnswered: a refusal of the log has its status, and an answer is
// within a refusal's limits.
func TestRefusalsAreAnswered(t *testing.T) {
	w := httptest.NewRecorder()
	writeError(w, httptest.NewRequest(http.MethodGet, "/", nil), &log.Refusal{Code: log.CodeUndecided, Message: strings.Repeat("x", 300<<10)})
	if n := w.Body.Len(); w.Code != http.StatusInternalServerError || n > log.MaxResultBytes {
		t.Errorf("status %d with %d bytes", w.Code, n)
	}
}

// failingStore is a store that takes no change.
type failingStore struct {
	*apitest.Memory
	err error
}

func (f failingStore) Propose(context.Context, *log.Change) (log.Result, error) {
	return log.Result{}, f.err
}

// TestBudgetIsNamed: who has used one up is told which, and when to come again.
func TestBudgetIsNamed(t *testing.T) {
	s := newService(t, newMemory(), nil)
	s.store = failingStore{newMemory(), fmt.Errorf("overloaded: %w", &budget.Exceeded{Name: budget.ForeignBytes, Who: "192.0.2.1", Wait: 6500 * time.Millisecond})}
	_, err := s.propose(t.Context(), nil)
	w := httptest.NewRecorder()
	if writeError(w, httptest.NewRequest(http.MethodGet, "/", nil), err); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "7" || !strings.Contains(w.Body.String(), "foreign_bytes of 192.0.2.1") {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

// TestNullBodyWithQuery: a body that is null is no fields, and those of the query count.
func TestNullBodyWithQuery(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/allocate?nic_tags=a", strings.NewReader(" null\n"))
	fields, err := fieldsOf(r)
	if err != nil || len(fields) != 1 || string(fields["nic_tags"]) != `"a"` {
		t.Errorf("%s, %v", fields, err)
	}
	s := newService(t, newMemory(), nil)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/allocate?a=1", strings.NewReader("null")))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"field":"image"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
