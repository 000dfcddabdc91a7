package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log/feed"
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
		if row.What != matrix.NoRoute && !slices.Contains(endpoints, row.What) {
			t.Errorf("the row %q is of nothing that is served", row.What)
		}
	}
}

// Each type of frame has a row.
func TestEveryFrameHasARow(t *testing.T) {
	for n := range 256 {
		name, known := frameNames[feed.Type(n)]
		if known && matrix.Find("feed down "+name) == nil {
			t.Errorf("frame %d (%s) has no row", n, name)
		}
		if !known && n > 0 && feed.Type(n) <= feed.TypeTell {
			t.Errorf("frame %d of the feed has no name here: it would never be sent", n)
		}
	}
	var none answers
	for _, role := range append(matrix.Roles(), matrix.None) {
		who := matrix.Identity{Role: role}
		a := answersFor(who)
		if role == matrix.None && a != none {
			t.Error("nobody is sent something")
		}
	}
}
