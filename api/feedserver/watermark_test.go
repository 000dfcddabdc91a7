package feedserver

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/internal/apitest"
	"rutter/api/internal/nodemetrics"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// What a CN says of itself is held against what its session was told.
func TestWhatACNCanKnow(t *testing.T) {
	here, there := apitest.UUID(1), apitest.UUID(2)
	chain := func(seq log.Seq) log.ChainPrefix { return log.ChainPrefix{byte(seq), byte(seq >> 8), 7} }
	at := func(cluster log.UUID, seq log.Seq) feed.Watermark {
		return feed.Watermark{Log: log.Cursor{Cluster: cluster, Chain: chain(seq)}, Applied: seq, Programmed: seq}
	}
	with := func(w feed.Watermark, change func(*feed.Watermark)) feed.Watermark { change(&w); return w }
	const all = log.Seq(1 << 62)
	// Each history begins after a hello at 100, of which some is known to be right,
	// and bookmarks at 110 and 120.
	type step struct {
		w    feed.Watermark
		want log.Seq // applied, as it is believed
		lie  string  // part of why it is a lie
	}
	for name, c := range map[string]struct {
		hello    log.Cursor
		accepted bool
		reset    log.Seq // after the bookmarks; the bookmark that follows it
		steps    []step
	}{
		"honest":                           {log.Cursor{Cluster: here, Seq: 100, Chain: chain(100)}, true, 0, []step{{at(here, 100), 100, ""}, {at(here, 110), 110, ""}, {at(here, 120), 120, ""}}},
		"a new agent":                      {log.Cursor{}, false, 0, []step{{at(here, 0), 0, ""}, {at(here, 110), 110, ""}}},
		"beyond":                           {log.Cursor{Cluster: here, Seq: 100, Chain: chain(100)}, true, 0, []step{{at(here, all), 0, "nothing beyond 120"}}},
		"one beyond":                       {log.Cursor{}, false, 0, []step{{at(here, 121), 0, "nothing beyond 120"}}},
		"beyond, of no log":                {log.Cursor{}, false, 0, []step{{at(log.UUID{}, all), 0, "nothing beyond 120"}}},
		"kernel beyond itself":             {log.Cursor{}, false, 0, []step{{with(at(here, 110), func(w *feed.Watermark) { w.Programmed = 120 }), 0, "its kernel"}}},
		"reached beyond itself":            {log.Cursor{}, false, 0, []step{{with(at(here, 110), func(w *feed.Watermark) { w.Reached, w.List = 120, 1 }), 0, "its kernel"}}},
		"back":                             {log.Cursor{}, false, 0, []step{{at(here, 120), 120, ""}, {at(here, 110), 0, "was at 120"}}},
		"back to nothing":                  {log.Cursor{}, false, 0, []step{{at(here, 120), 120, ""}, {at(here, 0), 0, ""}, {at(here, 120), 120, ""}}},
		"kernel back":                      {log.Cursor{}, false, 0, []step{{at(here, 110), 110, ""}, {with(at(here, 120), func(w *feed.Watermark) { w.Programmed = 0 }), 120, ""}}},
		"another log":                      {log.Cursor{}, false, 0, []step{{at(there, 110), 0, "neither this one"}}},
		"another chain":                    {log.Cursor{}, false, 0, []step{{with(at(here, 110), func(w *feed.Watermark) { w.Log.Chain[7] = 1 }), 0, "chain"}}},
		"a bookmark that did not count":    {log.Cursor{}, false, 0, []step{{with(at(here, 110), func(w *feed.Watermark) { w.Log.Chain = chain(120) }), 110, ""}}},
		"digests beyond":                   {log.Cursor{}, false, 0, []step{{at(here, 110), 110, ""}, {with(at(here, 120), func(w *feed.Watermark) { w.Checked = 121 }), 0, "digests"}}},
		"digests of a log that was longer": {log.Cursor{}, false, 0, []step{{with(at(here, 110), func(w *feed.Watermark) { w.Checked = 500 }), 110, ""}, {with(at(here, 120), func(w *feed.Watermark) { w.Checked = 500 }), 120, ""}}},

		"before its hello":             {log.Cursor{Cluster: here, Seq: 100, Chain: chain(100)}, true, 0, []step{{at(here, 90), 0, ""}, {at(here, 110), 110, ""}}},
		"of the hello's other log":     {log.Cursor{Cluster: there, Seq: 500}, false, 0, []step{{at(there, 500), 500, ""}, {at(here, 110), 110, ""}, {at(there, 500), 0, "its session is of"}}},
		"beyond the hello's other log": {log.Cursor{Cluster: there, Seq: 500}, false, 0, []step{{at(there, 501), 0, "its session is of"}}},
		// The hello was refused as ahead of the log; what it said is on its way once more.
		"ahead":                                    {log.Cursor{Cluster: here, Seq: 500, Chain: chain(500)}, false, 0, []step{{at(here, 500), 0, ""}, {at(here, 110), 110, ""}, {at(here, 500), 0, "nothing beyond 120"}}},
		"ahead of what it said":                    {log.Cursor{Cluster: here, Seq: 500, Chain: chain(500)}, false, 0, []step{{at(here, 501), 0, "nothing beyond 120"}}},
		"of before a reset":                        {log.Cursor{}, false, 130, []step{{at(here, 120), 0, ""}, {at(here, 130), 130, ""}}},
		"of before a reset to a shorter log":       {log.Cursor{}, false, 115, []step{{at(here, 120), 0, ""}, {at(here, 115), 115, ""}, {at(here, 120), 0, "nothing beyond 115"}}},
		"of before a reset, after one of after it": {log.Cursor{}, false, 105, []step{{at(here, 105), 105, ""}, {at(here, 110), 0, "nothing beyond 105"}}},
	} {
		v := &verifier{hello: c.hello}
		v.begin(here, c.accepted)
		v.sent(110, chain(110))
		v.sent(120, chain(120))
		if c.reset > 0 {
			v.restart()
			v.sent(c.reset, chain(c.reset))
		}
		for i, s := range c.steps {
			got, err := v.verify(s.w)
			switch {
			case s.lie == "" && (err != nil || got.Applied != s.want || got.Far() > got.Applied):
				t.Errorf("%s, watermark %d: got applied %d, %v; want %d", name, i, got.Applied, err, s.want)
			case s.lie != "" && (err == nil || !strings.Contains(err.Error(), s.lie)):
				t.Errorf("%s, watermark %d: got applied %d, %v; want a lie: %s", name, i, got.Applied, err, s.lie)
			}
			if got.Checked > 130 && s.lie == "" {
				t.Errorf("%s: digests at %d are believed", name, got.Checked)
			}
		}
	}
}

// Of many bookmarks only the last are remembered with their chain; all are known.
func TestVerifierIsBounded(t *testing.T) {
	v := &verifier{}
	v.begin(apitest.UUID(1), false)
	for seq := log.Seq(1); seq <= 10*maxBookmarks; seq++ {
		v.sent(seq, log.ChainPrefix{byte(seq)})
		v.sent(seq, log.ChainPrefix{byte(seq)})
	}
	if len(v.bookmarks) != maxBookmarks || cap(v.bookmarks) > 2*maxBookmarks {
		t.Errorf("%d marks, room for %d", len(v.bookmarks), cap(v.bookmarks))
	}
	w := feed.Watermark{Log: log.Cursor{Cluster: apitest.UUID(1), Chain: log.ChainPrefix{3}}, Applied: 3}
	if got, err := v.verify(w); err != nil || got.Applied != 3 {
		t.Errorf("an early bookmark: %v, %v", got, err)
	}
}

// A CN that claims more than it was sent is sent away with a reason of its own, is
// noted, and was not believed for a moment: neither on its session nor by what the
// leader is told.
func TestLyingWatermark(t *testing.T) {
	const far = log.Seq(1 << 62)
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var notes []audit.Record
			var s *session
			table := liveness.NewTable(1, time.Now)
			b := newBed(t)
			b.feed = feedOf(b.Store, slog.DiscardHandler, table, func(r audit.Record) { notes = append(notes, r) })
			b.Furnish()
			m := apitest.NewMirror(apitest.CN1)
			m.Until = 1 << 62
			c := b.connect(t.Context())
			lie := feed.Watermark{Log: log.Cursor{Cluster: b.Store.Cluster()}, Applied: far, Programmed: far}
			if early {
				c.Watermark(lie) // goes out right behind the hello
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Follow(t.Context(), m.Hello(), m) }()
			synctest.Wait()
			if !early {
				c.Watermark(feed.Watermark{Log: m.Now.Cursor, Applied: m.Now.Cursor.Seq, Programmed: m.Now.Cursor.Seq})
				synctest.Wait()
				if s = b.feed.sessions.get(apitest.CN1); s == nil || s.live().Programmed != b.Store.Head().Seq {
					t.Fatalf("the honest watermark does not count: %+v", s)
				}
				c.Watermark(lie)
			}
			var drain *feed.DrainError
			if err := <-ended; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainDisbelieved || !strings.Contains(drain.Drain.Text, "nothing beyond") {
				t.Errorf("early %v: got %v, want to be sent away as disbelieved", early, err)
			}
			<-c.Done
			if live := table.Live(); len(live) > 0 {
				t.Errorf("early %v: the session counts still", early)
			}
			if s != nil && (s.live().Programmed > b.Store.Head().Seq || s.live().Applied > b.Store.Head().Seq) {
				t.Errorf("%+v was believed", s.live())
			}
			found := 0
			for _, r := range notes {
				if r.Event == audit.Disbelieved && strings.Contains(r.Asked, apitest.CN1.String()) && strings.Contains(r.Why, far.String()) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("early %v: %d audit records of it: %+v", early, found, notes)
			}
			if got := counted(t, b.feed, "rutter_feed_disbelieved_total"); got != 1 {
				t.Errorf("the metric counts %v", got)
			}
		})
	}
}

// TestListIsThatOfItsNumber: a watermark without its list is of the list of that number
// that came before it on the session, also before the hello was checked. Without that
// list only Programmed counts. What is from before a reset counts for nothing.
func TestListIsThatOfItsNumber(t *testing.T) {
	waits := []feed.Wait{{Kind: feed.WaitVNet, VNet: 7}}
	at := func(seq log.Seq, list uint32, listed bool) feed.Watermark {
		w := feed.Watermark{Log: log.Cursor{Cluster: apitest.UUID(1)}, Applied: seq, Programmed: 1, Reached: seq, List: list, Listed: listed}
		if listed {
			w.Waits = waits
		}
		return w
	}
	for _, early := range []bool{true, false} {
		g := newSessions(liveness.NewTable(1, time.Now))
		a := newSession(&feed.Hello{CN: apitest.CN1, Incarnation: 1, Session: 1}, "", func(reason) {}, nodemetrics.New(nil).NewNode())
		g.add(a)
		begin := func() {
			a.setSent(110, log.ChainPrefix{})
			a.setSent(130, log.ChainPrefix{})
			if err := g.begin(a, apitest.UUID(1), false); err != nil {
				t.Fatal(err)
			}
		}
		if !early {
			begin()
		}
		for i, c := range []struct {
			w       feed.Watermark
			reached log.Seq
			waits   int
		}{
			{at(110, 2, true), 110, 1}, {at(111, 2, false), 111, 1}, {at(112, 3, false), 0, 0}, {at(113, 3, true), 113, 1}, {at(114, 0, false), 0, 0}, {at(115, 3, false), 0, 0},
		} {
			if c.w.List == 0 {
				c.w.Reached = 0
			}
			if err := g.take(a, c.w); err != nil {
				t.Fatal(err)
			}
			if early && i == 0 {
				continue
			}
			if early && i == 1 {
				begin()
			}
			if got := a.live(); got.Reached != c.reached || len(got.Waits) != c.waits || got.Programmed != 1 {
				t.Errorf("early %v, watermark %d: reached %d with %d objects, want %d with %d", early, i, got.Reached, len(got.Waits), c.reached, c.waits)
			}
		}
		if a.setReset(); g.take(a, at(115, 4, true)) != nil || a.live().Reached != 0 {
			t.Errorf("from before a reset: reached %d", a.live().Reached)
		}
	}
}
