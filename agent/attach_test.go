package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"rutter/agent/filter"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// openTable is a filter that holds what it is given, as of the last change of each port and
// bridge.
type openTable struct{ state filter.State }

func (o *openTable) Read(context.Context) (filter.State, error) {
	s := o.state
	s.Ports, s.Segments, s.Peers = slices.Clone(s.Ports), slices.Clone(s.Segments), slices.Clone(s.Peers)
	return s, nil
}

func (o *openTable) Apply(_ context.Context, changes []filter.Change) []error {
	s := &o.state
	for _, c := range changes {
		if c.SetPort != nil || c.DelPort != 0 {
			s.Ports = slices.DeleteFunc(s.Ports, func(p filter.Port) bool {
				return p.Index == c.DelPort || c.SetPort != nil && p.Index == c.SetPort.Index
			})
		}
		if c.SetSegment != nil || c.DelSegment != 0 {
			s.Segments = slices.DeleteFunc(s.Segments, func(g filter.Segment) bool {
				return g.Index == c.DelSegment || c.SetSegment != nil && g.Index == c.SetSegment.Index
			})
		}
		switch {
		case c.SetPort != nil:
			s.Ports = append(s.Ports, *c.SetPort)
		case c.SetSegment != nil:
			s.Segments = append(s.Segments, *c.SetSegment)
		case c.SetUnderlay != nil:
			s.Underlay = *c.SetUnderlay
		case c.AddPeer != nil:
			s.Peers = append(s.Peers, *c.AddPeer)
		case c.DelPeer != nil:
			s.Peers = slices.DeleteFunc(s.Peers, func(p filter.Peer) bool { return p == *c.DelPeer })
		}
	}
	return nil
}

func (o *openTable) Counters(context.Context) (filter.Counters, error) {
	return filter.Counters{}, nil
}

func (o *openTable) Close() error { return nil }

// tapNode is a node with port security, whose VM 1 has no namespace.
func tapNode(t *testing.T) *node {
	n := newNode(t, newServers(t))
	n.kernel.DeleteNamespace(vmID(1).String())
	n.kernel.Filter = new(openTable)
	n.kernel.Interfaces = []plan.Interface{{Name: "net0", Index: 2}}
	n.secure = plan.Secure{On: true, Required: true}
	return n
}

// tap returns the link of that name of the node's own namespace, and how many taps there are.
func (n *node) tap(name string) (found *plan.Link, taps int) {
	for _, l := range n.kernel.Links {
		if l.Kind == plan.KindTap {
			if taps++; l.Name == name {
				found = l
			}
		}
	}
	return found, taps
}

// TestAttachmentsAreKept: what a source told of a NIC is programmed without a pass, survives
// the source, the process, and a cache that is lost, and ends with the NIC alone. The VM
// needs no namespace for a tap, and the tap is there before it runs.
func TestAttachmentsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := tapNode(t)
		a := n.start()
		defer n.end()
		settle()
		if _, taps := n.tap(""); taps != 0 || a.Status().Kernel.Waiting == 0 {
			t.Fatalf("before a source tells: %d taps, %d objects wait; want the NIC's namespace", taps, a.Status().Kernel.Waiting)
		}
		told := map[log.MAC]desired.Attach{macOf(1): {Tap: true, Name: "rt1", User: 7}, macOf(77): {Tap: true, Name: "rt77"}}
		passes := a.Status().Kernel.Passes
		a.SetAttachments(told)
		delete(told, macOf(1)) // the caller's map is its own
		synctest.Wait()
		tap, _ := n.tap("rt1")
		if tap == nil || !tap.Up || tap.User != 7 || a.Status().Kernel.Passes != passes {
			t.Fatalf("told: tap %v, %d passes more; want it by a part\n%s", tap, a.Status().Kernel.Passes-passes, n.kernel)
		}
		if s := a.Status(); s.Programmed != n.s.head() || s.Kernel.Waiting != 0 || len(s.Kernel.Failures) != 0 {
			t.Errorf("programmed %d of %d, waiting %d, failures %v", s.Programmed, n.s.head(), s.Kernel.Waiting, s.Kernel.Failures)
		}
		same := func(what string) {
			t.Helper()
			settle()
			now, taps := n.tap("rt1")
			if now != tap || taps != 1 || !now.Up {
				t.Errorf("%s: %d taps, is it the same: %v", what, taps, now == tap)
			}
		}
		a.SetAttachments(map[log.MAC]desired.Attach{}) // its VM is not listed any more
		same("a source without the VM")
		n.end()
		steps := n.start().Status().Kernel.Steps
		same("the next process, which is told nothing")
		if s := n.agent.Status().Kernel; s.Steps != steps || !s.Matched {
			t.Errorf("the next process: %d steps, matched %v", s.Steps-steps, s.Matched)
		}
		n.end()
		if err := os.Remove(filepath.Join(n.folder, "cache.db")); err != nil {
			t.Fatal(err)
		}
		n.start()
		same("a process without a cache")
		n.agent.SetAttachments(map[log.MAC]desired.Attach{macOf(1): {Tap: true, Name: "a/b"}})
		same("a name that cannot be")
		if s := n.agent.Status().Kernel; len(s.Failures) != 1 {
			t.Errorf("a name that cannot be: failures %v", s.Failures)
		}
		n.s.change(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: macOf(1).String()})
		settle()
		if _, taps := n.tap(""); taps != 0 {
			t.Errorf("the NIC is gone, and %d taps are there", taps)
		}
		n.s.change(nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"))
		n.agent.SetAttachments(nil)
		settle()
		if _, taps := n.tap(""); taps != 0 {
			t.Errorf("a NIC made again with the MAC has %d taps of the one before", taps)
		}
	})
}

// TestToldBeforeTheNIC: what is told before the log has a NIC is what its link is made as at
// once.
func TestToldBeforeTheNIC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := tapNode(t)
		n.kernel.AddNamespace(vmID(1).String())
		a := n.start()
		defer n.end()
		settle()
		a.SetAttachments(map[log.MAC]desired.Attach{macOf(8): {Name: "eth0"}, macOf(9): {Tap: true, Name: "rt9"}})
		done := len(n.kernel.Done)
		n.s.change(nicOp(t, macOf(8), 1, 1, 1, "10.0.0.18"))
		n.s.change(nicOp(t, macOf(9), 1, 1, 1, "10.0.0.19"))
		settle()
		if l := n.kernel.Find(plan.LinkKey{Namespace: vmID(1).String(), Name: "eth0"}); l == nil || l.MAC != macOf(8) {
			t.Errorf("eth0: %v", l)
		}
		if tap, _ := n.tap("rt9"); tap == nil || !tap.Up {
			t.Errorf("the tap: %v", tap)
		}
		for _, s := range n.kernel.Done[done:] {
			if s.Change&plan.ChangeName != 0 || s.Op == plan.OpDelLink {
				t.Errorf("not made at once as told: %s", s)
			}
		}
	})
}

// TestLetGo: the tap and the link of NICs that were let go are removed while the log has the
// NICs, come back with no restart, and are made again when they are let go no more.
func TestLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := tapNode(t)
		n.kernel.AddNamespace(vmID(1).String())
		n.s.change(nicOp(t, macOf(8), 1, 1, 1, "10.0.0.18"))
		a := n.start()
		defer n.end()
		at := map[log.MAC]desired.Attach{macOf(1): {Tap: true, Name: "rt1"}, macOf(8): {Name: "eth0"}}
		a.SetAttachments(at)
		settle()
		there := func(what string, want bool) {
			t.Helper()
			settle()
			_, taps := n.tap("rt1")
			eth0 := n.kernel.Find(plan.LinkKey{Namespace: vmID(1).String(), Name: "eth0"})
			other := n.kernel.Find(plan.LinkKey{Namespace: vmID(1).String(), Name: plan.FabricName(0)})
			if taps == 1 != want || eth0 != nil != want || other != nil {
				t.Errorf("%s: %d taps, eth0 %v; want them: %v\n%s", what, taps, eth0, want, n.kernel)
			}
			if s := n.agent.Status(); len(s.Kernel.Failures) != 0 || s.Programmed != n.s.head() {
				t.Errorf("%s: failures %v, programmed %d of %d", what, s.Kernel.Failures, s.Programmed, n.s.head())
			}
		}
		there("before", true)
		none := map[log.MAC]desired.Attach{macOf(1): {None: true}, macOf(8): {None: true}}
		a.SetAttachments(none)
		there("let go", false)
		n.end()
		n.told = none
		n.start()
		there("the next process", false)
		n.agent.SetAttachments(at)
		there("let go no more", true)
	})
}
