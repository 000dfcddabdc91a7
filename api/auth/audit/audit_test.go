package audit

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func read(t *testing.T, path string) (records []Record) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		var r Record
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", scanner.Text(), err)
		}
		records = append(records, r)
	}
	return records
}

func TestFileIsBoundedAndPrivate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	now := time.Unix(1, 0)
	l := open(t, Config{Folder: folder, Bytes: 2000, Now: func() time.Time { now = now.Add(time.Second); return now }})
	for range 200 {
		l.Note(Record{Event: Refused, Actor: "cn:x", Asked: "GET /" + strings.Repeat("y", 4000)})
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", e.Name(), info.Mode().Perm())
		}
	}
	if len(entries) != 2 || total > 4000 {
		t.Errorf("%d files of %d bytes, want two of at most 2,000 each", len(entries), total)
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}

func TestAFloodIsCounted(t *testing.T) {
	folder := t.TempDir()
	now := time.Unix(1, 0)
	l := open(t, Config{Folder: folder, Now: func() time.Time { return now }})
	for range PerSecond + 50 {
		l.Note(Record{Event: Refused})
	}
	now = now.Add(time.Second)
	l.Note(Record{Event: Authenticated, Actor: "operator:anna"})
	records := read(t, filepath.Join(folder, Name))
	if len(records) != PerSecond+2 {
		t.Fatalf("%d records, want %d", len(records), PerSecond+2)
	}
	if r := records[PerSecond]; r.Event != Missed || r.Count != 50 {
		t.Errorf("after the flood stands %+v, want 50 missed", r)
	}
}

func TestAppendsToWhatIsThere(t *testing.T) {
	folder := t.TempDir()
	for range 2 {
		l := open(t, Config{Folder: folder})
		l.Note(Record{Event: Refused})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l.Note(Record{Event: Refused}) // dropped
	}
	if got := len(read(t, filepath.Join(folder, Name))); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
	var none *Log
	none.Note(Record{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// A disk that hangs does not delay callers of Note; accepted records are written
// when it continues. The file is a pipe that is not read for a while.
func TestDiskThatHangs(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, Name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size, err := unix.FcntlInt(reader.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	full := make([]byte, size)
	if _, err := reader.Write(full); err != nil {
		t.Fatal(err)
	}
	l := open(t, Config{Folder: folder})
	for range 3 {
		began := time.Now()
		l.Note(Record{Event: Refused, Asked: "GET /x"})
		if took := time.Since(began); took > 500*writeWait {
			t.Errorf("a record took %v while the disk hangs", took)
		}
	}
	if _, err := io.ReadFull(reader, full); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(reader)
	for range 3 {
		if !lines.Scan() || !strings.Contains(lines.Text(), "GET /x") {
			t.Fatalf("read %q, want the record", lines.Text())
		}
	}
}
