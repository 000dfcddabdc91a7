package guesttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program is the program in the root folder of Root; testdata/guest says what it does.
const Program = "/guest"

var guest struct {
	sync.Once
	program []byte
	err     error
}

// Root makes a root folder for a VM, with Program in it, below a folder that only root can
// enter.
func Root(t *testing.T) string {
	t.Helper()
	guest.Do(func() {
		name := filepath.Join(t.TempDir(), "guest")
		cmd := exec.Command("go", "build", "-o", name, "rutter/agent/internal/guesttest/testdata/guest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // it has no libraries
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			guest.err = err
			return
		}
		guest.program, guest.err = os.ReadFile(name)
	})
	if guest.err != nil {
		t.Fatal(guest.err)
	}
	closed := t.TempDir()
	root := filepath.Join(closed, "root")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, Program), guest.program, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}
