package consent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rutter/log"
)

func TestConsent(t *testing.T) {
	dir := t.TempDir()
	if v, err := Load(dir); v != 0 || err != nil {
		t.Errorf("an empty folder has %d, %v", v, err)
	}
	for _, want := range []uint32{1, 7} {
		if err := Save(dir, want); err != nil {
			t.Fatal(err)
		}
		if v, err := Load(dir); v != want || err != nil {
			t.Errorf("%d, %v; want %d", v, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("seven\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("%v, want %v", err, log.ErrCorrupt)
	}
}
