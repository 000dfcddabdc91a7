package serviceaddr

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/varp"
)

// within bounds the waits of a test, generously.
const within = 40 * time.Second

// rounds is how often each attack is made.
func rounds() int {
	if os.Getenv("RUTTER_LONG") != "" {
		return 20
	}
	return 1
}

// start makes a world that is watched, and ends with the test. At its end no address may
// have been at two servers at once.
func start(t *testing.T, flags ...string) (context.Context, *World, *Watch) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	return startIn(t, t.TempDir(), flags...)
}

// startIn is start with the servers' data in folders of dir: s1-data, s2-data, s3-data.
func startIn(t *testing.T, dir string, flags ...string) (context.Context, *World, *Watch) {
	t.Helper()
	w, err := New(program, dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(t.Context(), within*time.Duration(rounds()))
	watching, stop := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	watched.Go(func() { v.Run(watching) })
	t.Cleanup(func() {
		end()
		stop()
		watched.Wait()
		looks, answers, err := v.Err()
		t.Logf("%d looks at the kernels, %d answers to ARP", looks, answers)
		if err != nil || looks == 0 || answers == 0 {
			t.Errorf("after %d looks and %d answers: %v", looks, answers, err)
		}
		if t.Failed() {
			for _, h := range w.Hosts {
				t.Logf("%s said last:\n%s", h.Name, h.LastLines(40))
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, w, v
}

// A client that dials one address is blind for a bounded time after the holder was killed,
// and was stopped.
func TestHolderChanges(t *testing.T) {
	t.Parallel()
	ctx, w, v := start(t)
	for range rounds() {
		blind, err := w.Blind(ctx, v)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("killed: blind for %v", blind)
		stopped(ctx, t, w, v)
	}
}

// The same after the holder ended, and was cut off from the others while the client still
// reaches it.
func TestHolderGivesItAway(t *testing.T) {
	t.Parallel()
	ctx, w, v := start(t)
	for range rounds() {
		ended(ctx, t, w, v)
		cutOff(ctx, t, w, v)
	}
}

// holds returns the holder of both addresses, when it answers at them.
func holds(ctx context.Context, t *testing.T, w *World, v *Watch) *Host {
	t.Helper()
	holder, err := v.AwaitHolder(ctx, IPv4)
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []netip.Addr{IPv4, IPv6} {
		if _, err := w.AwaitAnswer(ctx, ip); err != nil {
			t.Fatal(err)
		}
	}
	return holder
}

// passes waits until another server answers at the addresses.
func passes(ctx context.Context, t *testing.T, w *World, v *Watch, why string, from *Host, began time.Time) {
	t.Helper()
	if _, err := v.AwaitOther(ctx, IPv4, from); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	if _, err := w.AwaitAnswer(ctx, IPv4); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	t.Logf("%s: blind for %v", why, time.Since(began))
}

// goesOn is how long a stopped holder is stopped.
func goesOn() time.Duration {
	if rounds() > 1 {
		return 5 * time.Second
	}
	return 0
}

// stopped stops the holder as a debugger does, and lets it go on later.
func stopped(ctx context.Context, t *testing.T, w *World, v *Watch) {
	t.Helper()
	holder, began := holds(ctx, t, w, v), time.Now()
	if err := holder.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	passes(ctx, t, w, v, "stopped", holder, began)
	time.Sleep(time.Until(began.Add(goesOn())))
	if err := holder.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// cutOff cuts the holder off from the other servers, on all ways. The client reaches it
// still, and its connection to it ends.
func cutOff(ctx context.Context, t *testing.T, w *World, v *Watch) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Log("no nft: the holder is not cut off")
		return
	}
	holder := holds(ctx, t, w, v)
	conn := kept(ctx, t, w)
	began := time.Now()
	heal, err := w.CutOff(holder)
	if err != nil {
		t.Fatal(err)
	}
	ends(t, conn)
	passes(ctx, t, w, v, "cut off", holder, began)
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// ended ends the holder in order: it gives the address back, with the leadership.
func ended(ctx context.Context, t *testing.T, w *World, v *Watch) {
	t.Helper()
	holder := holds(ctx, t, w, v)
	conn := kept(ctx, t, w)
	began := time.Now()
	if err := holder.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends(t, conn)
	passes(ctx, t, w, v, "ended", holder, began)
	<-holder.Ended()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// svp is a client of SVP that knows one server: the service address.
func svp(t *testing.T, w *World) *varp.Client {
	t.Helper()
	c, err := varp.NewClient(varp.ClientConfig{
		Servers: []string{net.JoinHostPort(IPv4.String(), "1296")}, AttemptTimeout: try,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return w.Dial(ctx, address) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// mapped waits until SVP answers a client: there is no vnet, so no machine is on it.
func mapped(ctx context.Context, t *testing.T, c *varp.Client) {
	t.Helper()
	for {
		_, _, err := c.VL3(ctx, 7, netip.MustParseAddr("10.0.0.5"))
		if errors.Is(err, varp.ErrNotFound) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("SVP does not answer at the service address: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kept is a connection of the client that has had one answer.
func kept(ctx context.Context, t *testing.T, w *World) net.Conn {
	t.Helper()
	conn, err := w.Dial(ctx, net.JoinHostPort(IPv4.String(), "80"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := exchange(conn, IPv4); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ends waits until a connection ends.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := conn.Read(b[:]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the client's connection to the former holder goes on: %v", err)
	}
}

// A connection to a holder that was killed ends when the client sends: the next holder's
// kernel refuses it. SVP answers at the address as before. A server that is killed and
// started again at once has not the address of its life before.
func TestKilledAndStarted(t *testing.T) {
	t.Parallel()
	ctx, w, v := start(t)
	holder := holds(ctx, t, w, v)
	conn, mappings := kept(ctx, t, w), svp(t, w)
	mapped(ctx, t, mappings)
	if err := holder.Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.AwaitOther(ctx, IPv4, holder); err != nil {
		t.Fatal(err)
	}
	next := holds(ctx, t, w, v)
	if err := exchange(conn, IPv4); err == nil {
		t.Error("a connection to the former holder is answered")
	}
	mapped(ctx, t, mappings)
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	text, err := next.Get(ctx, "/readyz?verbose")
	if err != nil || !strings.Contains(text, "service address 10.77.0.9/24@eth0: held\n") {
		t.Errorf("the holder says %q, %v", text, err)
	}
	if text, err = next.Get(ctx, "/metrics"); err != nil || !strings.Contains(text, `rutter_service_address_held{address="10.77.0.9"} 1`) {
		t.Errorf("the holder's metrics lack it: %v", err)
	}
}

// While the holder is stopped, another machine takes the address. That keeps the servers
// from taking it, and they say so.
func TestOthersHaveTheAddress(t *testing.T) {
	t.Parallel()
	ctx, w, v := start(t)
	next := holds(ctx, t, w, v)
	began := time.Now()
	if err := next.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := v.AwaitNone(ctx, IPv4, next); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Do(func() error { return netlab.AddAddress("lo", netip.PrefixFrom(IPv4, 32)) }); err != nil {
		t.Fatal(err)
	}
	named := func() bool {
		for _, h := range w.Hosts {
			if h == next {
				continue
			}
			if text, err := h.Get(ctx, "/readyz?verbose"); err == nil && strings.Contains(text, "and is no holder") {
				return true
			}
		}
		return false
	}
	for !named() {
		if ctx.Err() != nil {
			t.Fatal("no server says that another machine has the address")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if h := v.Holder(IPv4); h != nil {
		t.Errorf("%s has the address beside the other machine", h.Name)
	}
	if err := w.Client.Do(func() error { return netlab.DeleteAddress("lo", netip.PrefixFrom(IPv4, 32)) }); err != nil {
		t.Fatal(err)
	}
	passes(ctx, t, w, v, "after the other machine", next, began)
}

// The clock of the holder goes wrong by a year: it gives the leadership away, and the
// address with it. The times of the address are those of the monotonic clock.
func TestClockOfHolder(t *testing.T) {
	t.Parallel()
	clocks := t.TempDir()
	ctx, w, v := start(t, "--drill-clock", clocks)
	holder, began := holds(ctx, t, w, v), time.Now()
	if err := os.WriteFile(filepath.Join(clocks, holder.Name), []byte("8760h"), 0o600); err != nil {
		t.Fatal(err)
	}
	passes(ctx, t, w, v, "a wrong clock", holder, began)
}
