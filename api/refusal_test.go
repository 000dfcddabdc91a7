package api

import (
	"net/http"
	"strings"
	"testing"

	"rutter/log"
)

// TestAnswersQuoteLittle: what an answer says of a body is within a refusal's limits.
func TestAnswersQuoteLittle(t *testing.T) {
	b := newBed(t)
	b.furnish()
	long := strings.Repeat("x", 300<<10)
	for _, body := range []string{
		`{"` + long + `":1}`, `{"name":"a","mtu":"` + long + `"}`, `{"ops":[{"action":"` + long + `"}]}`,
		`{"ops":[{"action":"delete","kind":"nic","id":"` + long + `"}]}`, `{"` + long + `":[]}`,
	} {
		for _, path := range []string{"/nic_tags", "/changes"} {
			w := b.call("POST", path, body)
			if n := w.Body.Len(); w.Code < 400 || n > 2*log.MaxResultBytes {
				t.Errorf("POST %s %.40s…: %d with %d bytes", path, body, w.Code, n)
			}
		}
	}
}

// TestStatusOfUndecided: a change on which the servers' program failed is their fault.
func TestStatusOfUndecided(t *testing.T) {
	if got := errorOf(&log.Refusal{Code: log.CodeUndecided}).Status; got != http.StatusInternalServerError {
		t.Errorf("status %d", got)
	}
}
