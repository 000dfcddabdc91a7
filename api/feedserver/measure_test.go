package feedserver

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/audit"
	"rutter/api/internal/apitest"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// programmed returns how many times to the kernel were measured, and the seconds in all.
func programmed(t *testing.T, s *Server) (count uint64, seconds float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "rutter_programmed_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatal("there is no histogram")
	return 0, 0
}

// The CN that an entry concerns is asked to say at once that it has it, and the time until
// it does is measured. The time of one that claims more than it was sent is not.
func TestTimeToTheKernel(t *testing.T) {
	for _, lies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.feed = feedOf(b.Store, slog.DiscardHandler, liveness.NewTable(1, time.Now), func(audit.Record) {})
			b.Furnish()
			m := apitest.NewMirror(apitest.CN1)
			m.Until = 1 << 62
			c := b.connect(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Follow(t.Context(), m.Hello(), m) }()
			synctest.Wait()
			say := func(seq log.Seq) {
				c.Watermark(feed.Watermark{Log: m.Now.Cursor, Applied: seq, Programmed: seq})
				synctest.Wait()
			}
			say(m.Now.Cursor.Seq)
			if n, _ := programmed(t, b.feed); n != 0 {
				t.Errorf("%d times of a CN that was sent no entry", n)
			}
			time.Sleep(feed.TellLazily / 4) // what it was not asked for would come later
			b.Must("PUT", "/nic_tags/external", `{"mtu":1600}`)
			synctest.Wait()
			head := b.Store.Head().Seq
			time.Sleep(40 * time.Millisecond)
			if lies {
				say(head + 1000)
			} else {
				say(head)
			}
			n, seconds := programmed(t, b.feed)
			switch {
			case lies && n != 0:
				t.Error("a lie was measured")
			case !lies && (n != 1 || seconds != .04):
				t.Errorf("%d times, %v s", n, seconds)
			}
			c.Close()
			<-ended
			<-c.Done
			if n := len(b.feed.sessions.nodes()); n != 0 {
				t.Errorf("%d sessions are measured after the end", n)
			}
		})
	}
}
