package feedserver

import (
	"context"
	"errors"
	"slices"
	"testing"

	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/feed"
)

// Each start ends with a bookmark that has digests.
func TestFeedDigests(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	if m.Digests != 4 {
		t.Errorf("%d digests at the first bookmark, want 4", m.Digests)
	}
	b.NIC(apitest.FabricA, apitest.CN2)
	b.sync(t, m)
	if m.Digests != 8 {
		t.Errorf("%d digests after the second start, want 8", m.Digests)
	}
}

// A scope that is asked for is sent anew, and nothing else; the next bookmark
// has digests, and what was asked for is counted.
func TestFeedAgain(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	marks := make(chan int, 64)
	m.Check = func(m *apitest.Mirror, _ log.Seq) error { marks <- m.Digests; return nil }
	m.Until = 1 << 62
	c := b.connect(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Follow(ctx, m.Hello(), m) }()
	before := <-marks
	c.Again(feed.Again{At: b.Store.Head().Seq, Scope: log.VNetScope(apitest.VNetA)})
	for now := range marks {
		if now >= before+4 {
			break
		}
	}
	if f, _ := b.feed.Session(apitest.CN1); f.Repaired != 1 {
		t.Errorf("%d scopes repaired, want 1", f.Repaired)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-c.Done
	want := []string{"begin all", "begin cn:" + apitest.CN1.String(), "begin vnet:1001", "begin network:" + apitest.UUID(0xe1).String(), "begin vnet:1001"}
	if !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
	if held := m.Now.Scopes; len(held) != 4 {
		t.Errorf("holds %v", held)
	}
}
