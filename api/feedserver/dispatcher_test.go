package feedserver

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/feed"
)

// A scope that has not changed is encoded once for all who begin to hold it; one
// that changed is encoded anew.
func TestScopesAreSharedUntilTheyChange(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	b.NIC(apitest.FabricA, apitest.CN2)
	first := apitest.NewMirror(apitest.CN1)
	first.Until = 1 << 62
	marks := make(chan log.Seq, 64)
	first.Check = func(_ *apitest.Mirror, at log.Seq) error { marks <- at; return nil }
	c := b.connect(t.Context())
	go func() { _ = c.Follow(t.Context(), first.Hello(), first) }() // keeps the watcher there
	<-marks
	b.sync(t, apitest.NewMirror(apitest.CN2))
	img := b.feed.snapshots.of[log.VNetScope(apitest.VNetA)]
	if img == nil || !img.done || img.count == 0 {
		t.Fatalf("no image of the vnet is kept: %+v", img)
	}
	b.Must("POST", "/nic_tags", `{"name":"elsewhere"}`) // moves the head, and not the vnet
	again := apitest.NewMirror(apitest.CN2)
	again.Number = 10
	b.sync(t, again)
	if b.feed.snapshots.of[log.VNetScope(apitest.VNetA)] != img {
		t.Error("the image was made anew, though the vnet has not changed")
	}
	b.NIC(apitest.FabricA, apitest.CN3)
	for <-marks < b.Store.Head().Seq { // the watcher has read it
	}
	if b.feed.snapshots.of[log.VNetScope(apitest.VNetA)] == img {
		t.Error("the image outlived a change of the vnet")
	}
	last := apitest.NewMirror(apitest.CN2)
	last.Number = 20
	b.sync(t, last) // compares with the log
	c.Close()
	<-c.Done
}

// More streams than may be in the middle of whole scopes are told to come again.
func TestSnapshotsAreBounded(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.feed.sending.Store(MaxSnapshots)
	var drain *feed.DrainError
	if err := b.follow(t, apitest.NewMirror(apitest.CN1), 1); !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainBusy || !strings.Contains(drain.Drain.Text, "try again") {
		t.Errorf("got %v, want to be told to come again", err)
	}
	b.feed.sending.Store(MaxSnapshots - 1)
	b.sync(t, apitest.NewMirror(apitest.CN2))
	if n := b.feed.sending.Load(); n != MaxSnapshots-1 {
		t.Errorf("%d streams are counted after they ended, want %d", n, MaxSnapshots-1)
	}
}

// Subscribers are sent away some time apart, and all within drainMost.
func TestDrainIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Furnish()
		const n = 100
		ends := make(chan time.Duration, n)
		var began time.Time
		for i := range n {
			m := apitest.NewMirror(log.UUID{0: 1, 15: byte(i)})
			m.Until = 1 << 62
			go func() {
				c := b.connect(t.Context())
				err := c.Follow(t.Context(), m.Hello(), m)
				var drain *feed.DrainError
				if !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainShutdown {
					t.Errorf("got %v, want to be sent away", err)
				}
				<-c.Done
				ends <- time.Since(began)
			}()
		}
		synctest.Wait()
		began = time.Now()
		b.feed.Drain()
		var last time.Duration
		for range n {
			last = max(last, <-ends)
		}
		if last < n*drainSpread/2 || last > drainMost {
			t.Errorf("the last was sent away after %v, want %v or so", last, n*drainSpread)
		}
	})
}

// Who is waited for is asked at once, and says at once how far it is.
func TestWatermarksComeWhenWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Furnish()
		m := apitest.NewMirror(apitest.CN1)
		m.Until = 1 << 62
		c := b.connect(t.Context())
		head := b.Store.Head().Seq
		go func() { _ = c.Follow(t.Context(), m.Hello(), m) }()
		tell := func(seq log.Seq) { c.Watermark(feed.Watermark{Applied: seq, Programmed: seq}) }
		synctest.Wait() // it was sent all, and may say so
		tell(head - 1)
		synctest.Wait()
		tell(head)
		synctest.Wait()
		known := func() log.Seq {
			s, _ := b.feed.Session(apitest.CN1)
			return s.Watermark.Programmed
		}
		if got := known(); got != head-1 {
			t.Fatalf("programmed %d is known, want %d: nobody waits", got, head-1)
		}
		began := time.Now()
		b.feed.sessions.want(head, []log.UUID{apitest.CN1})
		for known() != head {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v until the watermark came", took)
		}
		c.Close()
		<-c.Done
	})
}

// Streams that catch up and wait for their sockets do not keep others from it.
func TestSlowCatchUpsHoldNobodyUp(t *testing.T) {
	c := newDispatcher(func(func()) {})
	slow := &task{dispatcher: c, catchingUp: true}
	c.mu.Lock()
	c.working, c.catching = 1, spareWorkers
	c.unfinished = []*task{{}}
	if u, _ := c.nextLocked(); u != nil {
		t.Errorf("a turn beyond the %d for those who catch up", spareWorkers)
	}
	c.limit = 0 // no worker is started for it here
	c.mu.Unlock()
	slow.block(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if u, late := c.nextLocked(); u == nil || !late {
			t.Error("nobody catches up while another waits for its socket")
		}
		c.catching--
	})
	if c.catching != spareWorkers || c.working != 1 {
		t.Errorf("%d catch up and %d work afterwards", c.catching, c.working)
	}
}

// The more streams, the longer what comes next is waited for, within bounds.
func TestPace(t *testing.T) {
	for streams, want := range map[int64]time.Duration{
		0: 0, paceFrom - 1: 0, 67: 1675 * time.Microsecond, 200: 5 * time.Millisecond,
		333: 14975 * time.Microsecond, 1000: paceSteepMost, 2000: 50 * time.Millisecond, 10_000: paceMost,
	} {
		if got := paceOf(streams); got != want {
			t.Errorf("%d streams: %v, want %v", streams, got, want)
		}
	}
	for n := int64(1); n < 5000; n++ {
		if paceOf(n) < paceOf(n-1) {
			t.Fatalf("%d streams wait less than %d", n, n-1)
		}
	}
}
