package guest

import "testing"

// TestTaggedVarpd runs what rutter varpd does for untagged and tagged links in
// the guest: the machine's own kernel may lack 802.1Q. There neither may skip.
func TestTaggedVarpd(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/integration/standin"), "^TestPing$", Config{})
}
