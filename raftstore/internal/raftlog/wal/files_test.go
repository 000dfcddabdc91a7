package wal

import (
	"errors"
	"os"
	"testing"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// TestSyncOfFiles: the first sync of a file is one with all that is known of it, also after
// one that failed; the others go to the same file, and say what went wrong.
func TestSyncOfFiles(t *testing.T) {
	f := files{fs.New()}
	dir := t.TempDir()
	made, err := f.Create(dir, "1", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if _, ours := made.(*file); !ours {
		t.Errorf("a file that is made is a %T, which is synced with all that is known of it each time", made)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	opened, err := f.OpenWriter(dir, "1")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedFile{WritableFile: opened.(*file).WritableFile, fails: 2}
	opened.(*file).WritableFile = counted
	for range 2 {
		if err := opened.Sync(); !errors.Is(err, errSync) {
			t.Fatalf("the first sync failed, and what is said is %v", err)
		}
	}
	for range 3 {
		if _, err := opened.WriteAt([]byte("entry"), 100); err != nil {
			t.Fatal(err)
		}
		if err := opened.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if counted.syncs != 3 {
		t.Errorf("%d syncs with all that is known of the file, want the two that failed and one", counted.syncs)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if err := opened.Sync(); err == nil {
		t.Error("a closed file was synced")
	}
	if _, err := f.OpenWriter(dir, "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open of a file that is not there: %v", err)
	}
}

var errSync = errors.New("the disk said no")

// countedFile counts syncs, the first of which fail.
type countedFile struct {
	types.WritableFile
	syncs, fails int
}

func (f *countedFile) Sync() error {
	if f.syncs++; f.syncs <= f.fails {
		return errSync
	}
	return f.WritableFile.Sync()
}
