package link

import (
	"context"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
)

// TestLeftoverAnswers: what the kernel answered to a request that timed out is not taken for
// the answer to the next one. Otherwise a dump ends with the first confirmation that was
// left, all links seem to be missing, and a pass makes them again over those that there are.
func TestLeftoverAnswers(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	h := w.open("cn1")
	m := NewManager(ManagerConfig{Kernel: h})
	want := w.neighbours(0, "zA")
	w.pass(m, want)
	var e wire.Encoder
	e.LinkHeader(0, 0, 0)
	for name, flags := range map[string]netlink.HeaderFlags{
		"confirmations": netlink.Request | netlink.Acknowledge, // an error, which ends a list
		"a dump":        netlink.Request | netlink.Dump,
	} {
		for range 3 {
			if _, err := h.own.conn.Send(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: flags}, Data: e.B}); err != nil && flags&netlink.Dump == 0 {
				t.Fatal(err)
			}
		}
		have, err := h.Dump(context.Background(), []string{"zA"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ours := 0
		for i := range have.Links {
			if have.Links[i].Ours || have.Links[i].Known != "" {
				ours++
			}
		}
		if ours < 2 {
			t.Errorf("after %s that were left the dump has %d links of ours, want 2: %v", name, ours, have.Links)
		}
		if result := mustPass(t, m, clone(want)); len(result.Steps) > 0 || !result.Matched {
			t.Errorf("%s: steps %v", name, result.Steps)
		}
	}
}
