package serviceaddr

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
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
func start(t *testing.T) (context.Context, *World, *Watch) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	w, err := New(program, t.TempDir())
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
// was stopped, was cut off, and ends.
func TestHolderChanges(t *testing.T) {
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

// stopped stops the holder as a debugger does, and lets it go on 5 s later.
func stopped(ctx context.Context, t *testing.T, w *World, v *Watch) {
	t.Helper()
	holder, err := v.AwaitHolder(ctx, IPv4)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := holder.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := v.AwaitOther(ctx, IPv4, holder); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AwaitAnswer(ctx, IPv4); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped: blind for %v", time.Since(began))
	time.Sleep(time.Until(began.Add(5 * time.Second)))
	if err := holder.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
