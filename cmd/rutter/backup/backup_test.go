package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/log"
	"rutter/raftstore"
)

func TestMain(m *testing.M) {
	if Asked(os.Args) {
		os.Exit(Work(os.Args))
	}
	os.Exit(m.Run())
}

// startStore runs a store with some entries.
func startStore(t *testing.T) *raftstore.Store {
	t.Helper()
	s, err := raftstore.Open(raftstore.Config{ID: "s1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Bootstrap: true, Logger: slog.New(slog.DiscardHandler), Heartbeat: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for s.Ready() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	return s
}

func write(t *testing.T, s *raftstore.Store, name string) {
	t.Helper()
	id, err := s.NewChangeID(), error(nil)
	result, err := s.Propose(t.Context(), &log.Change{ID: id, Ops: []log.Op{{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name}}}})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
}

// newSchedule is a schedule of a store, by a clock that the test sets.
func newSchedule(t *testing.T, store *raftstore.Store, now *time.Time, change func(*Config)) *Schedule {
	t.Helper()
	launcher, err := Launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Close() })
	cfg := Config{
		Settings: Settings{Every: time.Hour, Keep: 2, Folder: t.TempDir(), Rate: 1 << 30},
		Server:   "s1", Data: t.TempDir(), Launcher: launcher, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return *now },
		Source: func(ctx context.Context) (Image, error) {
			b, err := store.Backup(ctx)
			if err != nil {
				return Image{}, err
			}
			return Image{b, b.Cluster, b.Seq, b.Size}, nil
		},
		Confirm: store.CheckCursor, Head: store.Head, Ready: func() error { return nil }, LowWater: func() int64 { return 0 }, Rank: func() (int, int) { return 0, 1 },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Backups are made, verified and named with 0600; the newest are kept, and what the
// schedule did not make stays.
func TestKeepsTheNewest(t *testing.T) {
	store := startStore(t)
	now := time.Now().Truncate(time.Second)
	s := newSchedule(t, store, &now, nil)
	foreign := fileName("s1", File{Cluster: log.UUID{7}, Seq: 1, At: now}) // the name, without the content
	if err := os.WriteFile(filepath.Join(s.cfg.Folder, foreign), []byte("not a snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		write(t, store, fmt.Sprintf("tag%d", i))
		now = now.Add(time.Minute)
		if s.step(t.Context(), true); s.Status().Error != "" {
			t.Fatal(s.Status().Error)
		}
	}
	st := s.Status()
	if st.Kept != 2 || st.Made != 4 || st.Others != 1 || st.Last.Seq != store.Head().Seq || !st.Verified.Equal(now) || len(st.Alarms) > 0 {
		t.Errorf("%+v", st)
	}
	all := names(t, s.cfg.Folder)
	if len(all) != 3 || !slices.Contains(all, foreign) || !slices.Contains(all, st.Last.Name) {
		t.Errorf("the folder has %q", all)
	}
	info, err := os.Stat(filepath.Join(s.cfg.Folder, st.Last.Name))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != st.Last.Bytes {
		t.Errorf("%v, %v", info, err)
	}
	// A server that begins anew finds what there is.
	again := newSchedule(t, store, &now, func(c *Config) { c.Folder = s.cfg.Folder })
	again.opened = time.Now().Add(-time.Hour)
	again.step(t.Context(), false)
	if st := again.Status(); st.Made != 0 || st.Last == nil || st.Last.Seq != store.Head().Seq {
		t.Errorf("after a restart: %+v", st)
	}
	// A run that was missed is made up once.
	now = now.Add(5 * time.Hour)
	again.step(t.Context(), false)
	again.step(t.Context(), false)
	if st := again.Status(); st.Made != 1 {
		t.Errorf("%d backups made up, want 1", st.Made)
	}
}

// Files that others put into the folder, with the names and the form of later backups, of
// this log or another, neither have a backup that was just made deleted, nor keep the next
// one from being made, nor count as the newest.
func TestPlantedBackups(t *testing.T) {
	store := startStore(t)
	write(t, store, "tag")
	now := time.Now().Truncate(time.Second)
	s := newSchedule(t, store, &now, func(c *Config) { c.Keep = 1 })
	s.opened = time.Now().Add(-time.Hour)
	if s.step(t.Context(), true); s.Status().Error != "" {
		t.Fatal(s.Status().Error)
	}
	first := s.Status().Last
	image, err := os.ReadFile(filepath.Join(s.cfg.Folder, first.Name))
	if err != nil {
		t.Fatal(err)
	}
	later := now.AddDate(50, 0, 0)
	var planted []string
	for _, f := range []File{{Cluster: first.Cluster, Seq: first.Seq + 1000, At: later}, {Cluster: log.UUID{7}, Seq: 1 << 40, At: later}, {Cluster: first.Cluster, Seq: first.Seq + 1, At: later}} {
		planted = append(planted, fileName("s1", f))
		if err := os.WriteFile(filepath.Join(s.cfg.Folder, fileName("s1", f)), image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 { // the last one has the seq of the second
		write(t, store, fmt.Sprintf("tag%d", i))
		now = now.Add(2 * s.cfg.Every)
		s.step(t.Context(), false)
		st := s.Status()
		if st.Error != "" || st.Last == nil || st.Last.Seq != store.Head().Seq || !st.Last.At.Equal(now) || !st.Verified.Equal(now) || int(st.Made) != i+2 {
			t.Fatalf("after backup %d: %+v %v", i, st, st.Last)
		}
		if all := names(t, s.cfg.Folder); !slices.Contains(all, st.Last.Name) {
			t.Fatalf("the backup that was just made is not there: %q", all)
		}
	}
	for _, name := range []string{planted[0], planted[1]} {
		if all := names(t, s.cfg.Folder); !slices.Contains(all, name) {
			t.Errorf("%s, which the schedule did not make, was deleted", name)
		}
	}
	again := newSchedule(t, store, &now, func(c *Config) { c.Folder = s.cfg.Folder })
	again.opened = time.Now().Add(-time.Hour)
	again.step(t.Context(), false)
	if st := again.Status(); st.Last == nil || st.Last.Seq != store.Head().Seq || st.Last.At.After(now) {
		t.Errorf("after a restart: %+v", st.Last)
	}
}

// A newest backup of the future, as a clock that was wrong leaves it, delays the next one by
// an interval at most.
func TestBackupOfTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	s := New(Config{Settings: Settings{Every: time.Hour}, Now: func() time.Time { return now }, Rank: func() (int, int) { return 0, 1 }})
	s.opened = time.Now().Add(-time.Hour)
	s.st.Last = &File{At: now.AddDate(1, 0, 0)}
	begun := now
	for due := s.due(now); now.Before(due); due = s.due(now) {
		if now = now.Add(time.Minute); now.Sub(begun) > 3*time.Hour {
			t.Fatalf("after %v none is due: %v", now.Sub(begun), due)
		}
	}
	if now = begun.Add(3 * time.Hour); len(s.Alarms()) == 0 {
		t.Error("no alarm after three intervals without a backup")
	}
}

// What cannot be restored, or is not this server's log, gets no name, and the verified
// backup stays.
func TestNamesOnlyWhatRestores(t *testing.T) {
	store := startStore(t)
	write(t, store, "tag")
	now := time.Now()
	damaged, elsewhere := false, false
	s := newSchedule(t, store, &now, func(c *Config) {
		source := c.Source
		c.Keep = 1
		c.Source = func(ctx context.Context) (Image, error) {
			i, err := source(ctx)
			if damaged {
				b, _ := io.ReadAll(i)
				b[len(b)/2] ^= 1
				i.ReadCloser = io.NopCloser(bytes.NewReader(b))
			}
			return i, err
		}
		c.Confirm = func(at log.Cursor) error {
			if elsewhere {
				return log.ErrOtherLog
			}
			return store.CheckCursor(at)
		}
	})
	s.step(t.Context(), true)
	good := names(t, s.cfg.Folder)
	if len(good) != 1 {
		t.Fatalf("%q, %s", good, s.Status().Error)
	}
	for _, c := range []struct {
		damaged, elsewhere bool
		want               string
	}{{true, false, "checksum"}, {false, true, "does not have"}} {
		now = now.Add(time.Hour)
		damaged, elsewhere = c.damaged, c.elsewhere
		s.step(t.Context(), true)
		st := s.Status()
		if !strings.Contains(st.Error, c.want) || len(st.Alarms) == 0 || st.Kept != 1 {
			t.Errorf("error %q, alarms %q; want %q", st.Error, st.Alarms, c.want)
		}
		if all := names(t, s.cfg.Folder); !slices.Equal(all, good) {
			t.Errorf("the folder has %q, want %q", all, good)
		}
	}
}

// A folder that is not there, has no room, or is on the server's disk below its low water
// is an alarm, and nothing is written.
func TestFolderInTrouble(t *testing.T) {
	store := startStore(t)
	now := time.Now()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"missing":       {func(c *Config) { c.Folder = filepath.Join(dir, "none") }, "mount its disk"},
		"a file":        {func(c *Config) { c.Folder = "/proc/version" }, "it is no folder"},
		"read-only":     {func(c *Config) { c.Folder = "/proc/self" }, "permission denied"},
		"the low water": {func(c *Config) { c.LowWater = func() int64 { return 1 << 60 }; c.Data = c.Folder }, "must stay free"},
	} {
		s := newSchedule(t, store, &now, c.change)
		s.step(t.Context(), true)
		if st := s.Status(); st.Made != 0 || len(st.Alarms) != 1 || !(strings.Contains(st.Error, c.want) || name == "read-only") {
			t.Errorf("%s: %+v", name, st)
		}
		if name == "the low water" && len(names(t, s.cfg.Folder)) > 0 {
			t.Errorf("%s: files were written", name)
		}
	}
}

// A folder that does not answer costs the server a connection and no more: the worker is
// given up after Config.Patience.
func TestHangingFolder(t *testing.T) {
	store := startStore(t)
	now := time.Now()
	s := newSchedule(t, store, &now, nil)
	conn, err := s.cfg.Launcher.start()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A stopped process is like one whose disk hangs: it ends at no request.
	pid := workerOf(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	s.cfg.Patience = 100 * time.Millisecond
	if _, err = s.follow(conn, order{}); !errors.Is(err, ErrHangs) {
		t.Errorf("%v, want %v", err, ErrHangs)
	}
	conn.Close()
	s.cfg.Patience = time.Minute
	// While it waits no other one is started, and the server is told.
	s.step(t.Context(), true)
	if st := s.Status(); !strings.Contains(st.Error, "waits for the disk") {
		t.Errorf("error %q", st.Error)
	}
	// It ends when its disk answers, and then backups go on.
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.step(t.Context(), true)
	if st := s.Status(); st.Made != 1 {
		t.Errorf("%+v", st)
	}
}

// workerOf waits for the worker of this process's launcher.
func workerOf(t *testing.T) int {
	t.Helper()
	parent := func(pid int) (p int) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		_, _ = fmt.Sscan(rest, &state, &p)
		return p
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range all {
			line, _ := os.ReadFile(path)
			var pid int
			_, _ = fmt.Sscanf(path, "/proc/%d/cmdline", &pid)
			if string(line) == workerName+"\x00" && parent(parent(pid)) == os.Getpid() {
				return pid
			}
		}
	}
	t.Fatal("no worker was started")
	return 0
}

// Servers of one cluster share the interval, and clocks may jump.
func TestSlots(t *testing.T) {
	day := 24 * time.Hour
	base := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after  time.Duration
		offset time.Duration
		want   time.Duration
	}{
		{0, 0, day}, {time.Minute, 0, day}, {-time.Minute, 0, day}, {-7 * time.Hour, 0, 0}, {0, 8 * time.Hour, 8 * time.Hour}, {3 * time.Hour, 8 * time.Hour, 32 * time.Hour},
	} {
		if got := nextSlot(base.Add(c.after), day, c.offset); !got.Equal(base.Add(c.want)) {
			t.Errorf("after %v with offset %v: %v, want %v", c.after, c.offset, got, base.Add(c.want))
		}
	}
	now := base.Add(time.Hour)
	s := New(Config{Settings: Settings{Every: day}, Now: func() time.Time { return now }, Rank: func() (int, int) { return 1, 3 }})
	s.opened = time.Now().Add(-time.Hour)
	s.st.Last = &File{At: now.Add(1000 * day)} // the clock went back
	if due := s.due(now); !due.Equal(base.Add(32*time.Hour)) && !due.Equal(base.Add(8*time.Hour)) {
		t.Errorf("after a jump back the next is due at %v", due)
	}
}
