package standin

import (
	"net/netip"
	"os"
	"testing"
	"time"
)

// burst sends one datagram to each of n addresses that were not resolved before,
// and returns how long it took until all are in the kernel.
func (w *world) burst(n, from int) time.Duration {
	w.t.Helper()
	to := make([]netip.Addr, n)
	for i := range to {
		to[i] = remoteIP(from + i)
	}
	began := time.Now()
	w.must(send(w.zone, to...))
	for deadline := time.Now().Add(60 * time.Second); ; {
		s := w.state("zA")
		missing := 0
		for i, ip := range to {
			if s.neighs[ip] != remoteMAC(from+i) || s.forwards[remoteMAC(from+i)] != remote.Addr {
				missing++
			}
		}
		if missing == 0 {
			return time.Since(began)
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d of %d addresses are not resolved", missing, n)
		}
	}
}

// TestBurst: linux-cn-varpd dies in two of three bursts of 200.
func TestBurst(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(8000)
	at, _ := serve(t, dir, "127.0.0.1:0")
	cfg := w.config(at)
	d, _ := w.run(cfg)
	awaitLinks(t, d)
	from := 1
	for _, n := range []int{1, 200, 200, 200, 5000} {
		took := w.burst(n, from)
		from += n
		t.Logf("%d neighbours in %s: %.0f/s", n, took, float64(n)/took.Seconds())
	}
	t.Logf("%+v", d.Stats())
	if s := d.Stats(); int(s.Found) < from-1 || s.Refused > 0 {
		t.Errorf("found %d, refused %d, want %d and 0", s.Found, s.Refused, from-1)
	}
	if os.Getenv("RUTTER_LONG") == "" {
		return
	}
	for range 20 { // each of them as the first one
		w.clear()
		w.burst(200, 7000)
	}
}
