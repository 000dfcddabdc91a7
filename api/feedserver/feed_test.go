package feedserver

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

	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/feed"
)

func TestFeedFirstStart(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	b.NIC(apitest.FabricA, apitest.CN2)
	b.NIC(apitest.FabricB, apitest.CN3)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	want := []string{"begin all", "begin cn:" + apitest.CN1.String(), "begin vnet:1001", "begin network:" + apitest.UUID(0xe1).String()}
	if !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
	if _, leaked := m.Now.Records[apitest.Key(log.KindServer, apitest.CN2.String())]; leaked {
		t.Error("the server object of another CN was sent")
	}
}

func TestFeedOfEmptyLog(t *testing.T) {
	b := newBed(t)
	b.sync(t, apitest.NewMirror(apitest.CN1))
}

// SAFETY F5: the order of a start: drops, entries of scopes that stay, new scopes.
func TestFeedStartOrder(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	mac := b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	// While apitest.CN1 is away it leaves fabric A and joins fabric B.
	b.Must("POST", "/nic_tags", `{"name":"more"}`)
	b.Must("DELETE", "/nics/"+mac, "")
	b.NIC(apitest.FabricA, apitest.CN2)
	b.NIC(apitest.FabricB, apitest.CN1)
	b.sync(t, m)
	want := []string{"dropped vnet:1001", "entry create nic_tag", "entry delete nic", "entry create nic", "begin vnet:1002"}
	if !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
}

// A cursor at the head, with a scope that is wanted and not held.
func TestFeedStartAtHead(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	delete(m.Kept.Scopes, log.VNetScope(apitest.VNetA))
	m.Kept.Scopes[log.VNetScope(apitest.VNetB)] = 3
	b.sync(t, m)
	if want := []string{"dropped vnet:1002", "begin vnet:1001"}; !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
}

// SAFETY F1: the underlay NIC of a CN enters a vnet with the CN's first NIC,
// and leaves it with the last, without events of its own.
func TestFeedUnderlayClosure(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	underlay2 := apitest.Key(log.KindNIC, fmt.Sprintf(apitest.UnderlayMAC, 2))
	delete(m.Kept.Records, underlay2) // it came with the underlay network, which servers share
	mac := b.NIC(apitest.FabricA, apitest.CN2)
	b.sync(t, m)
	if want := []string{"entry create nic", "object " + underlay2 + " in vnet:1001"}; !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
	b.Must("DELETE", "/nics/"+mac, "")
	b.sync(t, m)
	// In one stream: it leaves and comes back, and is sent again.
	mac = b.NIC(apitest.FabricA, apitest.CN2)
	b.Must("DELETE", "/nics/"+mac, "")
	b.NIC(apitest.FabricA, apitest.CN2)
	b.sync(t, m)
}

// Interest that changes while the stream is live.
func TestFeedLiveInterest(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	m := apitest.NewMirror(apitest.CN1)
	m.Until = 1 << 62
	bookmarks := make(chan log.Seq, 64)
	m.Check = func(m *apitest.Mirror, at log.Seq) error {
		bookmarks <- at
		return b.Compare(m, at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := b.connect(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(ctx, m.Hello(), m) }()
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
	reach(b.Store.Head().Seq)
	mac := b.NIC(apitest.FabricB, apitest.CN1)
	reach(b.Store.Head().Seq)
	b.NIC(apitest.FabricB, apitest.CN2)
	reach(b.Store.Head().Seq)
	b.Must("DELETE", "/nics/"+mac, "")
	reach(b.Store.Head().Seq)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	<-c.Done
	text := strings.Join(m.Calls, ", ")
	for _, want := range []string{"entry create nic, begin vnet:1002", "entry delete nic, dropped vnet:1002"} {
		if !strings.Contains(text, want) {
			t.Errorf("calls lack %q: %s", want, text)
		}
	}
}

func TestFeedRefusesCursors(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	good := apitest.NewMirror(apitest.CN1)
	b.sync(t, good)
	head := b.Store.Head()
	ahead := head
	ahead.Seq += 10
	other := head
	other.Cluster = apitest.OwnerA
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
			m := apitest.NewMirror(apitest.CN1)
			m.Kept = good.Kept.Clone()
			m.Kept.Cursor = test.cursor
			b.sync(t, m)
			if test.want != "" && (len(m.Calls) < 2 || m.Calls[0] != test.want) {
				t.Errorf("calls %q, want %q first", m.Calls, test.want)
			}
		})
	}
	t.Run("compacted", func(t *testing.T) {
		m := apitest.NewMirror(apitest.CN1)
		m.Kept = good.Kept.Clone()
		b.NIC(apitest.FabricA, apitest.CN1)
		b.NIC(apitest.FabricB, apitest.CN2)
		b.Store.Compact()
		b.restart()
		b.sync(t, m)
		if m.Calls[0] != "reset compacted" {
			t.Errorf("calls %q, want a reset first", m.Calls)
		}
	})
	t.Run("as-of ahead", func(t *testing.T) {
		m := apitest.NewMirror(apitest.CN1)
		m.Kept = good.Kept.Clone()
		m.Kept.Cursor = b.Store.Head()
		m.Kept.Scopes[log.AllScope()] += 1000
		b.sync(t, m)
		if m.Calls[0] != "reset ahead" {
			t.Errorf("calls %q, want a reset first", m.Calls)
		}
	})
	t.Run("ahead, and no leader to say so", func(t *testing.T) {
		b.Store.Fail(apitest.Errors{Consistent: errors.New("no quorum")})
		defer b.Store.Fail(apitest.Errors{})
		m := apitest.NewMirror(apitest.CN1)
		m.Kept = good.Kept.Clone()
		m.Kept.Cursor = b.Store.Head()
		m.Kept.Cursor.Seq++
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
		"other version": {CN: apitest.CN1, Version: 99},
	} {
		c := b.connect(t.Context())
		var drain *feed.DrainError
		err := c.Follow(t.Context(), hello, apitest.NewMirror(apitest.CN1))
		if <-c.Done; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainRefused {
			t.Errorf("%s: got %v, want to be refused", name, err)
		}
	}
}

// A quiet stream gets bookmarks and answers to pings, and lives.
func TestFeedQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Furnish()
		m := apitest.NewMirror(apitest.CN1)
		m.Until = 1 << 62
		n := 0
		m.Check = func(*apitest.Mirror, log.Seq) error { n++; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := b.connect(ctx)
		if err := c.Follow(ctx, m.Hello(), m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want to live for a minute", err)
		}
		<-c.Done
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
			hello, err := feed.Append(nil, &feed.Hello{CN: apitest.CN1})
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
		err := b.serve(far)
		if took := time.Since(begin); err == nil || took < silenceTime || took > 2*silenceTime {
			t.Errorf("got %v after %s, want an error after %s", err, took, silenceTime)
		}
		near.Close()
	})
}

// A log that is replaced ends the streams of the one before, wherever the new one ends, and
// nothing of it is sent on them (SAFETY F6). That a stream would end with the next entry
// only is not enough: until then its bookmarks would be of no log.
func TestReplacedLogEndsTheStream(t *testing.T) {
	for extra := -1; extra <= 1; extra++ {
		for name, cluster := range map[string]log.UUID{"restored": apitest.OwnerA, "rebuilt": {}} {
			t.Run(fmt.Sprintf("%s, %+d", name, extra), func(t *testing.T) {
				b := newBed(t)
				b.Furnish()
				head := b.Store.Head()
				if cluster.IsZero() {
					cluster = head.Cluster
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				m := apitest.NewMirror(apitest.CN1)
				replaced := false
				m.Check = func(_ *apitest.Mirror, at log.Seq) error {
					if at == head.Seq && !replaced {
						replaced = true
						b.Store.Replace(t, cluster, 3, int(head.Seq)-3+extra)
					}
					return nil
				}
				err := b.Follow(ctx, b.connect(ctx), m, 1<<62)
				var drain *feed.DrainError
				if !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainFailed || !strings.Contains(drain.Drain.Text, "replaced") {
					t.Errorf("got %v, want to be told that the log was replaced", err)
				}
				for key := range m.Now.Records {
					if strings.Contains(key, "other") {
						t.Errorf("the stream of before has %q of the new log", key)
					}
				}
			})
		}
	}
}
