package storeapi

import (
	"net/http/httptest"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// TestSpeaksFor: a report of a compute node needs that node's certificate, or no
// certificate on a server without TLS.
func TestSpeaksFor(t *testing.T) {
	cn, other := log.UUID{0xc, 15: 1}, log.UUID{0xc, 15: 2}
	for _, c := range []struct {
		who matrix.Identity
		may bool
	}{
		{matrix.Identity{Role: matrix.CN, UUID: cn}, true},
		{matrix.Identity{Role: matrix.CN, UUID: other}, false},
		{matrix.Identity{Role: matrix.Local, Name: "127.0.0.1"}, true},
		{matrix.Identity{Role: matrix.Operator, Name: "ann"}, false},
		{matrix.Identity{Role: matrix.Server, Name: "s1"}, false},
		{matrix.Identity{Role: matrix.Reader, Name: "bob"}, false},
		{matrix.Identity{Role: matrix.Foreign, Name: "10.0.0.1", Write: true}, false},
	} {
		r := httptest.NewRequest("POST", "/"+cn.String(), nil)
		if err := SpeaksFor(r.WithContext(matrix.With(r.Context(), c.who)), cn); (err == nil) != c.may {
			t.Errorf("%s %s: %v", c.who.Role, c.who.Name, err)
		}
	}
	if err := SpeaksFor(httptest.NewRequest("POST", "/"+cn.String(), nil), cn); err == nil {
		t.Error("a client without an identity may speak for a compute node")
	}
}
