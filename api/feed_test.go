package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

func TestFeedFirstStart(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	b.nic(fabricA, cn2)
	b.nic(fabricB, cn3)
	m := newMirror(cn1)
	b.sync(t, m)
	want := []string{"begin all", "begin cn:" + cn1.String(), "begin vnet:1001", "begin network:" + testUUID(0xe1).String()}
	if !slices.Equal(m.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.calls, want)
	}
	if _, leaked := m.now.records[key(log.KindServer, cn2.String())]; leaked {
		t.Error("the server object of another CN was sent")
	}
}

func TestFeedOfEmptyLog(t *testing.T) {
	b := newBed(t)
	b.sync(t, newMirror(cn1))
}

// SAFETY F5: the order of a start: drops, entries of scopes that stay, new scopes.
func TestFeedStartOrder(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	m := newMirror(cn1)
	b.sync(t, m)
	// While cn1 is away it leaves fabric A and joins fabric B.
	b.must("POST", "/nic_tags", `{"name":"more"}`)
	b.must("DELETE", "/nics/"+mac, "")
	b.nic(fabricA, cn2)
	b.nic(fabricB, cn1)
	b.sync(t, m)
	want := []string{"dropped vnet:1001", "entry create nic_tag", "entry delete nic", "entry create nic", "begin vnet:1002"}
	if !slices.Equal(m.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.calls, want)
	}
}

// A cursor at the head, with a scope that is wanted and not held.
func TestFeedStartAtHead(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	m := newMirror(cn1)
	b.sync(t, m)
	delete(m.kept.scopes, log.VNetScope(vnetA))
	m.kept.scopes[log.VNetScope(vnetB)] = 3
	b.sync(t, m)
	if want := []string{"dropped vnet:1002", "begin vnet:1001"}; !slices.Equal(m.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.calls, want)
	}
}

// SAFETY F1: the underlay NIC of a CN enters a vnet with the CN's first NIC,
// and leaves it with the last, without events of its own.
func TestFeedUnderlayClosure(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	m := newMirror(cn1)
	b.sync(t, m)
	underlay2 := key(log.KindNIC, fmt.Sprintf(underlayMAC, 2))
	delete(m.kept.records, underlay2) // it came with the underlay network, which servers share
	mac := b.nic(fabricA, cn2)
	b.sync(t, m)
	if want := []string{"entry create nic", "object " + underlay2 + " in vnet:1001"}; !slices.Equal(m.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.calls, want)
	}
	b.must("DELETE", "/nics/"+mac, "")
	b.sync(t, m)
	// In one stream: it leaves and comes back, and is sent again.
	mac = b.nic(fabricA, cn2)
	b.must("DELETE", "/nics/"+mac, "")
	b.nic(fabricA, cn2)
	b.sync(t, m)
}

// Interest that changes while the stream is live.
func TestFeedLiveInterest(t *testing.T) {
	b := newBed(t)
	b.furnish()
	m := newMirror(cn1)
	m.until = 1 << 62
	bookmarks := make(chan log.Seq, 64)
	m.check = func(m *mirror, at log.Seq) error {
		bookmarks <- at
		return b.compare(m, at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := b.connect(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(ctx, m.hello(), m) }()
	reach := func(seq log.Seq) {
		t.Helper()
		for {
			select {
			case at := <-bookmarks:
				if at >= seq {
					return
				}
			case err := <-ended:
				t.Fatalf("stream ended: %v", err)
			}
		}
	}
	reach(b.store.Head().Seq)
	mac := b.nic(fabricB, cn1)
	reach(b.store.Head().Seq)
	b.nic(fabricB, cn2)
	reach(b.store.Head().Seq)
	b.must("DELETE", "/nics/"+mac, "")
	reach(b.store.Head().Seq)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	<-c.done
	text := strings.Join(m.calls, ", ")
	for _, want := range []string{"entry create nic, begin vnet:1002", "entry delete nic, dropped vnet:1002"} {
		if !strings.Contains(text, want) {
			t.Errorf("calls lack %q: %s", want, text)
		}
	}
}

func TestFeedRefusesCursors(t *testing.T) {
	b := newBed(t)
	b.furnish()
	good := newMirror(cn1)
	b.sync(t, good)
	head := b.store.Head()
	ahead := head
	ahead.Seq += 10
	other := head
	other.Cluster = ownerA
	chain := head
	chain.Chain[0] ^= 1
	for name, test := range map[string]struct {
		cursor log.Cursor
		want   string
	}{
		"ahead":                    {ahead, "reset ahead"},
		"other cluster":            {other, "reset other log"},
		"other chain":              {chain, "reset other log"},
		"no cursor, scopes held":   {log.Cursor{}, "reset other log"},
		"same cluster, first seqs": {log.Cursor{Cluster: head.Cluster}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(cn1)
			m.kept = good.kept.clone()
			m.kept.cursor = test.cursor
			b.sync(t, m)
			if test.want != "" && (len(m.calls) < 2 || m.calls[0] != test.want) {
				t.Errorf("calls %q, want %q first", m.calls, test.want)
			}
		})
	}
	t.Run("compacted", func(t *testing.T) {
		m := newMirror(cn1)
		m.kept = good.kept.clone()
		b.nic(fabricA, cn1)
		b.nic(fabricB, cn2)
		b.store.compact()
		b.s.tail.items = nil
		b.sync(t, m)
		if m.calls[0] != "reset compacted" {
			t.Errorf("calls %q, want a reset first", m.calls)
		}
	})
	t.Run("as-of ahead", func(t *testing.T) {
		m := newMirror(cn1)
		m.kept = good.kept.clone()
		m.kept.cursor = b.store.Head()
		m.kept.scopes[log.AllScope()] += 1000
		b.sync(t, m)
		if m.calls[0] != "reset ahead" {
			t.Errorf("calls %q, want a reset first", m.calls)
		}
	})
	t.Run("ahead, and no leader to say so", func(t *testing.T) {
		b.store.failReads = errors.New("no quorum")
		defer func() { b.store.failReads = nil }()
		m := newMirror(cn1)
		m.kept = good.kept.clone()
		m.kept.cursor = b.store.Head()
		m.kept.cursor.Seq++
		var drain *feed.DrainError
		if err := b.follow(t, m, 1); !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainBehind {
			t.Errorf("got %v, want to be sent to another server", err)
		}
	})
}

func TestFeedRefusesHellos(t *testing.T) {
	b := newBed(t)
	for name, hello := range map[string]*feed.Hello{
		"no CN":         {Session: 1},
		"other version": {CN: cn1, Version: 99},
	} {
		c := b.connect(t.Context())
		var drain *feed.DrainError
		err := c.Follow(t.Context(), hello, newMirror(cn1))
		if <-c.done; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainRefused {
			t.Errorf("%s: got %v, want to be refused", name, err)
		}
	}
}

func TestSessions(t *testing.T) { synctest.Test(t, testSessions) }

func testSessions(t *testing.T) {
	b := newBed(t)
	b.furnish()
	m := newMirror(cn1)
	m.until = 1 << 62
	c := b.connect(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(t.Context(), m.hello(), m) }()
	synctest.Wait() // it was sent all, and may say so
	c.Watermark(feed.Watermark{Applied: 3, Programmed: 2, Links: 7})
	synctest.Wait()
	o := b.must("GET", "/cns/"+cn1.String(), "")
	if o["applied"] != 3.0 || o["programmed"] != 2.0 || o["links"] != 7.0 || o["hostname"] != "cn1" || o["server"] != "s1" || o["lag_entries"] != float64(b.store.Head().Seq-3) {
		t.Errorf("session: got %v", o)
	}
	// The same session again is refused; a newer one takes its place.
	var drain *feed.DrainError
	again := newMirror(cn1)
	if err := b.follow(t, again, 0); !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainReplaced {
		t.Errorf("same session again: got %v, want to be sent away", err)
	}
	again.number = 7
	b.sync(t, again)
	if err := <-ended; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainReplaced {
		t.Errorf("old session: got %v, want to be replaced", err)
	}
	<-c.done
	if n := b.s.cns.count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// A quiet stream gets bookmarks and answers to pings, and lives.
func TestFeedQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.furnish()
		m := newMirror(cn1)
		m.until = 1 << 62
		n := 0
		m.check = func(*mirror, log.Seq) error { n++; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := b.connect(ctx)
		if err := c.Follow(ctx, m.hello(), m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want to live for a minute", err)
		}
		<-c.done
		if n < 5 {
			t.Errorf("%d bookmarks in a minute", n)
		}
	})
}

// A subscriber that says nothing more is given up.
func TestFeedSilentSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		near, far := net.Pipe()
		go func() {
			hello, err := feed.Append(nil, &feed.Hello{CN: cn1})
			if err != nil {
				t.Error(err)
			}
			_, _ = near.Write(hello)
		}()
		go func() {
			buf := make([]byte, 1024)
			for {
				if _, err := near.Read(buf); err != nil {
					return
				}
			}
		}()
		begin := time.Now()
		err := b.s.serveFeed(far)
		if took := time.Since(begin); err == nil || took < feedSilence || took > 2*feedSilence {
			t.Errorf("got %v after %s, want an error after %s", err, took, feedSilence)
		}
		near.Close()
	})
}
