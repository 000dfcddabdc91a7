package link

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// TestGuestMakesNoBatchWait: a guest that keeps its end down, or up and not sending, makes
// no batch after batch wait for it, with which the links of other VMs would wait too.
func TestGuestMakesNoBatchWait(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	g := w.secure("cn1", required)
	w.pass(g.m, w.neighbours(0, "zA"))
	index, ok := g.h.indexOf(plan.LinkKey{Namespace: "zA", Name: "fabric0"})
	if !ok {
		t.Fatal("there is no fabric0")
	}
	guest := func(body func(e *wire.Encoder)) { w.raw("zA", unix.RTM_NEWLINK, 0, body) }
	down := func() {
		guest(func(e *wire.Encoder) { e.Set(nil, index, plan.ChangeDown) })
	}
	up := plan.Step{
		Op: plan.OpSetLink, Object: plan.Object{Kind: plan.ObjectFabric, MAC: mac(10)}, Link: "port0",
		Spec: &plan.Link{Name: "port0", Up: true}, Change: plan.ChangeUp,
	}
	do := func(when string) {
		t.Helper()
		g.h.cfg.localWait = time.Hour // a wait would be seen
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if errs := g.h.Do(ctx, []plan.Step{up}); errs != nil {
			t.Fatalf("%s: %v", when, errs)
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: the batch waited", when)
		}
	}
	down()
	do("a guest keeps its end down")

	const linkMode, dormant = unix.IFLA_LINKMODE, 1 // linux/if.h: IF_LINK_MODE_DORMANT
	guest(func(e *wire.Encoder) {
		e.LinkHeader(index, unix.IFF_UP, unix.IFF_UP)
		e.B = append(e.B, 5, 0, linkMode, 0, dormant, 0, 0, 0)
	})
	down()
	guest(func(e *wire.Encoder) { e.LinkHeader(index, unix.IFF_UP, unix.IFF_UP) })
	g.h.cfg.localWait = 100 * time.Millisecond
	if errs := g.h.Do(t.Context(), []plan.Step{up}); errs != nil {
		t.Fatal(errs)
	}
	if !g.h.slow[plan.LinkKey{Name: "port0"}] {
		t.Fatal("an end that is up does not send, and the batch did not wait for it")
	}
	do("a guest's end is up and does not send, once more")
}
