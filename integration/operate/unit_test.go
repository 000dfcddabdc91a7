package operate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rutter/cmd/rutter/confine"
)

// bounding are the capabilities that units leave, read one after another as
// systemd does: each line adds to those before.
func bounding(t *testing.T, units ...string) (all []string) {
	t.Helper()
	for _, unit := range units {
		text, err := os.ReadFile(filepath.Join(unitPath, unit))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			set, is := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet=")
			if !is {
				continue
			}
			// A set that is emptied first and then has some taken away stays empty.
			if strings.HasPrefix(set, "~") {
				t.Fatalf("%s: %s: this test knows lines that add or empty only", unit, line)
			}
			if set == "" {
				all = nil
			}
			all = append(all, strings.Fields(set)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestAgentUnitCapabilities: the agent's unit leaves it what it needs, and
// nothing else.
func TestAgentUnitCapabilities(t *testing.T) {
	want := []string{
		"CAP_CHOWN",            // the group of the agent's socket
		"CAP_DAC_OVERRIDE",     // /etc/netns/NAME
		"CAP_NET_ADMIN",        // links
		"CAP_NET_BIND_SERVICE", // ports of other services on the node
		"CAP_NET_BROADCAST",    // netlink of all namespaces: NETLINK_LISTEN_ALL_NSID of netlink(7)
		"CAP_NET_RAW",          // sockets at which requests of VMs are answered: packet(7)
		"CAP_SYS_ADMIN",        // the namespaces of VMs
	}
	if got := bounding(t, "rutter-agent.service"); !slices.Equal(got, want) {
		t.Errorf("CapabilityBoundingSet=%s, want %s", got, want)
	}
}

// With the drop-in for VMs the unit leaves what an agent that starts VMs keeps.
func TestAgentOfVMsCapabilities(t *testing.T) {
	want := strings.Fields(confine.Machines.String())
	slices.Sort(want)
	if got := bounding(t, "rutter-agent.service", "rutter-agent-vms.conf"); !slices.Equal(got, want) {
		t.Errorf("CapabilityBoundingSet=%s, want %s", got, want)
	}
}

// A server has no capability, and with the drop-in for service addresses those that it
// keeps, and low ports.
func TestServerUnitCapabilities(t *testing.T) {
	if got := bounding(t, "rutter-server.service"); len(got) > 0 {
		t.Errorf("CapabilityBoundingSet=%s, want none", got)
	}
	want := []string{"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW"}
	if got := bounding(t, "rutter-server.service", "rutter-server-address.conf"); !slices.Equal(got, want) {
		t.Errorf("CapabilityBoundingSet=%s, want %s", got, want)
	}
}
