package agent

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// servers serves one test log on any number of names, over pipes.
type servers struct {
	t *testing.T

	mu      sync.Mutex // protects what follows
	log     *testServer
	down    map[string]bool
	silent  bool
	drain   bool   // the next connection is drained after its hello
	zone    string // of the agents; each server's zone is its name
	lies    bool   // servers that are down say that they are ready
	dials   []string
	at      []time.Time // of the dials
	hellos  []*feed.Hello
	marks   []feed.Watermark
	conns   []net.Conn
	changed chan struct{}
	wg      sync.WaitGroup
}

func newServers(t *testing.T) *servers {
	s := &servers{t: t, log: newTestServer(1), down: make(map[string]bool), changed: make(chan struct{})}
	baseHistory(t, s.log, 3)
	s.log.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"))
	s.log.must(t, vmOp(t, 2, 2), nicOp(t, macOf(3), 2, 2, 1, "10.0.0.13"))
	return s
}

var errDown = errors.New("connection refused")

// Feed implements Dialer.
func (s *servers) Feed(_ context.Context, server string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials, s.at = append(s.dials, server), append(s.at, time.Now())
	if s.down[server] {
		return nil, errDown
	}
	near, far := net.Pipe()
	s.conns = append(s.conns, far)
	s.wg.Go(func() { s.serve(far) })
	return near, nil
}

func (s *servers) serve(conn net.Conn) {
	defer conn.Close()
	r := feed.NewReader(bufio.NewReader(conn))
	first, err := readMessage(r)
	if err != nil {
		return
	}
	hello := first.(*feed.Hello)
	s.mu.Lock()
	s.hellos = append(s.hellos, hello)
	session, out := s.log.hello(s.t, hello.CN, hello.Cursor, hello.Scopes)
	if s.drain {
		s.drain, out = false, append(out, &feed.Drain{Reason: feed.DrainShutdown})
	}
	s.mu.Unlock()
	pings, done := make(chan struct{}, 16), make(chan struct{})
	s.wg.Go(func() {
		defer close(done)
		for {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			switch m := m.(type) {
			case *feed.Watermark:
				s.mu.Lock()
				s.marks = append(s.marks, *m)
				s.mu.Unlock()
			case *feed.Ping:
				pings <- struct{}{}
			}
		}
	})
	for {
		for _, m := range out {
			b, err := feed.Append(nil, m)
			if err != nil {
				panic(err)
			}
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
		out = nil
		s.mu.Lock()
		changed, silent := s.changed, s.silent
		for session.pos < s.log.head() {
			out = append(out, session.next(s.t, true)...)
		}
		if len(out) > 0 {
			out = append(out, session.bookmark())
		}
		s.mu.Unlock()
		if len(out) > 0 {
			continue
		}
		select {
		case <-done:
			return
		case <-changed:
		case <-pings:
			if !silent {
				out = append(out, &feed.Pong{})
			}
		}
	}
}

func readMessage(r *feed.Reader) (feed.Message, error) {
	f, err := r.Next()
	if err != nil {
		return nil, err
	}
	return feed.Decode(f)
}

// change changes the log and sends the change to the agents.
func (s *servers) change(ops ...log.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.must(s.t, ops...)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *servers) head() log.Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.head()
}

func (s *servers) lastMark() feed.Watermark {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) == 0 {
		return feed.Watermark{}
	}
	return s.marks[len(s.marks)-1]
}

// cut closes all connections.
func (s *servers) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
}

func (s *servers) setDown(down bool, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.down[name] = down
	}
}

var (
	_ Dialer = (*client.Client)(nil)
	_ Kernel = (*link.Manager)(nil)
)

// fakeKernel records what it was asked to program.
type fakeKernel struct {
	mu     sync.Mutex // protects what follows
	passes []wanted   // without their seq; a round of Apply counts as one
	at     []time.Time
	answer func(n int) (link.Result, error)
	// matched is the result of the last pass; heard makes Apply ask for a pass.
	matched, heard bool
}

func (k *fakeKernel) Pass(_ context.Context, want desired.Links, complete bool) (link.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = false
	return k.note(wanted{links: want, complete: complete})
}

func (k *fakeKernel) note(w wanted) (result link.Result, err error) {
	k.passes, k.at = append(k.passes, w), append(k.at, time.Now())
	result.Matched = true
	if k.answer != nil {
		result, err = k.answer(len(k.passes))
	}
	k.matched = result.Matched && err == nil
	return result, err
}

// Apply does to the last wanted links what a Manager does to the kernel.
func (k *fakeKernel) Apply(_ context.Context, d desired.LinksDelta) link.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.Len() == 0 && d.Part == nil {
		return link.Result{Matched: k.matched, Look: k.heard}
	}
	last := k.passes[len(k.passes)-1]
	if d.Part != nil {
		l := &last.links
		l.VXLANs, l.VLANs, l.Fabrics, l.Neighs, l.FDB = slices.Clone(l.VXLANs), slices.Clone(l.VLANs), slices.Clone(l.Fabrics), slices.Clone(l.Neighs), slices.Clone(l.FDB)
		d.Part.Merge(l)
	}
	last.links.Neighs = slices.DeleteFunc(slices.Clone(last.links.Neighs), func(n desired.Neigh) bool {
		is := func(o desired.Neigh) bool { return o.Link == n.Link && o.IP == n.IP }
		return slices.ContainsFunc(d.NoNeighs, is) || slices.ContainsFunc(d.Neighs, is)
	})
	last.links.FDB = slices.DeleteFunc(slices.Clone(last.links.FDB), func(f desired.FDB) bool {
		is := func(o desired.FDB) bool { return o.VNet == f.VNet && o.MAC == f.MAC }
		return slices.ContainsFunc(d.NoFDB, is) || slices.ContainsFunc(d.FDB, is)
	})
	last.links.Neighs, last.links.FDB = append(last.links.Neighs, d.Neighs...), append(last.links.FDB, d.FDB...)
	slices.SortFunc(last.links.Neighs, func(a, b desired.Neigh) int {
		return cmp.Or(a.Link.Compare(b.Link), a.IP.Compare(b.IP))
	})
	slices.SortFunc(last.links.FDB, func(a, b desired.FDB) int {
		return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC))
	})
	result, _ := k.note(last)
	return result
}

func (k *fakeKernel) seen() []wanted {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.passes)
}

// hear makes a change by another program.
func (k *fakeKernel) hear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = true
}

func (k *fakeKernel) setAnswer(answer func(n int) (link.Result, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = answer
}

// running starts an agent on folder; stop ends it and frees its cache.
func running(t *testing.T, folder string, s *servers, k *fakeKernel, names ...string) (a *Agent, stop func()) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"one"}
	}
	a, err := New(Config{
		CN: cnID(1), Folder: folder, Servers: names, Dialer: s,
		Kernel: func(plan.Numbers, func(plan.Numbers) error) (Kernel, error) { return k, nil },
		Jitter: func(time.Duration) time.Duration { return 0 },
		Zone:   s.zone, AskZone: s.askZone,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return a, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		s.cut()
		s.wg.Wait()
	}
}

func TestAgentFromAChangeToTheKernel(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		s.setDown(true, "one")
		a, stop := running(t, folder, s, k)
		defer stop()
		synctest.Wait()
		if passes := k.seen(); len(passes) != 1 || passes[0].complete {
			t.Errorf("passes on an empty cache: %+v; want one, which may not remove", passes)
		}
		s.setDown(false, "one")
		time.Sleep(time.Second)
		synctest.Wait()
		check := func(when string) {
			t.Helper()
			time.Sleep(feed.TellLazily + 50*time.Millisecond) // watermarks that no barrier waits for are sent less often
			synctest.Wait()
			status := a.Status()
			if status.State != Following || status.Applied != s.head() || status.Programmed != s.head() || status.Lag != 0 {
				t.Errorf("%s: state %s, applied %d, programmed %d, lag %d; want following at %d", when, status.State, status.Applied, status.Programmed, status.Lag, s.head())
			}
			if m := s.lastMark(); m.Applied != s.head() || m.Programmed != s.head() {
				t.Errorf("%s: the server was told %+v, want %d", when, m, s.head())
			}
			passes := k.seen()
			if got, want := passes[len(passes)-1].links, desired.Of(s.log.state, cnID(1)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: the kernel is to have %+v, want %+v", when, got, want)
			}
		}
		check("at the start")
		s.change(nicOp(t, macOf(4), 2, 2, 1, "10.0.0.14"))
		synctest.Wait()
		check("after a change")
		s.change(nicOp(t, macOf(5), 1, 1, 2, "10.0.0.15"))
		synctest.Wait()
		check("after a new vnet")
		if mac, at, ok := a.VL3(101, s.log.nicIP(3)); !ok || mac != macOf(3) || at.CN != cnID(2) {
			t.Errorf("VL3: got %s %v %v", mac, at, ok)
		}
		if at, ok := a.VL2(101, macOf(3)); !ok || at.CN != cnID(2) {
			t.Errorf("VL2: got %v %v", at, ok)
		}
		var shown Status
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/status", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || shown.Programmed != s.head() || shown.State != Following {
			t.Errorf("/status: %v, %s", err, w.Body)
		}
		w = httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/ping", nil))
		if w.Code != 200 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("/ping: %d %s", w.Code, w.Body)
		}
	})
}

func (s *testServer) nicIP(n int) (ip netip.Addr) {
	r, _ := s.state.Get(log.KindNIC, macOf(n).String())
	return r.Object.(*log.NIC).IP
}

func TestAgentStartsFromItsCacheAlone(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		first, stop := running(t, folder, s, k)
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		want, incarnation := desired.Of(s.log.state, cnID(1)), first.Status().Incarnation

		s.setDown(true, "one")
		k = new(fakeKernel)
		a, stop := running(t, folder, s, k)
		defer stop()
		synctest.Wait()
		passes := k.seen()
		if len(passes) == 0 || !reflect.DeepEqual(passes[0].links, want) || !passes[0].complete {
			t.Fatalf("from the cache the kernel is to have %+v, want %+v, complete", passes, want)
		}
		if _, _, ok := a.VL3(101, s.log.nicIP(3)); !ok {
			t.Error("no lookups from the cache")
		}
		status := a.Status()
		if status.Applied != 0 || status.Programmed != 0 || status.Incarnation <= incarnation || status.State == Following {
			t.Errorf("without a server: %+v", status)
		}
		s.change(nicOp(t, macOf(4), 2, 2, 1, "10.0.0.14"))
		s.setDown(false, "one")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := a.Status(); got.Applied != s.head() || got.Programmed != s.head() || got.Resets != 0 {
			t.Errorf("with a server again: applied %d, programmed %d, resets %d; want %d and no reset", got.Applied, got.Programmed, got.Resets, s.head())
		}
	})
}

func TestBackoff(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		s.setDown(true, "one", "two")
		_, stop := running(t, folder, s, k, "one", "two")
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		var waits []time.Duration
		for n := 1; n < len(s.at); n++ {
			waits = append(waits, s.at[n].Sub(s.at[n-1]))
			if s.dials[n] == s.dials[n-1] {
				t.Errorf("attempt %d: %s again, which cannot be reached", n, s.dials[n])
			}
		}
		ms := time.Millisecond
		want := []time.Duration{100 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms}
		if len(waits) < len(want) || !slices.Equal(waits[:len(want)], want) || slices.Max(waits) != 2*time.Second {
			t.Errorf("waits: got %v, want %v and so on", waits, want)
		}
	})
}

func TestSameServerFirstThenTheNext(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		a, stop := running(t, folder, s, k, "one", "two") // the order of this node is two, one
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		s.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		s.setDown(true, "two")
		s.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"two", "two", "two", "one"}; !slices.Equal(s.dials, want) {
			t.Errorf("dials: got %v, want %v", s.dials, want)
		}
		if got := a.Status(); got.State != Following || got.Server != "one" || got.Resets != 1 {
			t.Errorf("status: %s on %s with %d resets; want following on one, and only the first reset", got.State, got.Server, got.Resets)
		}
		for n := 1; n < len(s.hellos); n++ {
			if a, b := s.hellos[n-1], s.hellos[n]; b.Incarnation != a.Incarnation || b.Session <= a.Session {
				t.Errorf("hello %d: session %d.%d after %d.%d", n, b.Incarnation, b.Session, a.Incarnation, a.Session)
			}
		}
	})
}

func TestSilentServerIsLeft(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		a, stop := running(t, folder, s, k)
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := a.Status(); got.Session != 1 {
			t.Errorf("a quiet hour: %d sessions, want 1", got.Session)
		}
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		time.Sleep(feed.SilenceLimit + 2*feed.PingEvery)
		synctest.Wait()
		if got := a.Status(); got.Session != 2 {
			t.Errorf("a silent server: %d sessions, want 2 (%s)", got.Session, got.Failure)
		}
	})
}

func TestDrainedGoesElsewhere(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		s.drain = true
		a, stop := running(t, folder, s, k, "one", "two") // the order of this node is two, one
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := a.Status(); got.State != Following || got.Server != "one" {
			t.Errorf("after a drain: %s on %s, want following on one", got.State, got.Server)
		}
	})
}

func TestProgrammedOnlyWhenMatched(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		k.answer = func(int) (link.Result, error) {
			return link.Result{Failures: []link.Failure{{Err: plan.ErrNoNamespace, RetryAt: time.Now().Add(3 * time.Second)}}, RetryAt: time.Now().Add(3 * time.Second)}, nil
		}
		a, stop := running(t, folder, s, k)
		defer stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := a.Status(); got.Applied != s.head() || got.Programmed != 0 || got.Kernel.Failing != 1 || s.lastMark().Failing != 1 {
			t.Errorf("with a failing object: applied %d, programmed %d, failing %d, mark %+v", got.Applied, got.Programmed, got.Kernel.Failing, s.lastMark())
		}
		if got := len(k.at); k.at[got-1].Sub(k.at[got-2]) != 3*time.Second {
			t.Errorf("the object was tried again after %s, want 3s", k.at[got-1].Sub(k.at[got-2]))
		}
		k.setAnswer(func(int) (link.Result, error) { return link.Result{}, errDown })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := a.Status(); got.Programmed != 0 || got.Kernel.Failure == "" {
			t.Errorf("with a kernel that cannot be read: programmed %d, error %q", got.Programmed, got.Kernel.Failure)
		}
		k.setAnswer(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := a.Status(); got.Programmed != s.head() || s.lastMark().Programmed != s.head() || got.Kernel.Failure != "" {
			t.Errorf("at last: programmed %d, mark %+v, error %q; want %d", got.Programmed, s.lastMark(), got.Kernel.Failure, s.head())
		}
		time.Sleep(time.Second) // away from a sweep
		synctest.Wait()
		passes := len(k.seen())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := len(k.seen()) - passes; got != 10 {
			t.Errorf("sweeps in 5 quiet minutes: %d, want 10", got)
		}
	})
}

// TestProgrammedIsOfBeforeThePass: what is applied during a pass does not count for it.
func TestProgrammedIsOfBeforeThePass(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		a, stop := running(t, folder, s, k)
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		at := s.head()
		block, entered := make(chan struct{}), make(chan struct{}, 1)
		k.setAnswer(func(int) (link.Result, error) {
			entered <- struct{}{}
			<-block
			return link.Result{Matched: true}, nil
		})
		s.change(nicOp(t, macOf(4), 2, 2, 1, "10.0.0.14"))
		<-entered
		synctest.Wait()
		s.change(nicOp(t, macOf(5), 2, 2, 1, "10.0.0.15"))
		synctest.Wait()
		if got := a.replica.programmedSeq(); got != at {
			t.Errorf("while the pass runs: programmed %d, want %d", got, at)
		}
		block <- struct{}{}
		<-entered // the next pass, for the second change
		if got := a.replica.programmedSeq(); got < at || got >= s.head() {
			t.Errorf("after the first pass: programmed %d, want below %d", got, s.head())
		}
		k2 := func(int) (link.Result, error) { return link.Result{Matched: true}, nil }
		close(block)
		k.setAnswer(k2)
		synctest.Wait()
		if got := a.replica.programmedSeq(); got != s.head() {
			t.Errorf("in the end: programmed %d, want %d", got, s.head())
		}
	})
}

func TestWatchWakes(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		breaks := 0
		a, err := New(Config{
			CN: cnID(1), Folder: folder, Servers: []string{"one"}, Dialer: s,
			Kernel: func(plan.Numbers, func(plan.Numbers) error) (Kernel, error) { return k, nil },
			Watch: func(ctx context.Context, wake, _ func()) error {
				breaks++
				if breaks == 1 {
					return errDown
				}
				k.hear()
				wake()
				<-ctx.Done()
				return ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.setDown(true, "one")
		if err := a.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := len(k.seen()); got != 2 {
			t.Errorf("passes: %d, want 2: the first, and that of the watch", got)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReachIsTriedAtOnce: a new carrier ends the wait between attempts.
func TestReachIsTriedAtOnce(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		s.setDown(true, "one")
		a, stop := running(t, folder, s, k)
		defer stop()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		s.setDown(false, "one")
		if got := a.Status().State; got != Waiting {
			t.Fatalf("state %s, want waiting", got)
		}
		a.follower.reachable()
		a.follower.reachable()
		synctest.Wait() // and no time passes
		if got := a.Status(); got.State != Following || got.Applied != s.head() {
			t.Errorf("after news of a carrier: %s, applied %d, want following at %d", got.State, got.Applied, s.head())
		}
	})
}

func TestNumbersAreKept(t *testing.T) {
	folder := t.TempDir()
	config := Config{CN: cnID(1), Folder: folder, Servers: []string{"one"}, Dialer: newServers(t)}
	var got plan.Numbers
	var save func(plan.Numbers) error
	config.Kernel = func(n plan.Numbers, s func(plan.Numbers) error) (Kernel, error) {
		got, save = n, s
		return new(fakeKernel), nil
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	got.Assign(macOf(1), nil)
	if err := errors.Join(save(got), a.Close()); err != nil {
		t.Fatal(err)
	}
	if a, err = New(config); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n, ok := got.Lookup(macOf(1)); !ok || n != 0 {
		t.Errorf("number of %s: got %d, %v", macOf(1), n, ok)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{
		CN: cnID(1), Folder: t.TempDir(), Servers: []string{"one"}, Dialer: newServers(t),
		Kernel: func(plan.Numbers, func(plan.Numbers) error) (Kernel, error) { return new(fakeKernel), nil },
	}
	for name, spoil := range map[string]func(*Config){
		"no cn": func(c *Config) { c.CN = log.UUID{} }, "no folder": func(c *Config) { c.Folder = "" },
		"no servers": func(c *Config) { c.Servers = nil }, "no dialer": func(c *Config) { c.Dialer = nil },
		"no kernel": func(c *Config) { c.Kernel = nil }, "negative": func(c *Config) { c.SweepEvery = -1 },
		"backoff": func(c *Config) { c.BackoffMin, c.BackoffMax = time.Hour, time.Second },
	} {
		c := good
		spoil(&c)
		if a, err := New(c); err == nil {
			t.Errorf("%s: it was accepted", name)
			a.Close()
		}
	}
}

func (r *replica) programmedSeq() log.Seq {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.programmed
}

// TestLinksOutliveRestartsAndResets: with the real planner over a kernel in
// memory, links that are still wanted are made once and never touched again.
func TestLinksOutliveRestartsAndResets(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, kernel := newServers(t), new(plan.Fake)
		kernel.AddNamespace(vmID(1).String())
		run := func() Status {
			a, err := New(Config{
				CN: cnID(1), Folder: folder, Servers: []string{"one"}, Dialer: s,
				Kernel: func(n plan.Numbers, save func(plan.Numbers) error) (Kernel, error) {
					return link.NewManager(link.ManagerConfig{Kernel: kernel, Numbers: n, Save: save}), nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := errors.Join(a.Run(ctx), a.Close()); err != nil {
				t.Fatal(err)
			}
			s.cut()
			s.wg.Wait()
			return a.Status()
		}
		status := run()
		if status.Programmed != s.head() || status.Kernel.Steps == 0 {
			t.Fatalf("first run: programmed %d of %d, %d steps: %v", status.Programmed, s.head(), status.Kernel.Steps, status.Kernel.Failures)
		}
		s.setDown(true, "one")
		if status = run(); status.Kernel.Steps != 0 || !status.Kernel.Matched {
			t.Errorf("without servers: %d steps, matched %v; want none", status.Kernel.Steps, status.Kernel.Matched)
		}
		s.setDown(false, "one")
		s.log.floor = s.head() + 1
		if status = run(); status.Kernel.Steps != 0 || status.Resets != 1 || status.Programmed != s.head() {
			t.Errorf("a reset: %d steps, %d resets, programmed %d of %d; want none and 1", status.Kernel.Steps, status.Resets, status.Programmed, s.head())
		}
		s.log.floor, s.log.cluster = 0, log.UUID{42}
		if status = run(); status.Kernel.Steps != 0 || status.Resets != 1 || status.Programmed != s.head() {
			t.Errorf("another log: %d steps, %d resets, programmed %d of %d; want none and 1", status.Kernel.Steps, status.Resets, status.Programmed, s.head())
		}
		s.change(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(1).String()})
		if status = run(); status.Kernel.Steps == 0 || status.Programmed != s.head() || len(status.Scopes) != 3 {
			t.Errorf("the last NIC deleted: %d steps, programmed %d of %d, scopes %v", status.Kernel.Steps, status.Programmed, s.head(), status.Scopes)
		}
	})
}
