package api

import (
	"context"
	"errors"
	"slices"
	"testing"

	"rutter/log"
	"rutter/log/feed"
)

// Each start ends with a bookmark that has digests.
func TestFeedDigests(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	m := newMirror(cn1)
	b.sync(t, m)
	if m.digests != 4 {
		t.Errorf("%d digests at the first bookmark, want 4", m.digests)
	}
	b.nic(fabricA, cn2)
	b.sync(t, m)
	if m.digests != 8 {
		t.Errorf("%d digests after the second start, want 8", m.digests)
	}
}

// A scope that is asked for is sent anew, and nothing else; the next bookmark
// has digests, and what was asked for is counted.
func TestFeedAgain(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	m := newMirror(cn1)
	marks := make(chan int, 64)
	m.check = func(m *mirror, _ log.Seq) error { marks <- m.digests; return nil }
	m.until = 1 << 62
	c := b.connect(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Follow(ctx, m.hello(), m) }()
	before := <-marks
	c.Again(feed.Again{At: b.store.Head().Seq, Scope: log.VNetScope(vnetA)})
	for now := range marks {
		if now >= before+4 {
			break
		}
	}
	if f := b.s.cns.get(cn1).form(b.store.Head().Seq, "s1"); f.Repaired != 1 {
		t.Errorf("%d scopes repaired, want 1", f.Repaired)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-c.done
	want := []string{"begin all", "begin cn:" + cn1.String(), "begin vnet:1001", "begin network:" + testUUID(0xe1).String(), "begin vnet:1001"}
	if !slices.Equal(m.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.calls, want)
	}
	if held := m.now.scopes; len(held) != 4 {
		t.Errorf("holds %v", held)
	}
}
