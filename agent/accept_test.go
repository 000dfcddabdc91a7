package agent

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"rutter/agent/link"
	"rutter/projections/desired"
)

// hasty is the kernel of a node whose hold is accepted during a pass.
type hasty struct {
	*link.Manager
	before, kept, after func() // a pass, Keep
}

// Keep implements surplusKernel.
func (h *hasty) Keep(on bool) {
	h.Manager.Keep(on)
	h.kept()
}

// Pass implements Kernel.
func (h *hasty) Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error) {
	h.before()
	result, err := h.Manager.Pass(ctx, want, complete)
	h.after()
	return result, err
}

// A pass does not carry out a hold that is accepted during it, or just before it.
// Barriers get no seq until a later pass has removed what was held (SAFETY B1), and
// that pass comes at once.
func TestAcceptedDuringAPass(t *testing.T) {
	for _, remembers := range []string{"the view before", "only the kernel"} {
		for _, when := range []string{"before the kernel is told what to keep", "after the pass"} {
			t.Run(remembers+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					testAcceptedDuringAPass(t, remembers == "only the kernel", when == "after the pass")
				})
			})
		}
	}
}

func testAcceptedDuringAPass(t *testing.T, forget, after bool) {
	n := newNode(t, newCrowd(t))
	defer n.end()
	n.start()
	settle()
	n.stop()
	if forget {
		if err := os.RemoveAll(n.folder); err != nil {
			t.Fatal(err)
		}
	}
	var hold atomic.Pointer[Hold] // to be accepted
	var accepted atomic.Bool
	accept := func(is bool) {
		if h := hold.Load(); is && h != nil && !accepted.Swap(true) {
			if _, err := n.agent.Accept(h.ID); err != nil {
				t.Error(err)
			}
		}
	}
	honest := func() {
		if !accepted.Load() {
			return
		}
		if s := n.agent.Status(); s.Programmed > 0 && strings.Contains(n.kernel.String(), macOf(40).String()) {
			t.Errorf("programmed %d is told, and what was held is in the kernel still", s.Programmed)
		}
	}
	n.wrap = func(m *link.Manager) Kernel {
		return &hasty{Manager: m, before: honest, kept: func() { accept(!after) }, after: func() { accept(after) }}
	}
	if !forget {
		n.start()
		settle()
	}
	n.s.replace(newServers(t).log)
	if forget {
		n.start()
	}
	settle()
	h := n.agent.Status().Hold
	if h == nil || h.Was.Cluster.IsZero() != forget {
		t.Fatalf("held: %+v", h)
	}
	hold.Store(h)
	n.s.change(nicOp(t, macOf(90), 1, 1, 1, ""))
	settle()
	honest()
	if s := n.agent.Status(); !accepted.Load() || s.Hold != nil || len(n.links()) != 3 || s.Programmed != n.s.head() {
		t.Errorf("accepted %v: hold %+v, %d links, programmed %d of %d", accepted.Load(), s.Hold, len(n.links()), s.Programmed, n.s.head())
	}
}

// A view is judged by its links. The number of entries on links grows with the NICs
// here times the NICs elsewhere: 1,000 here and 10,000 elsewhere on one vnet are 11
// million entries, 13 GB for each pass of a node that must be careful.
func TestJudgingLooksAtLinksOnly(t *testing.T) {
	server, r, stream := caughtUp(t)
	server.must(t, nicOp(t, macOf(7), 1, 1, 1, ""), nicOp(t, macOf(8), 2, 2, 1, ""))
	deliverAll(t, r, append(stream.next(t, true), stream.bookmark()))
	r.view.share = defaultHoldShare
	r.view.old, r.view.phase = r.remember(), unjudged
	all := desired.Of(r.state, r.cn)
	j, ok := r.toJudge()
	if !ok || len(all.Neighs) == 0 || len(j.want.Neighs)+len(j.want.FDB)+len(j.was.Neighs)+len(j.was.FDB) > 0 {
		t.Errorf("judged %v: %d neighbours and %d forwarding entries", ok, len(j.want.Neighs), len(j.want.FDB))
	}
	if s := link.Compare(all, j.want); s.Links == 0 || len(s.Gone) > 0 {
		t.Errorf("what is judged lacks links: %+v", s)
	}
}

// A cache with a hold whose earlier view is lost must not mark its own view as complete
// before that view is judged. A cache that is written anew has no hold, and its view is
// trusted.
func TestLostHoldIsNotComplete(t *testing.T) {
	_, from, _ := caughtUp(t)
	r := newReplica(cnID(1), silent())
	r.view.share = defaultHoldShare
	held := &contents{
		Head: head{CN: cnID(1), Cursor: from.cursor, Complete: true}, Scopes: from.scopes, Hold: &Hold{ID: "any"},
	}
	for _, rec := range recordsOf(from.state) {
		held.Objects = append(held.Objects, rec.Record)
	}
	if err := r.load(held); err != nil {
		t.Fatal(err)
	}
	r.needFullWrite()
	b, _ := r.take()
	if !b.Full || b.Head.Complete || r.view.phase != unjudged {
		t.Errorf("the cache is written with %+v, a hold %v", b.Head, b.Hold.hold)
	}
	r.mu.Lock()
	r.view.becomeSettled()
	r.mu.Unlock()
	if b, _ := r.take(); !b.Head.Complete {
		t.Errorf("settled, the cache is written with %+v", b.Head)
	}
}
