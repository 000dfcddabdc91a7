package vmrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/agent/internal/guesttest"
	"rutter/agent/vminfo/internal/vmtest"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// TestRunner: what is started is seen, and so is what is stopped; nothing is
// left behind.
func TestRunner(t *testing.T) {
	vmtest.NeedRoot(t)
	s := vmtest.NewSite(t)
	s.Cgroups = filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-run-%d", os.Getpid()))
	if err := os.Mkdir(s.Cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Cgroups) })
	zone := fmt.Sprintf("vminfo-run-%d", os.Getpid())
	vmtest.Shell(t, "ip", "netns", "add", zone+"x") // whether it can be done here
	_ = exec.Command("ip", "netns", "del", zone+"x").Run()
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q,"max_physical_memory":64,"root":%q,"init":["/guest","stubborn"]`, zone, guesttest.Root(t)))
	s.Run(0)
	runner, err := New(Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	id := vmID(1)
	if err := runner.Stop(t.Context(), id, false); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Stop of what does not run: %v", err)
	}
	if err := runner.Start(t.Context(), vmID(7)); !errors.Is(err, ErrNoVM) {
		t.Errorf("Start of nothing: %v", err)
	}
	if err := runner.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	e := s.Until(0, `"newValue":"running"`)
	if err := runner.Start(t.Context(), id); !errors.Is(err, ErrRunning) {
		t.Errorf("Start of what runs: %v", err)
	}
	if err := runner.Stop(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	s.Until(e.Seq, `"newValue":"installed"`)
	for _, path := range []string{filepath.Join("/run/netns", zone), filepath.Join(s.Cgroups, vmID(1).String()), filepath.Join(s.PIDs, vmID(1).String()+".pid")} {
		if system.Exists(path) {
			t.Errorf("%s is left", path)
		}
	}
}

// TestRunnerInit: an init that cannot be run, or that ends at once, is reported, and a
// VM whose program cannot be run is never seen to run.
func TestRunnerInit(t *testing.T) {
	vmtest.NeedRoot(t)
	s := vmtest.NewSite(t)
	s.Cgroups = filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-init-%d", os.Getpid()))
	if err := os.Mkdir(s.Cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Cgroups) })
	zone := fmt.Sprintf("vminfo-init-%d", os.Getpid())
	vmtest.Shell(t, "ip", "netns", "add", zone+"x") // whether it can be done here
	_ = exec.Command("ip", "netns", "del", zone+"x").Run()
	root := guesttest.Root(t)
	if err := os.WriteFile(filepath.Join(root, "plain"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	runner, err := New(Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	id := vmID(1)
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q`, zone))
	s.Run(0)
	const ends = time.Minute // what ends at once may need time for it
	for _, c := range []struct {
		init string
		want error
		says string
	}{
		{`["/nowhere/init"]`, ErrNoInit, "there is no such file"},
		{`["/plain"]`, ErrNoInit, "is it executable?"},
		{`["/guest","exit","1"]`, ErrInitEnded, "exit status 1"},
		{`["/guest","exit","0"]`, ErrInitEnded, "exit status 0"},
		{`["/guest","sleep"]`, nil, ""},
	} {
		s.WriteVM(1, fmt.Sprintf(`,"zonename":%q,"root":%q,"init":%s`, zone, root, c.init))
		runner.lives = ends
		if c.want == nil {
			runner.lives = initLives
		}
		err := runner.Start(t.Context(), id)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("init %s: got %v, want %v with %q", c.init, err, c.want, c.says)
		}
		if errors.Is(c.want, ErrNoInit) {
			for _, path := range []string{filepath.Join("/run/netns", zone), filepath.Join(s.Cgroups, vmID(1).String()), filepath.Join(s.PIDs, vmID(1).String()+".pid")} {
				if system.Exists(path) {
					t.Errorf("init %s: %s is left", c.init, path)
				}
			}
			if events, _, err := s.Store.Since(0, 1000); err != nil || slices.ContainsFunc(events, func(e vmstore.Event) bool { return strings.Contains(string(e.Line), `"newValue":"running"`) }) {
				t.Errorf("init %s: it was seen to run (%v)", c.init, err)
			}
		}
		if err == nil {
			s.Until(0, `"newValue":"running"`)
		}
		if err := runner.Stop(t.Context(), id, true); err != nil && !errors.Is(err, ErrNotRunning) {
			t.Error(err)
		}
	}
}

// vmID is the UUID of the nth VM or VMM of a test.
func vmID(n int) log.UUID {
	id, err := log.ParseUUID(fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n))
	if err != nil {
		panic(err)
	}
	return id
}
