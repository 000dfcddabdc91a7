package agent

import (
	"testing"

	"rutter/log"
	"rutter/projections/desired"
)

// A server may ask for NICs of VMs of this node only, whose links the agent itself knows
// where to find.
func TestViewsOfOwnNICs(t *testing.T) {
	server, r, stream1 := caughtUp(t)
	server.must(t, nicOp(t, macOf(7), 1, 1, 1, ""), nicOp(t, macOf(8), 2, 2, 1, ""))
	deliverAll(t, r, append(stream1.next(t, true), stream1.bookmark()))
	s := &stream{follower: &follower{cfg: &Config{CN: r.cn}, replica: r, isOnDemand: func(uint32) bool { return true }}}
	for mac, want := range map[log.MAC]bool{macOf(7): true, macOf(8): false, macOf(99): false} {
		got, ok := s.viewOf(desired.KernelQuery{NIC: mac})
		if ok != want || ok && (got.VNet == 0 || !got.OnDemand || got.Query.NIC != mac) {
			t.Errorf("NIC %s: %+v, %t, want %t", mac, got, ok, want)
		}
	}
}
