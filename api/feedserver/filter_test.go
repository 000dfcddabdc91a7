package feedserver

import (
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log/feed"
)

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
	var none frameRights
	for _, role := range append(matrix.Roles(), matrix.None) {
		who := matrix.Identity{Role: role}
		a := rightsOf(who)
		if role == matrix.None && a != none {
			t.Error("nobody is sent something")
		}
	}
}
