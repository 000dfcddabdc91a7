package wal

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/disk"
)

// TestFailedOpenLetsGo: a log that cannot be opened is not held by the try: the next
// one says the same, and does not wait for a lock.
func TestFailedOpenLetsGo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "raft.wal")
	walWith(t, dir, 3)
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	if err := errors.Join(os.Remove(segments[0]), os.Mkdir(segments[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ended := make(chan error, 1)
		go func() {
			_, err := Open(dir, slog.New(slog.DiscardHandler))
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, disk.ErrTrouble) {
				t.Fatalf("got %v, want ErrTrouble", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the log is still held")
		}
	}
}

// TestDeletedEntriesAreGone: what was deleted from the front is not read any more, though
// its file is still there.
func TestDeletedEntriesAreGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "raft.wal")
	walWith(t, dir, 10)
	w := openedWAL(t, dir)
	defer closeWAL(t, w)
	if err := w.DeleteRange(1, 6); err != nil {
		t.Fatal(err)
	}
	for index := range uint64(12) {
		err := w.GetLog(index, new(raft.Log))
		if there := index >= 7 && index <= 10; there != (err == nil) || !there && !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d: %v", index, err)
		}
	}
}
