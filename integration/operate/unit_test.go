package operate

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAgentUnitCapabilities: the agent's unit leaves it what it needs, and
// nothing else.
func TestAgentUnitCapabilities(t *testing.T) {
	unit, err := os.ReadFile("../../scripts/systemd/rutter-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(unit)) {
		if set, is := strings.CutPrefix(line, "CapabilityBoundingSet="); is {
			got = strings.Fields(set)
		}
	}
	want := []string{
		"CAP_DAC_OVERRIDE",     // /etc/netns/NAME
		"CAP_NET_ADMIN",        // links
		"CAP_NET_BIND_SERVICE", // ports of other services on the node
		"CAP_NET_BROADCAST",    // netlink of all namespaces: NETLINK_LISTEN_ALL_NSID of netlink(7)
		"CAP_SYS_ADMIN",        // the namespaces of VMs
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("CapabilityBoundingSet=%s, want %s", got, want)
	}
}
