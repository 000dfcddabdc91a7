package operate

import (
	"os"
	"path/filepath"
	"regexp"
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

// The unit of the helper that runs VMs leaves it what it keeps, and gives it no mounts of its
// own: the network namespaces that it makes would be seen by no other process.
func TestHelperUnit(t *testing.T) {
	want := strings.Fields(confine.Helper.String())
	slices.Sort(want)
	if got := bounding(t, "rutter-vms.service"); !slices.Equal(got, want) {
		t.Errorf("CapabilityBoundingSet=%s, want %s", got, want)
	}
	text, err := os.ReadFile(filepath.Join(unitPath, "rutter-vms.service"))
	if err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile(`(?m)^(Protect[A-Za-z]+|Private[A-Za-z]+|Read(Only|Write)Paths|InaccessiblePaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|Root[A-Za-z]+|MountFlags|DynamicUser|StateDirectory[A-Za-z]*|ProcSubset)=`)
	if found := own.FindAllString(string(text), -1); found != nil {
		t.Errorf("rutter-vms.service has %v: systemd would give it mounts of its own", found)
	}
	if !strings.Contains(string(text), "\nKillMode=process\n") {
		t.Error("rutter-vms.service lacks KillMode=process: VMs would end with it")
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
