package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// heldNICs is more than may be removed at once.
const heldNICs = 14

// newCrowd is a log by which CN 1 has many NICs on a vnet with another CN.
func newCrowd(t *testing.T) *servers {
	s := newServers(t)
	for n := range heldNICs {
		s.log.must(t, nicOp(t, macOf(40+n), 1, 1, 1, ""))
	}
	return s
}

// replace serves another log from now on.
func (s *servers) replace(other *testServer) {
	s.mu.Lock()
	s.log = other
	s.mu.Unlock()
	s.cut()
}

// node is a compute node whose kernel outlives its agents.
type node struct {
	t      *testing.T
	kernel *plan.Fake
	folder string
	share  int
	secure plan.Secure
	wrap   func(m *link.Manager) Kernel // nil: the manager is the agent's kernel
	s      *servers
	agent  *Agent
	stop   func()
	told   map[log.MAC]desired.Attach // SetAttachments before Run; nil: not called
}

// listed is a kernel that knows its namespaces, as the real one does.
type listed struct{ *plan.Fake }

// Namespaces is that of *link.Netlink.
func (listed) Namespaces() (names []string) {
	for n := range 8 {
		names = append(names, vmID(n).String())
	}
	return names
}

// start starts an agent on the node.
func (n *node) start() *Agent {
	n.t.Helper()
	a, err := New(Config{
		CN: cnID(1), Folder: n.folder, Servers: []string{"one"}, Dialer: n.s, HoldRemovals: n.share,
		Kernel: func(numbers plan.Numbers, save func(plan.Numbers) error) (Kernel, error) {
			m := link.NewManager(link.ManagerConfig{Kernel: listed{n.kernel}, Numbers: numbers, Save: save, Secure: n.secure})
			if n.wrap != nil {
				return n.wrap(m), nil
			}
			return m, nil
		},
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if n.told != nil {
		a.SetAttachments(n.told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	n.agent, n.stop = a, func() {
		n.t.Helper()
		n.stop = nil
		cancel()
		if err := errors.Join(<-ended, a.Close()); err != nil {
			n.t.Errorf("Run or Close: %v", err)
		}
		n.s.cut()
		n.s.wg.Wait()
	}
	return a
}

// end stops the agent that runs, if one does.
func (n *node) end() {
	if n.stop != nil {
		n.stop()
	}
}

// settle lets a minute pass, in which all pending work is done.
func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// links are those in the kernel, without the entries on them.
func (n *node) links() (names []string) {
	for line := range strings.Lines(n.kernel.String()) {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	return names
}

func newNode(t *testing.T, s *servers) *node {
	k := new(plan.Fake)
	for n := range 8 {
		k.AddNamespace(vmID(n).String())
	}
	return &node{t: t, kernel: k, folder: filepath.Join(t.TempDir(), "agent"), s: s}
}

// answers reports whether lookups find a NIC of another CN.
func (n *node) answers() bool {
	_, _, ok := n.agent.VL3(101, netip.MustParseAddr("10.0.0.13"))
	return ok
}

// unreadable cannot be compared with a view at first.
type unreadable struct {
	*link.Manager
	times int
}

func (u *unreadable) Surplus(ctx context.Context, was *desired.Links, want desired.Links) (link.Surplus, error) {
	if u.times--; u.times >= 0 {
		return link.Surplus{}, errors.New("the kernel is busy")
	}
	return u.Manager.Surplus(ctx, was, want)
}

// TestUnjudgedIsJudgedSoon: a view that no pass could judge, because the kernel could not be
// compared, or because the view became complete within the pass, does not wait for the sweep.
func TestUnjudgedIsJudgedSoon(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newServers(t))
		defer n.end()
		n.folder = folder
		n.wrap = func(m *link.Manager) Kernel { return &unreadable{m, 3} }
		n.start()
		time.Sleep(5 * time.Second) // a sweep comes after 30
		synctest.Wait()
		if s := n.agent.Status(); s.Programmed != n.s.head() {
			t.Errorf("programmed %d of %d", s.Programmed, n.s.head())
		}
	})
}

// TestEmptyClusterIsHeld: an empty cluster in place of another removes nothing, through
// restarts and reboots, until exactly that is accepted.
func TestEmptyClusterIsHeld(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.folder = folder
		n.start()
		settle()
		before := n.kernel.String()
		if n.agent.Status().Programmed == 0 || !strings.Contains(before, "fabric13") {
			t.Fatalf("nothing is programmed:\n%s", before)
		}
		held := func(when string) *Hold {
			t.Helper()
			h := n.agent.Status().Hold
			if h == nil || n.kernel.String() != before || !n.answers() {
				t.Fatalf("%s: hold %v, lookups answer %v, kernel\n%s\nbefore\n%s", when, h, n.answers(), n.kernel, before)
			}
			if mark := n.s.lastMark(); mark.Programmed != 0 && mark.Log.Cluster == h.Log {
				t.Fatalf("%s: the servers are told that %d is programmed", when, mark.Programmed)
			}
			return h
		}
		old := n.s.log.cluster
		n.s.replace(newTestServer(2))
		settle()
		h := held("after the cluster was replaced")
		if h.Going != heldNICs+2 || h.Links != h.Going || h.Was.Cluster != old || h.Log != (log.UUID{2}) || len(h.Names) != h.Going {
			t.Errorf("the hold says %+v", h)
		}
		n.stop()
		n.s.setDown(true, "one")
		n.start()
		settle()
		if again := held("started anew without servers"); again.ID != h.ID || !again.Since.Equal(h.Since) {
			t.Errorf("another hold after a restart: %+v, was %+v", again, h)
		}
		n.stop()
		n.kernel = newNode(t, n.s).kernel // the node was rebooted
		n.s.setDown(false, "one")
		n.start()
		settle()
		held("after a reboot")
		if _, err := n.agent.Accept("0123456789abcdef"); !errors.Is(err, ErrOtherHold) {
			t.Errorf("another hold was accepted: %v", err)
		}
		held("after another hold was accepted")
		if _, err := n.agent.Accept(h.ID); err != nil {
			t.Fatal(err)
		}
		n.s.change(create(t, log.KindNICTag, `{"name":"any","mtu":1500}`))
		settle()
		gone := func(when string) {
			t.Helper()
			if s := n.agent.Status(); s.Hold != nil || n.kernel.String() != "" || n.answers() || s.Programmed != n.s.head() {
				t.Errorf("%s: hold %v, programmed %d of %d, kernel\n%s", when, s.Hold, s.Programmed, n.s.head(), n.kernel)
			}
			if _, err := os.Stat(filepath.Join(n.folder, heldName)); !os.IsNotExist(err) {
				t.Errorf("%s: the view before is kept still: %v", when, err)
			}
		}
		gone("accepted")
		n.stop()
		n.start()
		settle()
		gone("accepted, and started anew")
	})
}

// TestHeldFollowsTheLog: while a view is held, what the log orders one by one is
// carried out, also in the old view and over restarts, and what the new view adds is
// there.
func TestHeldFollowsTheLog(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.folder = folder
		n.start()
		settle()
		all := len(n.links())
		other := newTestServer(2)
		baseHistory(t, other, 3)
		other.must(t, vmOp(t, 1, 1))
		n.s.replace(other)
		settle()
		if n.agent.Status().Hold == nil || len(n.links()) != all {
			t.Fatalf("not held: %v", n.links())
		}
		n.s.change(nicOp(t, macOf(100), 1, 1, 2, ""), nicOp(t, macOf(40), 1, 1, 1, "10.0.0.77"), nicOp(t, macOf(3), 2, 2, 1, "10.0.0.13"))
		settle()
		if got := len(n.links()); got != all+2 || !n.answers() {
			t.Fatalf("with a NIC on a vnet of its own there are %d links, want %d:\n%s", got, all+2, n.kernel)
		}
		for _, mac := range []log.MAC{macOf(3), macOf(40)} {
			n.s.change(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String()})
		}
		settle()
		deleted := func(when string) {
			t.Helper()
			if len(n.links()) != all+1 || strings.Contains(n.kernel.String(), macOf(40).String()) || strings.Contains(n.kernel.String(), macOf(3).String()) || n.answers() {
				t.Errorf("%s: of %d links there are %d, and of those that the log deleted one by one:\n%s", when, all, len(n.links()), n.kernel)
			}
			if h := n.agent.Status().Hold; h == nil || h.Going != heldNICs+1 {
				t.Errorf("%s: hold %+v, want one of %d links", when, h, heldNICs+1)
			}
		}
		deleted("deleted while held")
		n.stop()
		n.start()
		settle()
		deleted("started anew")
	})
}

// TestWhatTakesLittleAwayIsDone: a view that lacks at most ten links, or at most the
// share, is carried out at once; so is any number of deletes, one by one.
func TestWhatTakesLittleAwayIsDone(t *testing.T) {
	for _, test := range []struct {
		name        string
		share, lack int
		held        bool
	}{
		{"ten links", 10, holdLinks, false},
		{"eleven links", 10, holdLinks + 1, true},
		{"eleven links of sixteen, with 70%", 70, holdLinks + 1, false},
		{"eleven links of sixteen, with 60%", 60, holdLinks + 1, true},
		{"off", -1, heldNICs, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newCrowd(t))
				defer n.end()
				n.share = test.share
				n.start()
				settle()
				all := len(n.links())
				restored := newServers(t).log // as a backup of before
				for i := range heldNICs - test.lack {
					restored.must(t, nicOp(t, macOf(40+i), 1, 1, 1, ""))
				}
				restored.cluster = log.UUID{7}
				n.s.replace(restored)
				settle()
				if is := n.agent.Status().Hold != nil; is != test.held {
					t.Errorf("held %v, want %v: %+v", is, test.held, n.agent.Status().Hold)
				}
				want := all
				if !test.held {
					want -= test.lack
				}
				if got := len(n.links()); got != want {
					t.Errorf("%d links are left of %d, want %d", got, all, want)
				}
			})
		})
	}
	t.Run("one by one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, newCrowd(t))
			defer n.end()
			n.start()
			settle()
			n.stop() // what comes while no agent runs is ordered one by one as well
			for i := range heldNICs {
				n.s.change(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(40 + i).String()})
			}
			n.start()
			settle()
			if n.agent.Status().Hold != nil || len(n.links()) != 2 {
				t.Errorf("deletes were held: %+v\n%s", n.agent.Status().Hold, n.kernel)
			}
		})
	})
}

// TestHoldEndsByItself: the log that the node knew is back, or the new one has
// everything again. Then nothing is held any more, without an acceptance.
func TestHoldEndsByItself(t *testing.T) {
	for _, back := range []string{"the old cluster", "an import into the new one"} {
		t.Run(back, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newCrowd(t))
				defer n.end()
				n.start()
				settle()
				before, old := n.kernel.String(), n.s.log
				other := newTestServer(2)
				n.s.replace(other)
				settle()
				if n.agent.Status().Hold == nil {
					t.Fatal("not held")
				}
				if back == "the old cluster" {
					n.s.replace(old)
				} else {
					imported := newCrowd(t).log
					imported.cluster = other.cluster
					n.s.replace(imported)
				}
				settle()
				if s := n.agent.Status(); s.Hold != nil || s.Programmed != n.s.head() || n.kernel.String() != before {
					t.Errorf("hold %v, programmed %d of %d, kernel\n%s\nbefore\n%s", s.Hold, s.Programmed, n.s.head(), n.kernel, before)
				}
			})
		})
	}
}

// TestFirstViewIsComparedWithTheKernel: an agent that lost its cache removes a little
// and holds much, by what the kernel has.
func TestFirstViewIsComparedWithTheKernel(t *testing.T) {
	for _, loss := range []string{"gone", "damaged", "of another node"} {
		t.Run(loss, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newCrowd(t))
				defer n.end()
				n.start()
				settle()
				n.stop()
				before := n.kernel.String()
				path := filepath.Join(n.folder, cacheName)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				switch loss {
				case "damaged":
					if err := os.WriteFile(path, []byte("not a cache"), 0o600); err != nil {
						t.Fatal(err)
					}
				case "of another node":
					c := &cache{path: path, cn: cnID(9), enc: log.NewEncoder()}
					if err := errors.Join(c.create(&batch{}), c.db.Close()); err != nil {
						t.Fatal(err)
					}
				}
				n.s.setDown(true, "one")
				n.start()
				settle()
				if got := n.kernel.String(); got != before {
					t.Fatalf("without a view the kernel was changed to\n%s", got)
				}
				old := n.s.log
				n.s.log = newTestServer(2)
				n.s.setDown(false, "one")
				settle()
				for range 2 { // and after a restart
					h := n.agent.Status().Hold
					if h == nil || h.Going != heldNICs+2 || !h.Was.Cluster.IsZero() || n.kernel.String() != before {
						t.Fatalf("held: %+v, kernel\n%s\nbefore\n%s", h, n.kernel, before)
					}
					n.stop()
					n.start()
					settle()
				}
				n.s.replace(old)
				settle()
				if s := n.agent.Status(); s.Hold != nil || s.Programmed != n.s.head() || n.kernel.String() != before {
					t.Errorf("with the log again: hold %+v, programmed %d of %d", s.Hold, s.Programmed, n.s.head())
				}
				n.stop()
				aside, _ := filepath.Glob(path + ".damaged-*")
				if want := loss != "gone"; (len(aside) == 1) != want {
					t.Errorf("put aside: %v, want one %v", aside, want)
				}
			})
		})
	}
}

// TestKernelHoldIsAccepted: what only the kernel has is removed when that is accepted.
func TestKernelHoldIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.start()
		settle()
		n.stop()
		if err := os.RemoveAll(n.folder); err != nil {
			t.Fatal(err)
		}
		n.s.replace(newServers(t).log) // without the crowd
		n.start()
		settle()
		h := n.agent.Status().Hold
		if h == nil || h.Going != heldNICs || h.Links != heldNICs+2 {
			t.Fatalf("held: %+v", h)
		}
		n.s.change(nicOp(t, macOf(90), 1, 1, 1, ""))
		settle()
		if !strings.Contains(n.kernel.String(), macOf(90).String()) || len(n.links()) != heldNICs+3 {
			t.Errorf("a new NIC while held: links\n%s", n.kernel)
		}
		n.s.change(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(90).String()})
		settle()
		if strings.Contains(n.kernel.String(), macOf(90).String()) || len(n.links()) != heldNICs+2 {
			t.Errorf("a NIC that was deleted while held: links\n%s", n.kernel)
		}
		if _, err := n.agent.Accept(h.ID); err != nil {
			t.Fatal(err)
		}
		n.s.change(create(t, log.KindNICTag, `{"name":"any","mtu":1500}`))
		settle()
		if s := n.agent.Status(); s.Hold != nil || len(n.links()) != 2 || s.Programmed != n.s.head() {
			t.Errorf("accepted: hold %+v, %d links, programmed %d of %d", s.Hold, len(n.links()), s.Programmed, n.s.head())
		}
	})
}

// TestGuestsHearOfWhatIsLetGo: an SVP client with an answer from the held view is told
// when the answer is no longer true.
func TestGuestsHearOfWhatIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.start()
		settle()
		n.s.replace(newTestServer(2))
		settle()
		at := n.agent.LastChange()
		if _, err := n.agent.Accept(n.agent.Status().Hold.ID); err != nil {
			t.Fatal(err)
		}
		changes, gap := n.agent.Changes(at, 1000)
		gone := slices.ContainsFunc(changes, func(c Change) bool { return c.Was.MAC == macOf(3) && c.isGone() })
		if gap || !gone {
			t.Errorf("of a NIC that went: %+v, gap %v", changes, gap)
		}
	})
}

// TestUnitedViews: if both views have a thing, the first view counts. A vnet that is on
// demand in one of them has no entries.
func TestUnitedViews(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	a := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 1, MTU: 1}, {VNet: 3, MTU: 1, OnDemand: true}},
		Fabrics: []desired.Fabric{{MAC: macOf(1), VNet: 1}},
		Neighs:  []desired.Neigh{{Link: macOf(1), MAC: macOf(2)}},
	}
	b := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 1, MTU: 2}, {VNet: 2, MTU: 2}, {VNet: 3, MTU: 2}},
		Fabrics: []desired.Fabric{{MAC: macOf(1), VNet: 9}, {MAC: macOf(5), VNet: 3}},
		Neighs:  []desired.Neigh{{Link: macOf(1), MAC: macOf(3)}, {Link: macOf(5), MAC: macOf(3)}},
		FDB:     []desired.FDB{{VNet: 2, MAC: macOf(7)}, {VNet: 3, MAC: macOf(7), Dst: addr}},
	}
	a.Segments = []desired.Segment{{VNet: 1, MTU: 1}}
	b.Segments = []desired.Segment{{VNet: 1, MTU: 2}, {VNet: 2, VLAN: 5}}
	a.Peers = []desired.Peer{{VNet: 3, Addr: addr.Next()}}
	got := fmt.Sprintf("%v", mergedLinks(a, b))
	want := fmt.Sprintf("%v", desired.Links{
		VXLANs:  []desired.VXLAN{a.VXLANs[0], b.VXLANs[1], a.VXLANs[1]},
		Fabrics: []desired.Fabric{a.Fabrics[0], b.Fabrics[1]},
		Neighs:  []desired.Neigh{a.Neighs[0]},
		FDB:     []desired.FDB{b.FDB[0]},
		// Of the vnet that one view has on demand, the other's entries say who the peers are.
		Segments: []desired.Segment{a.Segments[0], b.Segments[1]},
		Peers:    []desired.Peer{{VNet: 3, Addr: addr}, a.Peers[0]},
	})
	if got != want {
		t.Errorf("united\n%s, want\n%s", got, want)
	}
}
