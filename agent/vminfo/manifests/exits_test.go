package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
