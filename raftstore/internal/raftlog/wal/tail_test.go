package wal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog/checked"
)

// walWith makes a log of n entries, each stored and synced by itself, and closes it.
func walWith(t *testing.T, dir string, n uint64) {
	t.Helper()
	w := openedWAL(t, dir)
	last, err := w.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := last + 1; i <= n; i++ {
		if err := (checked.Log{LogStore: w}).StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry-%d.", i)}); err != nil {
			t.Fatal(err)
		}
	}
	closeWAL(t, w)
}

func openedWAL(t *testing.T, dir string) *Log {
	t.Helper()
	w, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closeWAL(t *testing.T, w *Log) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// flipIn flips a bit of a text in the only segment of a log.
func flipIn(t *testing.T, dir, text string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	whole, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte(text))
	if at < 0 {
		t.Fatalf("no %q in the log", text)
	}
	file, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte{whole[at] ^ 4}, int64(at))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamagedTail: a bit flipped in any entry of the file that raft-wal writes
// to is found at the next start, though raft-wal itself takes it for a write
// that was cut short, and drops it with all that follows.
func TestDamagedTail(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	for _, at := range []int{1, 5, 9, 10} {
		dir := filepath.Join(t.TempDir(), "raft.wal")
		walWith(t, dir, 10)
		flipIn(t, dir, fmt.Sprintf("entry-%d.", at))
		w, err := Open(dir, slog.New(slog.DiscardHandler))
		if err == nil {
			err = checked.Verify(checked.Log{LogStore: w}, 0)
			closeWAL(t, w)
		}
		if !errors.Is(err, log.ErrCorrupt) && !errors.Is(err, disk.ErrTrouble) {
			t.Errorf("entry %d is damaged: got %v, want ErrCorrupt or ErrDisk", at, err)
		}
		t.Logf("entry %d: %v", at, err)
	}
}

// TestTailIsNoFalseAlarm: logs that were cut or emptied, a note that was lost,
// damaged, or is older than the log, and one from before there were notes open.
func TestTailIsNoFalseAlarm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		last uint64
		do   func(t *testing.T, dir string)
	}{
		{"as it was", 10, func(*testing.T, string) {}},
		{"cut at its end", 6, func(t *testing.T, dir string) {
			w := openedWAL(t, dir)
			if err := w.DeleteRange(7, 10); err != nil {
				t.Fatal(err)
			}
			closeWAL(t, w)
		}},
		{"cut at its beginning", 10, func(t *testing.T, dir string) {
			w := openedWAL(t, dir)
			if err := w.DeleteRange(1, 6); err != nil {
				t.Fatal(err)
			}
			closeWAL(t, w)
		}},
		{"emptied", 0, func(t *testing.T, dir string) {
			w := openedWAL(t, dir)
			if err := w.DeleteRange(1, 10); err != nil {
				t.Fatal(err)
			}
			closeWAL(t, w)
		}},
		{"no note", 10, func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, tailName)); err != nil {
				t.Fatal(err)
			}
		}},
		{"damaged note", 10, func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, tailName), bytes.Repeat([]byte{255}, tailBytes), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"cut note", 10, func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, tailName), 3); err != nil {
				t.Fatal(err)
			}
		}},
		{"older note", 14, func(t *testing.T, dir string) {
			old, err := os.ReadFile(filepath.Join(dir, tailName))
			if err != nil {
				t.Fatal(err)
			}
			walWith(t, dir, 14)
			if err := os.WriteFile(filepath.Join(dir, tailName), old, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "raft.wal")
			walWith(t, dir, 10)
			test.do(t, dir)
			w := openedWAL(t, dir)
			defer closeWAL(t, w)
			if last, err := w.LastIndex(); err != nil || last != test.last {
				t.Errorf("the log ends at %d, %v, want %d", last, err, test.last)
			}
			// raft-wal before 0.4.1 could not read a log again that was cut at its end
			// (hashicorp/raft-wal issue 31).
			first, err := w.FirstIndex()
			if err == nil {
				err = checked.Verify(checked.Log{LogStore: w}, max(first, 1)-1)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
