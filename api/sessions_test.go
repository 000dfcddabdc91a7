package api

import (
	"errors"
	"testing"
	"testing/synctest"

	"rutter/api/internal/apitest"
	"rutter/log/feed"
)

// What a CN says of itself is shown, and a newer session takes the place of an older one.
func TestSessions(t *testing.T) { synctest.Test(t, testSessions) }

func testSessions(t *testing.T) {
	b := newBed(t)
	b.furnish()
	m := apitest.NewMirror(cn1)
	m.Until = 1 << 62
	c := b.connect()
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(t.Context(), m.Hello(), m) }()
	synctest.Wait() // it was sent all, and may say so
	c.Watermark(feed.Watermark{Applied: 3, Programmed: 2, Links: 7})
	synctest.Wait()
	o := b.must("GET", "/cns/"+cn1.String(), "")
	if o["applied"] != 3.0 || o["programmed"] != 2.0 || o["links"] != 7.0 || o["hostname"] != "cn1" || o["server"] != "s1" || o["lag_entries"] != float64(b.store.Head().Seq-3) {
		t.Errorf("session: got %v", o)
	}
	// The same session again is refused; a newer one takes its place.
	var drain *feed.DrainError
	again := apitest.NewMirror(cn1)
	if err := b.Follow(t.Context(), b.connect(), again, 0); !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainReplaced {
		t.Errorf("same session again: got %v, want to be sent away", err)
	}
	again.Number = 7
	b.Sync(t, b.connect(), again)
	if err := <-ended; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainReplaced {
		t.Errorf("old session: got %v, want to be replaced", err)
	}
	<-c.Done
	if n := b.s.feed.SessionCount(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
