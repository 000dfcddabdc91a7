package logserver

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"rutter/api/internal/rest"
	"rutter/log"
)

// behind is a server that has not applied all that the leader has.
type behind struct {
	Store
	head, leader log.Seq
}

func (b *behind) Head() log.Cursor { return log.Cursor{Seq: b.head} }
func (b *behind) Floor() log.Seq   { return 0 }

func (b *behind) Consistent(context.Context) (log.Seq, error) {
	b.head = b.leader
	return b.leader, nil
}

// TestBareSeqAtAServerBehind: a tail that continues from a bare seq, as those of older programs
// do, is not refused by a server that only has not applied it yet.
func TestBareSeqAtAServerBehind(t *testing.T) {
	for after, want := range map[string]error{"5": nil, "9": nil, "10": log.ErrAhead} {
		r := httptest.NewRequest("GET", "/log?after="+after, nil)
		p, err := rest.AnyQuery(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := From(r, &behind{head: 5, leader: 9}, p); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("after %s: got %v, want %v", after, err, want)
		}
	}
}
