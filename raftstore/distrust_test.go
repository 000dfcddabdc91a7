package raftstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	faultdisk "rutter/integration/simulate/disk"
	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/distrust"
	"rutter/raftstore/internal/raftlog"
)

// TestFailedSyncIsNotTrusted: a sync fails, what was written is lost, and the kernel
// goes on to show it, as Linux does. The next start sees what the disk has, of both
// files, and keeps what was acknowledged.
func TestFailedSyncIsNotTrusted(t *testing.T) {
	t.Parallel()
	disk := newFaultFS(t)
	dir := filepath.Join(disk.Path(), "data")
	cfg := quiet(busy(t, dir, RaftLogBolt))
	stale := false
	for _, spared := range []int{0, 1} { // syncs of data, and of what points to it
		disk.FailAfter(-1)
		var acked map[string]log.Result
		prefix := []string{"first", "second"}[spared]
		err := runStore(cfg, func(s *Store) {
			acked = writeUntil(s, 20, prefix)
			disk.Lossy(true)
			disk.Fail(spared, "sync", syscall.EIO)
			for name, result := range writeUntil(s, 50, prefix+"_during") {
				acked[name] = result
			}
		})
		if !errors.Is(err, ErrDisk) {
			t.Fatalf("stopped by %v, want ErrDisk", err)
		}
		if _, err := os.Stat(filepath.Join(dir, distrust.FileName)); err != nil {
			t.Errorf("no word is left for the next start: %v", err)
		}
		disk.FailAfter(-1)
		stale = stale || !sameAsDisk(t, disk, raftlog.FileName) || !sameAsDisk(t, disk, changesdb.Name)
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{raftlog.FileName, changesdb.Name} {
			if !sameAsDisk(t, disk, name) {
				t.Errorf("%s is read as it is not on the disk", name)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, distrust.FileName)); err == nil {
			t.Error("the word for the next start stays")
		}
		disk.Lossy(false)
		err = runStore(cfg, func(s *Store) {
			if _, err := s.Consistent(patience(t)); err != nil {
				t.Error(err)
			}
			checkKept(t, s, acked)
		})
		if err != nil {
			t.Error(err)
		}
	}
	if !stale {
		t.Error("the kernel showed nothing that was lost: the test tests nothing")
	}
}

// sameAsDisk reports whether a file is read as it is on the disk.
func sameAsDisk(t *testing.T, disk *faultdisk.Folder, name string) bool {
	t.Helper()
	seen, err := os.ReadFile(filepath.Join(disk.Path(), "data", name))
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(disk.Backing(), "data", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(seen, there)
}
