package storeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/raftstore"
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

// TestAwaitLeader: a surface says that it is not ready for want of a leader only when there
// was none for a while, and anything else at once.
func TestAwaitLeader(t *testing.T) {
	asked := 0
	elected := func() error {
		if asked++; asked < 4 {
			return fmt.Errorf("now: %w", raftstore.ErrNoLeader)
		}
		return nil
	}
	if err := awaitLeader(t.Context(), elected); err != nil || asked != 4 {
		t.Errorf("an election: %v after %d", err, asked)
	}
	for _, want := range []error{raftstore.ErrNoLeader, raftstore.ErrNotReady} {
		asked = 0
		never := func() error { asked++; return want }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if errors.Is(want, raftstore.ErrNoLeader) {
			cancel() // as that of a client that has gone
		}
		if err := awaitLeader(ctx, never); !errors.Is(err, want) || asked != 1 {
			t.Errorf("%v: %v after %d", want, err, asked)
		}
		cancel()
	}
}
