package cnapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/log"
)

// TestRefusalsAreAnswered: a refusal of the log has its status, and an answer is
// within a refusal's limits.
func TestRefusalsAreAnswered(t *testing.T) {
	w := httptest.NewRecorder()
	writeError(w, &log.Refusal{Code: log.CodeUndecided, Message: strings.Repeat("x", 300<<10)})
	if n := w.Body.Len(); w.Code != http.StatusInternalServerError || n > log.MaxResultBytes {
		t.Errorf("status %d with %d bytes", w.Code, n)
	}
}
