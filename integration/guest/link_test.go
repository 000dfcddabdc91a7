package guest

import "testing"

// TestTaggedLinks runs the tests of agent/link with two nodes, tagged and
// untagged, ahead and on demand, and that of a NIC that moves, in the guest: the machine's own kernel may lack 802.1Q. There none
// of them may skip, and a name that no test has fails.
func TestTaggedLinks(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/agent/link"), "^(TestKernelTwoNodes|TestFirstPacketsAreAnsweredOnDemand|TestNICMovesWithoutAGap)$", Config{})
}
