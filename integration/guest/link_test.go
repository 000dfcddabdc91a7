package guest

import "testing"

// TestTaggedLinks runs the tests of agent/link that need 802.1Q, which the
// machine's own kernel may lack. Their names contain "Tagged".
func TestTaggedLinks(t *testing.T) {
	SkipUnlessAvailable(t)
	binary := BuildTest(t, "rutter/agent/link")
	if len(Tests(t, binary, "Tagged")) == 0 {
		t.Skip("agent/link has no test with Tagged in its name")
	}
	RunTests(t, binary, "Tagged", Config{})
}
