package agent

import (
	"strings"
	"testing"
	"testing/synctest"

	"rutter/agent/link/plan"
	"rutter/log"
)

// marks returns the clusters for which the links in the kernel are marked.
func (n *node) marks() map[log.UUID]int {
	marks := map[log.UUID]int{}
	for _, l := range n.kernel.Links {
		m, _ := plan.ParseMark(l.Alias)
		marks[m.Cluster]++
	}
	return marks
}

// TestLinksBearTheMarkOfTheirCluster (SAFETY L3): of the one whose view the node carries
// out. The marks of the cluster before, whose view it carried out, are its own.
func TestLinksBearTheMarkOfTheirCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.start()
		settle()
		first, all := n.s.log.cluster, len(n.kernel.Links)
		if got := n.marks(); all == 0 || len(got) != 1 || got[first] != all {
			t.Fatalf("marks: %v, want all %d of %s", got, all, first)
		}
		n.stop()
		renamed := n.kernel.Links[all-1]
		if !n.kernel.Rename(renamed.Namespace, renamed.Name, "eth0") {
			t.Fatal("no link")
		}
		n.start()
		settle()
		s := n.agent.Status().Kernel
		if !s.Matched || len(s.Renamed) != 1 || !strings.Contains(s.Renamed[0], "eth0 in namespace "+renamed.Namespace) {
			t.Errorf("renamed: %q, matched %v", s.Renamed, s.Matched)
		}
		n.stop()
		n.s.log.cluster = log.UUID{42}
		n.start()
		settle()
		if got := n.marks(); got[log.UUID{42}] != all || len(n.kernel.Links) != all {
			t.Errorf("after a restore: marks %v of %d links, want all of the new cluster, and %d links", got, len(n.kernel.Links), all)
		}
		if s := n.agent.Status(); s.Hold != nil || !s.Kernel.Matched || s.Kernel.Healed != 0 {
			t.Errorf("after a restore: hold %v, matched %v, healed %d", s.Hold, s.Kernel.Matched, s.Kernel.Healed)
		}
	})
}
