package api

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// A scope that has not changed is encoded once for all who begin to hold it; one
// that changed is encoded anew.
func TestScopesAreSharedUntilTheyChange(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	b.nic(fabricA, cn2)
	first := newMirror(cn1)
	first.until = 1 << 62
	marks := make(chan log.Seq, 64)
	first.check = func(_ *mirror, at log.Seq) error { marks <- at; return nil }
	c := b.connect(t.Context())
	go func() { _ = c.Follow(t.Context(), first.hello(), first) }() // keeps the watcher there
	<-marks
	b.sync(t, newMirror(cn2))
	img := b.s.images.of[log.VNetScope(vnetA)]
	if img == nil || !img.done || img.count == 0 {
		t.Fatalf("no image of the vnet is kept: %+v", img)
	}
	b.must("POST", "/nic_tags", `{"name":"elsewhere"}`) // moves the head, and not the vnet
	again := newMirror(cn2)
	again.number = 10
	b.sync(t, again)
	if b.s.images.of[log.VNetScope(vnetA)] != img {
		t.Error("the image was made anew, though the vnet has not changed")
	}
	b.nic(fabricA, cn3)
	for <-marks < b.store.Head().Seq { // the watcher has read it
	}
	if b.s.images.of[log.VNetScope(vnetA)] == img {
		t.Error("the image outlived a change of the vnet")
	}
	last := newMirror(cn2)
	last.number = 20
	b.sync(t, last) // compares with the log
	c.Close()
	<-c.done
}

// More streams than may be in the middle of whole scopes are told to come again.
func TestSnapshotsAreBounded(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.s.snapshots.Store(MaxSnapshots)
	var drain *feed.DrainError
	if err := b.follow(t, newMirror(cn1), 1); !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainBusy || !strings.Contains(drain.Drain.Text, "try again") {
		t.Errorf("got %v, want to be told to come again", err)
	}
	b.s.snapshots.Store(MaxSnapshots - 1)
	b.sync(t, newMirror(cn2))
	if n := b.s.snapshots.Load(); n != MaxSnapshots-1 {
		t.Errorf("%d streams are counted after they ended, want %d", n, MaxSnapshots-1)
	}
}

// Subscribers are sent away some time apart, and all within drainMost.
func TestDrainIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.furnish()
		const n = 100
		ends := make(chan time.Duration, n)
		var began time.Time
		for i := range n {
			m := newMirror(log.UUID{0: 1, 15: byte(i)})
			m.until = 1 << 62
			go func() {
				c := b.connect(t.Context())
				err := c.Follow(t.Context(), m.hello(), m)
				var drain *feed.DrainError
				if !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainShutdown {
					t.Errorf("got %v, want to be sent away", err)
				}
				<-c.done
				ends <- time.Since(began)
			}()
		}
		synctest.Wait()
		began = time.Now()
		b.s.Drain()
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
		b.furnish()
		m := newMirror(cn1)
		m.until = 1 << 62
		c := b.connect(t.Context())
		head := b.store.Head().Seq
		go func() { _ = c.Follow(t.Context(), m.hello(), m) }()
		tell := func(seq log.Seq) { c.Watermark(feed.Watermark{Applied: seq, Programmed: seq}) }
		synctest.Wait() // it was sent all, and may say so
		tell(head - 1)
		synctest.Wait()
		tell(head)
		synctest.Wait()
		known := func() log.Seq { return b.s.cns.get(cn1).form(head, "s1").Programmed }
		if got := known(); got != head-1 {
			t.Fatalf("programmed %d is known, want %d: nobody waits", got, head-1)
		}
		began := time.Now()
		b.s.crew.want(head, []log.UUID{cn1})
		for known() != head {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v until the watermark came", took)
		}
		c.Close()
		<-c.done
	})
}

// Streams that catch up and wait for their sockets do not keep others from it.
func TestSlowCatchUpsHoldNobodyUp(t *testing.T) {
	b := newBed(t)
	c := b.s.crew
	slow := &subscriber{behind: true}
	c.mu.Lock()
	c.working, c.catching = 1, spareWorkers
	c.late = []*subscriber{{}}
	if u, _ := c.nextLocked(); u != nil {
		t.Errorf("a turn beyond the %d for those who catch up", spareWorkers)
	}
	c.most = 0 // nobody is started for it here
	c.mu.Unlock()
	c.blocking(slow, func() {
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

func TestLimitListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	l := s.guard.Listener(inner, 1)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	var first net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if first == nil {
			first = <-accepted
		}
	}
	select {
	case <-accepted:
		t.Fatal("a second connection was accepted, over the limit")
	case <-time.After(20 * time.Millisecond): // it cannot be waited for that nothing comes
	}
	first.Close()
	first.Close() // gives its slot back once
	second := <-accepted
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	second.Close()
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
