package vmrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rutter/agent/internal/guesttest"
)

// TestResolverOfTheAgentsFolder: a VM with a root gets the resolv.conf that the agent wrote,
// also where the agent writes it in another folder than that of ip-netns(8).
func TestResolverOfTheAgentsFolder(t *testing.T) {
	b := newBed(t, "resolver")
	b.cfg.EtcNetNS = t.TempDir()
	root, of := guesttest.Root(t), filepath.Join(b.cfg.EtcNetNS, b.zone+"-1")
	const text = "nameserver 10.0.0.2\n"
	if err := errors.Join(os.Chmod(filepath.Dir(b.cfg.EtcNetNS), 0o755), os.MkdirAll(of, 0o755), // a VM's users must be able to pass
		os.WriteFile(filepath.Join(of, "resolv.conf"), []byte(text), 0o644),
		os.MkdirAll(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/resolv.conf"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	pid := b.start(1, root, "", "sleep")
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/resolv.conf", pid)); err != nil || string(got) != text {
		t.Errorf("the VM has %q, %v; want %q", got, err, text)
	}
}
