package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// hurried is a replica that caught up, with a reconciler over the real manager and
// a kernel in memory that matches it.
type hurried struct {
	server *testServer
	r      *replica
	stream *session
	k      *reconciler
	kernel *plan.Fake
}

func newHurried(t *testing.T) *hurried {
	t.Helper()
	h := &hurried{kernel: &plan.Fake{}}
	h.server, h.r, h.stream = caughtUp(t)
	for _, vm := range []int{1, 2} {
		h.kernel.AddNamespace(vmID(vm).String())
	}
	m := link.NewManager(link.ManagerConfig{Kernel: h.kernel, Ahead: -1})
	h.k = &reconciler{cfg: &Config{RetryEvery: time.Second, SweepEvery: time.Minute}, replica: h.r, kernel: m, report: func() {}, logger: silent()}
	h.k.pass(t.Context())
	if !h.k.last.Matched || h.r.programmed != h.r.applied || h.r.applied == 0 || !h.linked(t) {
		t.Fatalf("the first pass: matched %v, programmed %d of %d: %v", h.k.last.Matched, h.r.programmed, h.r.applied, h.k.last.Failures)
	}
	return h
}

// linked reports whether the kernel has the link of NIC 2.
func (h *hurried) linked(t *testing.T) bool {
	t.Helper()
	snap, err := h.kernel.Dump(context.Background(), []string{vmID(1).String()})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(snap.Links, func(l plan.Link) bool { return strings.HasPrefix(l.Name, "fabric") && l.MAC == macOf(2) })
}

// lose deletes NIC 2, then gives the node a NIC on a network that it does not have yet:
// the entry has come, and rest brings the scope. The loop has not read the kernel
// since. lose returns the seq of the deletion.
func (h *hurried) lose(t *testing.T) (n log.Seq, rest []feed.Message) {
	t.Helper()
	h.server.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(2).String()})
	deliverAll(t, h.r, h.stream.next(t, true))
	n = h.server.head()
	deliverAll(t, h.r, []feed.Message{h.stream.bookmark()})
	if h.r.applied != n {
		t.Fatalf("applied %d, want %d", h.r.applied, n)
	}
	h.server.must(t, nicOp(t, macOf(5), 1, 1, 3, "10.0.0.15"))
	messages := h.stream.next(t, true)
	deliverAll(t, h.r, messages[:1])
	return n, messages[1:]
}

// honest checks what barriers rely on: when programmed is n or more, the link of the
// deleted NIC is gone.
func (h *hurried) honest(t *testing.T, when string, n log.Seq) {
	t.Helper()
	if h.r.programmed >= n && h.linked(t) {
		t.Errorf("%s: programmed %d is told, and the link of the NIC that was deleted at %d is still in the kernel", when, h.r.programmed, n)
	}
	if h.k.last.Matched && !h.k.last.Complete {
		t.Errorf("%s: the kernel is said to match a view that is not complete", when)
	}
}

// A NIC is deleted at N. Before the kernel's loop runs, an event gives the node a NIC
// on another vnet, whose scope is still to come. So the pass is of an incomplete view
// and removes nothing. Neither that pass nor any later wake may report N before a pass
// of a complete view has removed the link (SAFETY B3).
func TestMatchedWaitsForACompletePass(t *testing.T) {
	h := newHurried(t)
	n, rest := h.lose(t)
	h.k.pass(t.Context()) // the pass that was wanted
	h.honest(t, "after the pass", n)
	for range 3 { // tokens that are still there, or the kernel's watch
		h.k.apply(t.Context())
		h.honest(t, "after a wake", n)
	}
	if !h.linked(t) {
		t.Fatal("the pass on the view that was not complete removed a link")
	}
	// The view becomes complete; the loop wakes before it has made its pass.
	deliverAll(t, h.r, append(rest, h.stream.bookmark()))
	h.k.apply(t.Context())
	h.honest(t, "after the view became complete", n)
	if h.k.due.IsZero() {
		t.Error("no pass is wanted of the complete view")
	}
	h.k.pass(t.Context())
	h.k.pass(t.Context())
	if !h.k.last.Matched || h.r.programmed < n {
		t.Errorf("in the end: matched %v, programmed %d, want at least %d: %v", h.k.last.Matched, h.r.programmed, n, h.k.last.Failures)
	}
	h.honest(t, "in the end", n)
}

// A view can become complete again without a change of what is wanted: a scope is sent
// again, unchanged. What an earlier pass left undone must be done by a pass that is
// requested then. A delta that comes before that pass reports nothing.
func TestDeltaAfterAnIncompletePass(t *testing.T) {
	h := newHurried(t)
	n, rest := h.lose(t)
	h.k.pass(t.Context())
	// The NIC is deleted again before its scope comes: the view is complete without
	// that scope.
	deliverAll(t, h.r, rest)
	h.server.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(5).String()})
	deliverAll(t, h.r, append(h.stream.next(t, true), h.stream.bookmark()))
	// The touched entries are cleared, as if they had been computed. The only remaining
	// sign is that the last pass did not prune.
	h.r.touches.Reset()
	h.k.due = time.Time{}
	h.k.apply(t.Context())
	h.honest(t, "after a delta without touches", n)
	if h.r.programmed >= n {
		t.Errorf("programmed %d without a pass of a complete view since %d", h.r.programmed, n)
	}
	if h.k.due.IsZero() {
		t.Error("no pass is wanted: what the last one left would stay for good")
	}
	h.k.pass(t.Context())
	h.honest(t, "in the end", n)
}

// A pass that fails shows nothing about the kernel, and its plan is discarded:
// programmed waits for a pass that succeeds.
func TestMatchedAfterAFailedPass(t *testing.T) {
	h := newHurried(t)
	h.server.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(2).String()})
	deliverAll(t, h.r, append(h.stream.next(t, true), h.stream.bookmark()))
	n := h.server.head()
	real := h.k.kernel
	h.k.kernel = failingPass{real}
	h.k.pass(t.Context())
	h.k.kernel = real
	h.k.apply(t.Context())
	h.honest(t, "after a pass that failed", n)
	if h.r.programmed >= n || h.k.last.Matched {
		t.Errorf("programmed %d, matched %v after a pass that could not be made", h.r.programmed, h.k.last.Matched)
	}
	h.k.pass(t.Context())
	h.honest(t, "in the end", n)
	if h.r.programmed < n {
		t.Errorf("in the end: programmed %d, want %d", h.r.programmed, n)
	}
}

// failingPass is a kernel whose passes fail. It repeats the result of the passes
// before.
type failingPass struct{ Kernel }

// Pass implements Kernel.
func (failingPass) Pass(context.Context, desired.Links, bool) (link.Result, error) {
	return link.Result{}, errDown
}

// Each condition under which programmed moves is necessary.
func TestWhatMovesProgrammed(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(k *reconciler, at *checkpoint, result *link.Result)
		want  bool
	}{
		{"all holds", func(*reconciler, *checkpoint, *link.Result) {}, true},
		{"the view is not complete", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.complete = false }, false},
		{"the last pass was of one that was not", func(k *reconciler, _ *checkpoint, _ *link.Result) { k.pruned = false }, false},
		{"something is left to a pass", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.needsPass = true }, false},
		{"the kernel is not as wanted", func(_ *reconciler, _ *checkpoint, result *link.Result) { result.Matched = false }, false},
		{"a reset came since", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.epoch++ }, false},
		{"it is no news", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.seq-- }, false},
	} {
		h := newHurried(t)
		h.r.programmed = h.r.applied - 1
		at, result := checkpoint{seq: h.r.applied, epoch: h.r.epoch, complete: true}, link.Result{Matched: true}
		c.spoil(h.k, &at, &result)
		if got := h.k.matched(at, result); got != c.want || got != (h.r.programmed == h.r.applied) {
			t.Errorf("%s: moved %v, programmed %d of %d; want %v", c.name, got, h.r.programmed, h.r.applied, c.want)
		}
	}
}

// Each condition under which reached moves is necessary (SAFETY L2), and programmed never
// moves with it.
func TestWhatMovesReached(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(k *reconciler, at *checkpoint, result *link.Result)
		want  bool
	}{
		{"all holds", func(*reconciler, *checkpoint, *link.Result) {}, true},
		{"the view is not complete", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.complete = false }, false},
		{"the last pass was of one that was not", func(k *reconciler, _ *checkpoint, _ *link.Result) { k.pruned = false }, false},
		{"something is left to a pass", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.needsPass = true }, false},
		{"more than what is listed differs", func(_ *reconciler, _ *checkpoint, result *link.Result) { result.Settled = false }, false},
		{"a reset came since", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.epoch++ }, false},
		{"it is older", func(_ *reconciler, at *checkpoint, _ *link.Result) { at.seq -= 2 }, false},
		{"too much waits", func(k *reconciler, _ *checkpoint, _ *link.Result) { k.waits = make([]feed.Wait, feed.MaxWaits+1) }, false},
		{"as much as may wait", func(k *reconciler, _ *checkpoint, _ *link.Result) { k.waits = make([]feed.Wait, feed.MaxWaits) }, true},
	} {
		h := newHurried(t)
		before := h.r.applied - 1
		h.r.programmed, h.r.reached = before, before
		h.k.waits = []feed.Wait{{Kind: feed.WaitVNet, VNet: 7}}
		at, result := checkpoint{seq: h.r.applied, epoch: h.r.epoch, complete: true}, link.Result{Settled: true}
		c.spoil(h.k, &at, &result)
		if got := h.k.matched(at, result); got != c.want || got != (h.r.reached == h.r.applied) || h.r.programmed != before {
			t.Errorf("%s: moved %v, reached %d, programmed %d of %d; want %v", c.name, got, h.r.reached, h.r.programmed, h.r.applied, c.want)
		}
	}
}

// TestReachedIsHonest: with a VM whose namespace goes, its node reaches what comes, with
// that VM in its list and no other; a NIC of another VM that is said to be reached is in
// the kernel, or in the list. The list changes its number only when it changes, and is
// empty when the namespace is back.
func TestReachedIsHonest(t *testing.T) {
	h := newHurried(t)
	lost := vmID(1).String()
	h.kernel.DeleteNamespace(lost)
	h.k.pass(t.Context())
	if h.r.reached != h.r.applied || len(h.r.waits) == 0 {
		t.Fatalf("reached %d of %d with %d objects", h.r.reached, h.r.applied, len(h.r.waits))
	}
	for _, w := range h.r.waits {
		if w.Kind != feed.WaitNIC || w.VM != vmID(1) || !strings.Contains(w.String(), "no such network namespace") && !w.Idle {
			t.Errorf("listed: %+v (%s), want links of VM 1 only", w, w.String())
		}
	}
	programmed, list, objects := h.r.programmed, h.r.list, len(h.r.waits)
	h.server.must(t, nicOp(t, macOf(7), 2, 2, 1, "10.0.0.17")) // another node's
	deliverAll(t, h.r, h.stream.next(t, true))
	deliverAll(t, h.r, []feed.Message{h.stream.bookmark()})
	h.k.apply(t.Context())
	if h.r.applied != h.server.head() || h.r.reached != h.r.applied || h.r.programmed != programmed || h.r.list != list {
		t.Errorf("another node's NIC: applied %d, reached %d, programmed %d, list %d; want reached %d alone, list %d", h.r.applied, h.r.reached, h.r.programmed, h.r.list, h.server.head(), list)
	}
	h.kernel.AddNamespace(lost)
	h.k.pass(t.Context())
	if h.r.programmed != h.r.applied || h.r.reached != h.r.applied || len(h.r.waits) != 0 || h.r.list == list || objects == 0 {
		t.Errorf("with the namespace: programmed %d, reached %d of %d, %d objects", h.r.programmed, h.r.reached, h.r.applied, len(h.r.waits))
	}
}

// One own NIC more or less costs no pass, also the first and the last of a vnet: the scope
// comes behind the first one's entry. It is in the kernel, and told as programmed, at once.
func TestOwnNICNeedsNoPass(t *testing.T) {
	h := newHurried(t)
	has := func(mac log.MAC) bool {
		return slices.ContainsFunc(h.kernel.Links, func(l *plan.Link) bool { return l.Kind == plan.KindMacvlan && l.MAC == mac })
	}
	links := len(h.kernel.Links)
	check := func(when string, linked bool) {
		t.Helper()
		h.k.apply(t.Context())
		if has(macOf(5)) != linked || h.r.programmed != h.server.head() || !h.k.last.Matched {
			t.Errorf("%s: in the kernel %v, want %v; programmed %d of %d, matched %v", when, has(macOf(5)), linked, h.r.programmed, h.server.head(), h.k.last.Matched)
		}
		if h.k.last.Passes != 1 || !h.k.due.IsZero() {
			t.Errorf("%s: %d passes, want the first one only; another one is wanted: %v", when, h.k.last.Passes, !h.k.due.IsZero())
		}
	}
	h.server.must(t, nicOp(t, macOf(5), 1, 1, 3, "10.0.0.15"))
	messages := h.stream.next(t, true)
	deliverAll(t, h.r, messages[:1])
	h.k.apply(t.Context())
	if has(macOf(5)) || !h.k.due.IsZero() || h.k.applyAt.IsZero() {
		t.Error("a NIC whose scope is still to come is programmed, or a pass is wanted already")
	}
	deliverAll(t, h.r, append(messages[1:], h.stream.bookmark()))
	check("first NIC of a vnet", true)
	h.server.must(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(5).String()})
	deliverAll(t, h.r, append(h.stream.next(t, true), h.stream.bookmark()))
	check("last NIC of a vnet", false)
	if len(h.kernel.Links) != links {
		t.Errorf("%d links, want %d as before", len(h.kernel.Links), links)
	}
	before := h.k.last.Steps
	if h.k.pass(t.Context()); h.k.last.Steps != before || !h.k.last.Matched {
		t.Errorf("the pass after it made %d steps, matched %v", h.k.last.Steps-before, h.k.last.Matched)
	}
}

// A scope that does not come does not keep the rest waiting for long.
func TestScopeThatDoesNotCome(t *testing.T) {
	h := newHurried(t)
	h.server.must(t, nicOp(t, macOf(5), 1, 1, 3, "10.0.0.15"))
	deliverAll(t, h.r, h.stream.next(t, true)[:1])
	h.k.apply(t.Context())
	h.k.waiting = time.Now()
	h.k.apply(t.Context())
	if h.k.due.IsZero() {
		t.Errorf("no pass is wanted after %v", scopeWait)
	}
}
