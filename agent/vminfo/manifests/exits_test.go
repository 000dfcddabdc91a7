package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/internal/vmtest"
)

// TestFolderExits: how a VM ended is shown until it runs again, also by a program that
// starts later, and is not the manifest's word.
func TestFolderExits(t *testing.T) {
	vmtest.NeedRoot(t)
	s := newSite(t)
	zone := fmt.Sprintf("vminfo-exit-%d", os.Getpid())
	vmtest.Shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q,"exit_status":7,"exit_timestamp":"2020-01-01T00:00:00.000Z"`, zone))
	s.Run(0)
	shown := func() string {
		vm, _ := s.Store.Find(zone)
		return string(vm.JSON)
	}
	if got := shown(); strings.Contains(got, `"exit_`) {
		t.Fatalf("the manifest's word was taken: %s", got)
	}
	status := func(want string) {
		t.Helper()
		s.Eventually("exit_status "+want, func() bool {
			return strings.Contains(shown(), `"exit_status":`+want+`,"exit_timestamp":"20`)
		})
	}
	cmd := s.startInit(1, zone)
	s.Eventually("it runs", func() bool { return strings.Contains(shown(), `"state":"running"`) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	status("-9") // of a zombie too
	_ = cmd.Wait()
	s.Stop()
	s.Run(0)
	status("-9")
	cmd = s.startInit(1, zone)
	s.Eventually("it runs again", func() bool { return strings.Contains(shown(), `"state":"running"`) })
	if got := shown(); strings.Contains(got, `"exit_`) {
		t.Errorf("a VM that runs has ended: %s", got)
	}
	// It ends while no program watches it: an earlier end is not told as this one.
	s.Stop()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s.Run(0)
	if got := shown(); strings.Contains(got, `"exit_`) {
		t.Errorf("an end that was not seen is told: %s", got)
	}
	cmd = s.startInit(1, zone)
	s.Eventually("it runs once more", func() bool { return strings.Contains(shown(), `"state":"running"`) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	status("-9")
	if err := os.Remove(filepath.Join(s.Manifests, vmtest.UUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	s.Eventually("nothing is left of a VM that is gone", func() bool {
		left, err := os.ReadDir(s.Manifests)
		return err == nil && len(left) == 0
	})
}

// TestHostileExitFiles: what another user put beside the manifests, before their folder
// was closed to others, holds up no VM, is not followed, and dates none into the future.
func TestHostileExitFiles(t *testing.T) {
	vmtest.NeedRoot(t)
	s := newSite(t)
	zone := fmt.Sprintf("vminfo-hostile-%d", os.Getpid())
	vmtest.Shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q`, zone))
	names := map[int]string{1: zone}
	for n := 2; n <= 6; n++ {
		names[n] = vmtest.UUID(n)
	}
	beside := func(n int, suffix string) string { return filepath.Join(s.Manifests, vmtest.UUID(n)+suffix) }
	// A link where the end of the first VM is written, to a file of another.
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, beside(1, ".exit.new")); err != nil {
		t.Fatal(err)
	}
	for n, text := range map[int]string{
		3: `{"exit_timestamp":"2999-01-01T00:00:00Z","exit_status":4}`,
		4: `{"exit_timestamp":null,"exit_status":"x"}`,
		5: "\x00" + strings.Repeat("x", 1<<20),
		6: `{"exit_timestamp":"2020-01-01T00:00:00Z","exit_status":99999999999999999999999}`,
	} {
		s.WriteVM(n, "")
		if err := os.WriteFile(beside(n, ".exit"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A pipe whose writer says nothing.
	s.WriteVM(2, "")
	if err := unix.Mkfifo(beside(2, ".exit"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(beside(2, ".exit"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	s.Run(0)
	shown := func(n int) string {
		vm, _ := s.Store.Find(names[n])
		return string(vm.JSON)
	}
	for n := 1; n <= 6; n++ {
		s.Eventually(fmt.Sprintf("VM %d is shown", n), func() bool { return strings.Contains(shown(n), `"state"`) })
		if got := shown(n); strings.Contains(got, `"last_modified":"2999`) || n != 3 && strings.Contains(got, `"exit_`) {
			t.Errorf("VM %d: %s", n, got)
		}
	}
	cmd := s.startInit(1, zone)
	s.Eventually("it runs", func() bool { return strings.Contains(shown(1), `"state":"running"`) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s.Eventually("its end is shown", func() bool { return strings.Contains(shown(1), `"exit_status":-9`) })
	s.Eventually("its end is written", func() bool {
		text, err := os.ReadFile(beside(1, ".exit"))
		return err == nil && strings.Contains(string(text), "-9")
	})
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file of another is %q, %v", text, err)
	}
}
