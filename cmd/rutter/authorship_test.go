package main

import (
	"net/http/httptest"
	"testing"

	"rutter/api/access"
	"rutter/log"
)

// TestSpeaksFor: the reports of a compute node take its own certificate, or none
// where none is asked for.
func TestSpeaksFor(t *testing.T) {
	cn, other := log.UUID{0xc, 15: 1}, log.UUID{0xc, 15: 2}
	for _, c := range []struct {
		who access.Identity
		may bool
	}{
		{access.Identity{Role: access.CN, UUID: cn}, true},
		{access.Identity{Role: access.CN, UUID: other}, false},
		{access.Identity{Role: access.Local, Name: "127.0.0.1"}, true},
		{access.Identity{Role: access.Operator, Name: "ann"}, false},
		{access.Identity{Role: access.Server, Name: "s1"}, false},
		{access.Identity{Role: access.Reader, Name: "bob"}, false},
		{access.Identity{Role: access.Foreign, Name: "10.0.0.1", Write: true}, false},
	} {
		r := httptest.NewRequest("POST", "/"+cn.String(), nil)
		if err := speaksFor(r.WithContext(access.With(r.Context(), c.who)), cn); (err == nil) != c.may {
			t.Errorf("%s %s: %v", c.who.Role, c.who.Name, err)
		}
	}
	if err := speaksFor(httptest.NewRequest("POST", "/"+cn.String(), nil), cn); err == nil {
		t.Error("somebody whom nobody looked at may speak for a compute node")
	}
}
