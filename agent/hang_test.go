package agent

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// until waits for something that happens without the test's action.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: in vain", what)
		}
	}
}

// TestNodeOnADiskThatHangs: a transaction that does not end delays neither links nor
// lookups. The node reports it, and everything is on disk when it ends.
func TestNodeOnADiskThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	n := newNode(t, newCrowd(t))
	defer n.end()
	n.start()
	programmed := func() bool { return n.agent.Status().Programmed == n.s.head() }
	until(t, "the first pass", programmed)
	cache, persister := n.agent.cache, n.agent.persister
	cache.mu.Lock() // as a transaction does
	for i := range 2 {
		n.s.change(nicOp(t, macOf(90+i), 1, 1, 1, ""))
		until(t, "a NIC while the disk hangs", programmed)
	}
	if !n.answers() {
		t.Error("lookups do not answer")
	}
	until(t, "a transaction", func() bool {
		persister.mu.Lock()
		defer persister.mu.Unlock()
		if persister.began.IsZero() {
			return false
		}
		persister.began = persister.began.Add(-2 * hangTime)
		return true
	})
	if s := n.agent.Status(); !strings.Contains(s.Cache.Failure, "hangs") || len(s.Trouble) != 1 || s.Cache.Waiting == 0 {
		t.Errorf("it says %+v, %v", s.Cache, s.Trouble)
	}
	cache.mu.Unlock()
	until(t, "all on disk", func() bool {
		s := n.agent.Status()
		_, owes := cache.pendingNumbers()
		return s.Cache.Failure == "" && s.Cache.Waiting == 0 && !owes
	})
	before := n.kernel.String()
	n.stop()
	n.s.setDown(true, "one")
	n.kernel = newNode(t, n.s).kernel
	n.start()
	until(t, "the links from the cache", func() bool { return n.agent.Status().Kernel.Matched })
	if got := n.kernel.String(); got != before {
		t.Errorf("from its cache the node makes\n%s\nwant\n%s", got, before)
	}
}

// hungFile accepts no byte until it is released.
type hungFile struct {
	wait   chan struct{}
	writes int
}

// WriteAt implements io.WriterAt.
func (f *hungFile) WriteAt(b []byte, _ int64) (int, error) {
	<-f.wait
	f.writes++
	return len(b), nil
}

// Close implements io.Closer.
func (*hungFile) Close() error { return nil }

// TestTellingsOnADiskThatHangs: one answer waits a moment for the disk, the others do
// not wait, until the disk accepts bytes again.
func TestTellingsOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := &hungFile{wait: make(chan struct{})}
		told := &answerLog{logger: silent(), inUse: make(chan struct{}, 1), file: file, slots: make(map[answerKey]int)}
		note := func(pos uint64, want time.Duration) {
			t.Helper()
			began := time.Now()
			told.note(pos, 1, log.MAC{5: byte(pos)}, netip.Addr{})
			if took := time.Since(began); took != want {
				t.Errorf("position %d took %s, want %s", pos, took, want)
			}
		}
		note(1, diskPatience)
		note(2, 0)
		close(file.wait)
		synctest.Wait()
		note(3, 0)
		if file.writes != 2 || told.hangs.Load() {
			t.Errorf("%d writes, hangs %v; want those of 1 and 3", file.writes, told.hangs.Load())
		}
	})
}

// TestPaidNumbersAreNotWrittenAgain: numbers that waited for a transaction do not cause
// another one each second.
func TestPaidNumbersAreNotWrittenAgain(t *testing.T) {
	c, r, p := opened(t, t.TempDir())
	defer c.Close()
	c.numbers, c.numbersDirty = []byte(`{}`), true
	for range 3 {
		if err := p.commit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, owes := c.pendingNumbers(); owes || p.status().Commits != 1 || r.waiting() != 0 {
		t.Errorf("owes %v after %d transactions, want one", owes, p.status().Commits)
	}
}

// TestNothingIsTakenUnjudged: a reset may come after the cache's writer checked that it
// may write, and before it takes the rows. Those rows are not written.
func TestNothingIsTakenUnjudged(t *testing.T) {
	_, r, _ := caughtUp(t)
	r.view.share = defaultHoldShare
	_, messages := newTestServer(2).hello(t, r.cn, r.cursor, nil)
	deliverAll(t, r, messages)
	if b, ok := r.take(); ok || r.view.phase != unjudged || r.view.old == nil {
		t.Errorf("took %d rows and %+v of a view that nobody has judged", b.rows(), b.Head)
	}
}
