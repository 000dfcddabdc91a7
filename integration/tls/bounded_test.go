package tls

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/cmd/rutter/confine"
	"rutter/integration/rig"
)

// An agent that starts VMs itself keeps what it needs for those, and what it starts gets no
// more: the bounding set has no more, and no program gives any.
func TestBounded(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: others have no capabilities that could be dropped")
	}
	folder := t.TempDir()
	p := launch(t, folder, "agent",
		"agent", "--cn", "0e000000-0000-4000-8000-000000000001", "--data", filepath.Join(folder, "agent"), "--servers", "http://"+rig.Address(t),
		"--svp", "off", "--listen", "off", "--vminfod", rig.Address(t), "--manifests", filepath.Join(folder, "vms"), "--vm-run", filepath.Join(folder, "pids"),
		"--vm-helper", "off", "--netns", filepath.Join(folder, "netns"), "--etc-netns", filepath.Join(folder, "etc"))
	await(t, p.LogFile, "capabilities dropped")
	set := fmt.Sprintf("%016x", uint64(confine.Machines)&permitted(t))
	for _, fields := range status(t, p.PID()) {
		for _, field := range []string{"CapEff", "CapPrm", "CapBnd"} {
			if fields[field] != set {
				t.Errorf("%s %s, want %s", field, fields[field], set)
			}
		}
		if strings.Trim(fields["CapAmb"], "0") != "" || fields["NoNewPrivs"] != "1" {
			t.Errorf("CapAmb %s, NoNewPrivs %s; want none, and no program that gives any", fields["CapAmb"], fields["NoNewPrivs"])
		}
	}
}
