package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rutter/projections/desired"

	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// guarded is a Manager over a real kernel that is watched, driven the way that
// the agent drives it.
type guarded struct {
	w     *world
	m     *Manager
	h     *Netlink
	want  desired.Links
	woken chan struct{}
	heard chan struct{} // that servers may be reachable: see settled
}

func guard(w *world, want desired.Links, turn time.Duration, tables ...filter.Table) *guarded {
	g := &guarded{w: w, h: w.open("cn1"), want: want, woken: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
	for _, table := range tables {
		g.h.UseFilter(table)
	}
	g.h.cfg.viewEvery = turn
	g.m = NewManager(ManagerConfig{Kernel: g.h})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- g.h.Watch(ctx, func() {
			select {
			case g.woken <- struct{}{}:
			default:
			}
		}, func() {
			select {
			case g.heard <- struct{}{}:
			default:
			}
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.t.Errorf("watch: got %v, want context.Canceled", err)
		}
	})
	<-g.woken // it receives notifications from now on
	g.h.Observed()
	return g
}

// wait takes wakes until ok, which checks with a new handle.
func (g *guarded) wait(what string, drift *int, ok func() bool) {
	g.w.t.Helper()
	end := time.After(patience)
	for !ok() {
		select {
		case <-g.woken:
		case <-end:
			g.w.t.Fatalf("%s: not healed", what)
		}
		result := g.m.Apply(context.Background(), desired.LinksDelta{})
		*drift += len(result.Drift)
		if result.Look || len(result.Stirred) > 0 {
			result, err := g.m.Pass(context.Background(), g.want, true)
			if err != nil {
				g.w.t.Fatal(err)
			}
			*drift += len(result.Drift)
		}
	}
}

// matches reports whether another handle sees the kernel as wanted.
func (g *guarded) matches() bool {
	h := g.w.open("cn1")
	have, err := h.Dump(context.Background(), namespacesOf(&g.want, &g.m.numbers))
	if err != nil {
		g.w.t.Fatal(err)
	}
	work := plan.Plan(g.want, have, g.m.numbers, true)
	return len(work.Steps)+len(work.Blocked) == 0
}

func TestWhatOthersChangeIsHealedFromWhatIsHeard(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	want, _ := w.two(0, false)
	g := guard(w, want, time.Hour)
	w.pass(g.m, want)
	vxlan, fabric := g.h.index[plan.LinkKey{Namespace: "", Name: "sdcvxl5"}], g.h.index[plan.LinkKey{Namespace: "zA", Name: "fabric0"}]
	vandal := w.open("cn1")
	damage := func(steps ...plan.Step) func() {
		return func() {
			if _, err := vandal.Dump(context.Background(), []string{"zA"}); err != nil {
				t.Fatal(err)
			}
			if errs := vandal.Do(context.Background(), steps); errs != nil {
				t.Fatal(errors.Join(errs...))
			}
		}
	}
	tests := []struct {
		name string
		do   func()
		pass bool // a pass is needed
	}{
		{"forwarding entry deleted", damage(plan.Step{Op: plan.OpDelFDB, Link: "sdcvxl5", MAC: mac(2)}), false},
		{"forwarding entry changed", damage(plan.Step{Op: plan.OpSetFDB, Link: "sdcvxl5", MAC: mac(2), Addr: addr("10.99.0.77")}), false},
		{"forwarding entry added", damage(plan.Step{Op: plan.OpSetFDB, Link: "sdcvxl5", MAC: mac(9), Addr: addr("10.99.0.9")}), false},
		{"neighbour deleted", damage(plan.Step{Op: plan.OpDelNeigh, Namespace: "zA", Link: "fabric0", Addr: addr("192.168.5.2")}), false},
		{"IPv6 neighbour changed", damage(plan.Step{Op: plan.OpSetNeigh, Namespace: "zA", Link: "fabric0", Addr: addr("fd05::2"), MAC: mac(7)}), false},
		{"neighbour added", damage(plan.Step{Op: plan.OpSetNeigh, Namespace: "zA", Link: "fabric0", Addr: addr("192.168.5.77"), MAC: mac(7)}), false},
		{"address deleted", damage(plan.Step{Op: plan.OpDelAddress, Namespace: "zA", Link: "fabric0", Prefix: netip.MustParsePrefix("192.168.5.1/24")}), true},
		{"route deleted", damage(plan.Step{Op: plan.OpDelRoute, Namespace: "zA", Link: "fabric0", Prefix: netip.MustParsePrefix("10.1.0.0/16")}), true},
		{"link down", func() {
			w.raw("zA", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(fabric, 0, unix.IFF_UP) })
		}, true},
		{"device down", func() {
			w.raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(vxlan, 0, unix.IFF_UP) })
		}, true},
		{"device deleted", damage(plan.Step{Op: plan.OpDelLink, Link: "sdcvxl5"}), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g.w = &world{t: t, dir: w.dir, etc: w.etc}
			test.do()
			drift := 0
			g.wait(test.name, &drift, g.matches)
			if drift == 0 {
				t.Error("it was not counted")
			}
		})
	}
}

// TestNamespaceThatAppearsIsHeard: it is noticed before the next scan.
func TestNamespaceThatAppearsIsHeard(t *testing.T) {
	w := newWorld(t)
	want, _ := w.two(0, false)
	g := guard(w, want, time.Hour)
	result, err := g.m.Pass(context.Background(), want, true)
	if err != nil || result.Matched || len(result.Failures) == 0 || !errors.Is(result.Failures[0].Err, plan.ErrNoNamespace) {
		t.Fatalf("without the namespace: %v, %+v, want ErrNoNamespace", err, result)
	}
	w.namespace("zA")
	drift := 0
	g.wait("namespace", &drift, g.matches)
}

// TestOwnChangesAreNotHeard: our own changes cause no work.
func TestOwnChangesAreNotHeard(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.namespace(fmt.Sprintf("z%d", i))
	}
	want := crowd(8, 20, 4)
	g := guard(w, want, time.Hour)
	w.pass(g.m, want)
	delta := desired.LinksDelta{}
	for i := range want.FDB[:40] {
		f, n := want.FDB[i], want.Neighs[i]
		f.Dst, n.MAC[1] = addr("10.99.0.3"), 9
		delta.FDB, delta.Neighs = append(delta.FDB, f), append(delta.Neighs, n)
	}
	delta.NoFDB, delta.NoNeighs = want.FDB[40:50], want.Neighs[40:50]
	if result := g.m.Apply(context.Background(), delta); !result.Matched || len(result.Steps) != 100 || len(result.Drift) != 0 {
		t.Errorf("apply: matched %v, %d steps, drift %v, want true, 100, none", result.Matched, len(result.Steps), result.Drift)
	}
	select {
	case <-g.woken: // an echo of the pass came after Apply had changed the entry: it is looked at
		if result := g.m.Apply(context.Background(), desired.LinksDelta{}); !result.Matched || len(result.Steps) != 0 {
			t.Errorf("our own changes were taken for others': matched %v, steps %v", result.Matched, texts(result.Steps))
		}
	case <-time.After(5 * watchQuiet): // without a notification there is nothing to wait for
	}
	want.FDB = append(slices.Clone(delta.FDB), want.FDB[50:]...)
	want.Neighs = append(slices.Clone(delta.Neighs), want.Neighs[50:]...)
	g.want = want
	if !g.matches() {
		t.Error("the kernel does not match after Apply")
	}
	if result := w.pass(g.m, want); len(result.Steps) != 0 || len(result.Drift) != 0 {
		t.Errorf("pass after Apply: %v, drift %v", texts(result.Steps), result.Drift)
	}
	if result := g.m.Apply(context.Background(), delta); len(result.Steps) != 0 || !result.Matched {
		t.Errorf("the same again: %d steps, matched %v, want none and true", len(result.Steps), result.Matched)
	}
}
