package feedserver

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/internal/apitest"
	"rutter/log/feed"
)

// TestLaggingSendsAway: while a server lags, its subscribers are sent to another one within
// two rounds, and so is one that comes then. Afterwards it feeds them from their cursors.
func TestLaggingSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Furnish()
		b.NIC(apitest.FabricA, apitest.CN1)
		var lags atomic.Bool
		b.feed.lagging = func() error {
			if lags.Load() {
				return errors.New("12 s behind")
			}
			return nil
		}
		b.feed.watcher.lagging = b.feed.lagging
		const subscribers = 3 * tickEach // several parts of a round
		ended := make(chan error, subscribers)
		for i := range subscribers {
			m := apitest.NewMirror(apitest.CN1)
			m.CN[15] = byte(i) // each is a node of its own
			go func() { ended <- b.follow(t, m, 1<<62) }()
		}
		time.Sleep(3 * idleRound)
		if len(ended) > 0 {
			t.Fatalf("%d of %d ended: %v", len(ended), subscribers, <-ended)
		}
		lags.Store(true)
		time.Sleep(2 * idleRound)
		if len(ended) < subscribers {
			t.Errorf("%d of %d were sent away", len(ended), subscribers)
		}
		for range subscribers {
			if err := <-ended; !behind(err) {
				t.Fatalf("one ended by %v", err)
			}
		}
		late := apitest.NewMirror(apitest.CN1)
		if err := b.follow(t, late, 1<<62); !behind(err) {
			t.Errorf("one that came then ended by %v", err)
		}
		if n := counted(t, b.feed, "rutter_feed_lagging_drains_total"); n != subscribers+1 {
			t.Errorf("%v were counted", n)
		}
		lags.Store(false)
		b.sync(t, apitest.NewMirror(apitest.CN1))
	})
}

// behind reports whether a stream ended because its server lags.
func behind(err error) bool {
	var drain *feed.DrainError
	return errors.As(err, &drain) && drain.Drain.Reason == feed.DrainBehind && drain.Drain.Text == "12 s behind"
}
