package miss

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPendingOfAFIFO: a FIFO in the place of a namespace is an error; its open would not
// return.
func TestPendingOfAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "z")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if waiting, err := Pending(path); err == nil {
		t.Errorf("got %v, want an error", waiting)
	}
}
