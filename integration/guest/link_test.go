package guest

import "testing"

// TestTaggedLinks runs the tests of agent/link with two nodes, tagged and
// untagged, in the guest: the machine's own kernel may lack 802.1Q. There none
// of them may skip, and a name that no test has fails.
func TestTaggedLinks(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/agent/link"), "^TestKernelTwoNodes$", Config{})
}
