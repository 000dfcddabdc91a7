package napi

import (
	"net/http"
	"testing"

	"rutter/log"
)

// TestStatusOfUndecided: a change on which the servers' program failed is their fault.
func TestStatusOfUndecided(t *testing.T) {
	if p := ofRefusal(&log.Refusal{Code: log.CodeUndecided}); p.status != http.StatusInternalServerError {
		t.Errorf("status %d", p.status)
	}
}
