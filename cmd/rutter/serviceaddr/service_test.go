package serviceaddr

import (
	"context"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// leads is a Leader without a cluster.
type leads struct {
	mu      sync.Mutex
	elected bool
	moved   chan struct{}
	handed  func() // by HandOver
}

func (l *leads) set(elected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elected = elected
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *leads) Confirmed() (term uint64, at time.Time, others []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 3, time.Now(), nil, l.elected
}

func (l *leads) Serves() bool { return true }

func (l *leads) Moved() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moved
}

func (l *leads) HandOver(context.Context) error {
	l.handed()
	return nil
}

// linked makes a link v0 that has a carrier and an address, in this thread's namespace.
func linked(t *testing.T) {
	t.Helper()
	for _, line := range []string{"link add v0 type veth peer name v1", "link set v0 up", "link set v1 up"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	if err := netlab.AddAddress("v0", netip.MustParsePrefix("10.0.0.1/24")); err != nil {
		t.Fatal(err)
	}
}

// serve makes the link of linked, and runs a Service there as keep does.
func serve(t *testing.T, l *leads, address string, watch func(s *Service, end func())) {
	t.Helper()
	linked(t)
	keep(t, l, address, watch)
}

// keep runs a Service in this thread's namespace until end is called.
// watch runs beside it.
func keep(t *testing.T, l *leads, address string, watch func(s *Service, end func())) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	l.moved = make(chan struct{})
	s := New(Config{Addresses: []Address{mustParse(t, address)}, Leader: l, Logger: slog.New(slog.DiscardHandler)})
	var watching sync.WaitGroup
	watching.Go(func() { watch(s, end) })
	if err := s.Run(ctx); err != nil { // in this thread, whose namespace it is
		t.Error(err)
	}
	watching.Wait()
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Errorf("%s: never", what)
			return
		}
	}
}

// A leader takes the address, renews it longer than it lives, and gives it away when it
// leads no more; at its end it deletes it before it hands the leadership over.
func TestServiceKeepsIt(t *testing.T) {
	t.Parallel()
	k := inNamespace(t)
	a, handed := mustParse(t, "10.0.0.9/24@v0"), 0
	l := &leads{elected: true, handed: func() {
		handed++
		if all, err := k.find(a.IP()); err != nil || len(all) > 0 {
			t.Errorf("the leadership is handed over with the address: %v, %v", all, err)
		}
	}}
	serve(t, l, a.String(), func(s *Service, end func()) {
		defer end()
		state := func() State { return s.States()[0] }
		until(t, "held", func() bool { return state().Held })
		until(t, "renewed", func() bool { return state().Renewals >= uint64(Lifetime/renewEvery) })
		until(t, "a line says so", func() bool {
			lines := s.Lines()
			return len(lines) == 1 && strings.HasSuffix(lines[0], ": held")
		})
		before := state() // on a busy machine it may have been renewed too late, and taken again
		l.set(false)
		until(t, "lost", func() bool { return !state().Held && state().Losses > before.Losses })
		l.set(true)
		until(t, "held again", func() bool { return state().Held && state().Takes > before.Takes })
		until(t, "there is no problem", func() bool { return len(s.Problems()) == 0 })
	})
	if handed != 1 {
		t.Errorf("the leadership was handed over %d times", handed)
	}
}

// An address that another program of the machine has set is named, and stays as it is,
// until that program takes it away.
func TestServiceLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	k := inNamespace(t)
	ip := netip.MustParseAddr("10.0.0.9")
	if err := netlab.AddAddress("l0", netip.PrefixFrom(ip, 24)); err != nil {
		t.Fatal(err)
	}
	taken := false
	l := &leads{elected: true, handed: func() {}}
	// The kernel's socket is of this namespace, in whatever thread it is used.
	index := indexOf(t, "l0")
	serve(t, l, "10.0.0.9/24@v0", func(s *Service, end func()) {
		defer end()
		until(t, "named", func() bool {
			return strings.Contains(strings.Join(s.Problems(), "\n"), "another program of this machine")
		})
		if all, err := k.find(ip); err != nil || len(all) != 1 || all[0].ours() {
			t.Errorf("found %+v, %v", all, err)
		}
		a := Address{Prefix: netip.PrefixFrom(ip, 24)}
		m, err := message(unix.RTM_DELADDR, 0, a, index, false)
		if err != nil {
			t.Error(err)
			return
		}
		m.Data[1] = 24 // as it was set
		if err := k.exchange(m); err != nil {
			t.Error(err)
		}
		until(t, "held", func() bool { return s.States()[0].Held })
		taken = true
	})
	if !taken {
		t.Error("the address was not taken afterwards")
	}
}

// A leader whose link cannot carry the address says so, and hands the leadership on.
func TestServiceWithoutLink(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	handed := make(chan struct{})
	l := &leads{elected: true, handed: sync.OnceFunc(func() { close(handed) })}
	serve(t, l, "10.0.0.9/24@absent", func(s *Service, end func()) {
		defer end()
		select {
		case <-handed:
		case <-time.After(time.Minute):
			t.Error("the leadership is kept")
		}
		if text := strings.Join(s.Problems(), "\n"); !strings.Contains(text, "link absent") {
			t.Errorf("problems %q", text)
		}
	})
}

// otherEnd is the other machine's end of the link v0 of serve, in this thread's namespace.
func otherEnd(t *testing.T) *segment {
	t.Helper()
	var l link
	until(t, "a carrier", func() (is bool) {
		var err error
		l, err = lookLink("v1")
		return err == nil
	})
	other, err := openSegment(l)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// Another machine claims the address that is held: that is counted, the holder keeps the
// address, and announces it once more, however often the other machine claims it.
func TestHolderDefendsIt(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	a := mustParse(t, "10.0.0.9/24@v0")
	linked(t)
	other := otherEnd(t)
	defer other.close()
	began := time.Now()
	// due is how often the address is announced at most, if no other machine claims it.
	due := func() (n int) {
		for _, at := range announceAt {
			if time.Since(began) >= at {
				n++
			}
		}
		return n
	}
	announced := 0 // ARP requests, of which each announcement has one
	hear := func() {
		var b [frameBytes]byte
		for {
			n, _, err := unix.Recvfrom(other.fd, b[:], unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			if ip, _, ok := claim(b[:n]); ok && ip == a.IP() && b[21] == arpRequest {
				announced++
			}
		}
	}
	l := &leads{elected: true, handed: func() {}}
	keep(t, l, a.String(), func(s *Service, end func()) {
		defer end()
		state := func() State { return s.States()[0] }
		until(t, "held", func() bool { return state().Held })
		for n := range uint64(3) {
			if err := other.announce(a.IP()); err != nil {
				t.Error(err)
			}
			until(t, "claims are counted", func() bool { return state().Claims >= 2*(n+1) }) // a request and a reply each
		}
		until(t, "announced again", func() bool { hear(); return announced > due() })
		hear()
		st := state()
		if st.Failures+st.Late > 0 {
			t.Logf("the kernel was busy, so the address was given away for that: %+v", st)
			return
		}
		if announced > due()+1 {
			t.Errorf("announced %d times, want at most %d", announced, due()+1)
		}
		if !st.Held || st.Takes != 1 || st.Losses > 0 {
			t.Errorf("the address was given away: %+v", st)
		}
	})
}

// A prefix that is not that of the link, or a link that is not that of the prefix, keeps
// no server from having the address, and is named.
func TestPrefixOfAnotherLink(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	l := &leads{elected: true, handed: func() {}}
	serve(t, l, "10.0.1.9/24@v0", func(s *Service, end func()) {
		defer end()
		until(t, "held", func() bool { return s.States()[0].Held })
		if text := strings.Join(s.Problems(), "\n"); !strings.Contains(text, "link v0 has no address of its own in 10.0.1.0/24") {
			t.Errorf("problems %q", text)
		}
		if st := s.States()[0]; st.Problem != "" {
			t.Errorf("problem %q", st.Problem)
		}
		l.set(false)
		until(t, "another leads", func() bool { return len(s.Problems()) == 0 })
	})
	for setting, want := range map[string]bool{"10.0.0.9/24@v0": false, "10.0.1.9/32@v0": false, "10.0.0.1/24@v0": true, "fd00::9/64@v0": true} {
		if got := misplaced(mustParse(t, setting)) != ""; got != want {
			t.Errorf("%s is misplaced: %t, want %t", setting, got, want)
		}
	}
}
