package vminfo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRunner: what is started is seen, and so is what is stopped; nothing is
// left behind.
func TestRunner(t *testing.T) {
	needRoot(t)
	s := newSite(t)
	s.cgroups = filepath.Join(filepath.Dir(DefaultCgroup()), fmt.Sprintf("rutter-run-%d", os.Getpid()))
	if err := os.Mkdir(s.cgroups, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(s.cgroups) })
	zone := fmt.Sprintf("vminfo-run-%d", os.Getpid())
	shell(t, "ip", "netns", "add", zone+"x") // whether it can be done here
	_ = exec.Command("ip", "netns", "del", zone+"x").Run()
	s.writeVM(1, fmt.Sprintf(`,"zonename":%q,"max_physical_memory":64,"init":["sh","-c","trap '' TERM; sleep 1000 & sleep 1001"]`, zone))
	s.run(0)
	runner, err := NewRunner(RunnerConfig{Manifests: s.manifests, PIDs: s.pids, Cgroup: s.cgroups, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	id := testVM(t, 1, "").UUID
	if err := runner.Stop(t.Context(), id, false); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Stop of what does not run: %v", err)
	}
	if err := runner.Start(t.Context(), testVM(t, 7, "").UUID); !errors.Is(err, ErrNoVM) {
		t.Errorf("Start of nothing: %v", err)
	}
	if err := runner.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	e := s.until(0, `"newValue":"running"`)
	if err := runner.Start(t.Context(), id); !errors.Is(err, ErrRunning) {
		t.Errorf("Start of what runs: %v", err)
	}
	if err := runner.Stop(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	s.until(e.Seq, `"newValue":"installed"`)
	for _, path := range []string{filepath.Join("/run/netns", zone), filepath.Join(s.cgroups, testUUID(1)), filepath.Join(s.pids, testUUID(1)+".pid")} {
		if fileThere(path) {
			t.Errorf("%s is left", path)
		}
	}
}
