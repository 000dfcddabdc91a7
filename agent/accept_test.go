package agent

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"rutter/agent/link"
	"rutter/projections"
)

// hasty is a kernel of a node whose hold is accepted in the midst of a pass.
type hasty struct {
	*link.Manager
	before, kept, after func() // a pass, Keep
}

// Keep implements keeper.
func (h *hasty) Keep(on bool) {
	h.Manager.Keep(on)
	h.kept()
}

// Pass implements Kernel.
func (h *hasty) Pass(ctx context.Context, want projections.Desired, complete bool) (link.Result, error) {
	h.before()
	result, err := h.Manager.Pass(ctx, want, complete)
	h.after()
	return result, err
}

// A hold that is accepted while a pass goes on, or just before it, is not done by
// that pass: barriers hear of no place until one has taken away what was held
// (SAFETY B1), and that one comes at once.
func TestAcceptedDuringAPass(t *testing.T) {
	for _, remembers := range []string{"the view before", "only the kernel"} {
		for _, when := range []string{"before the kernel is told what to keep", "after the pass"} {
			t.Run(remembers+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAcceptedDuringAPass(t, remembers == "only the kernel", when == "after the pass") })
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
	id, accepted := "", false
	accept := func(is bool) {
		if is && id != "" && !accepted {
			accepted = true
			if _, err := n.agent.Accept(id); err != nil {
				t.Error(err)
			}
		}
	}
	honest := func() {
		if s := n.agent.Status(); accepted && s.Programmed > 0 && strings.Contains(n.kernel.String(), macOf(40).String()) {
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
	id = h.ID
	n.s.change(nicOp(t, macOf(90), 1, 1, 1, ""))
	settle()
	honest()
	if s := n.agent.Status(); !accepted || s.Hold != nil || len(n.links()) != 3 || s.Programmed != n.s.head() {
		t.Errorf("accepted %v: hold %+v, %d links, programmed %d of %d", accepted, s.Hold, len(n.links()), s.Programmed, n.s.head())
	}
}
