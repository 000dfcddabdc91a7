package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/agent/vminfo/internal/vmtest"
)

func modeOf(path string) os.FileMode {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Mode().Perm()
}

// Manifests have passwords. Those that other users can read are closed, and so is their
// folder, also if another program made them.
func TestManifestsAreClosed(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, "")
	first := filepath.Join(s.Manifests, vmtest.UUID(1)+".json")
	for path, mode := range map[string]os.FileMode{s.Manifests: 0o775, first: 0o664} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	s.Run(0)
	if got := modeOf(s.Manifests); got != 0o700 {
		t.Errorf("the folder has mode %#o, want 0700", got)
	}
	s.WriteVM(2, "") // 0644
	s.Next(0)
	for n := 1; n <= 2; n++ {
		if got := modeOf(filepath.Join(s.Manifests, vmtest.UUID(n)+".json")); got != 0o600 {
			t.Errorf("manifest %d has mode %#o, want 0600", n, got)
		}
	}
	// Another program writes it in place, readable by all.
	if err := os.Chmod(first, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first, fmt.Appendf(nil, `{"uuid":%q,"quota":5}`, vmtest.UUID(1)), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Next(1)
	if got := modeOf(first); got != 0o600 {
		t.Errorf("a manifest that was written again has mode %#o, want 0600", got)
	}
}

// A folder with other things may be one that was named by mistake. It stays as it is,
// and the status says so; the manifests in it are closed.
func TestFolderWithOtherThingsStaysOpen(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, "")
	letters := filepath.Join(s.Manifests, "letters")
	if err := os.WriteFile(letters, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{s.Manifests: 0o755, letters: 0o644} {
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	s.Run(0)
	for path, want := range map[string]os.FileMode{s.Manifests: 0o755, letters: 0o644, filepath.Join(s.Manifests, vmtest.UUID(1)+".json"): 0o600} {
		if got := modeOf(path); got != want {
			t.Errorf("%s has mode %#o, want %#o", path, got, want)
		}
	}
	if errs := s.Service.Status(false).RefreshErrors; len(errs) != 1 || !strings.Contains(errs[0].Err, "letters") {
		t.Errorf("the status says %v, want that the folder stays open because of letters", errs)
	}
}

// What a link leads to is not Rutter's: its mode stays.
func TestLinkedManifestKeepsItsMode(t *testing.T) {
	s := newSite(t)
	target := filepath.Join(t.TempDir(), "vm.json")
	if err := os.WriteFile(target, fmt.Appendf(nil, `{"uuid":%q}`, vmtest.UUID(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(target, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(s.Manifests, vmtest.UUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	s.Run(0)
	if got := modeOf(target); got != 0o644 || s.Store.Count() != 1 {
		t.Errorf("mode %#o and %d VMs, want 0644 and 1", got, s.Store.Count())
	}
}
