package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
)

// Each endpoint has a row, and each row of a request an endpoint.
func TestEveryEndpointHasARow(t *testing.T) {
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	endpoints := s.Endpoints()
	for _, name := range endpoints {
		if strings.HasPrefix(name, http.MethodHead+" ") {
			name = http.MethodGet + strings.TrimPrefix(name, http.MethodHead)
		}
		if matrix.Find(name) == nil {
			t.Errorf("%s has no row in api/auth/matrix: say who may do it, and why", name)
		}
	}
	for _, row := range matrix.Requests() {
		if row.What != matrix.NoRoute && row.What != matrix.Malformed && !slices.Contains(endpoints, row.What) {
			t.Errorf("the row %q is of nothing that is served", row.What)
		}
	}
}
