package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if Serve() {
		return
	}
	goleak.VerifyTestMain(m)
}

// put writes a file; synced says whether it and its folder are synced.
func put(t *testing.T, f *Folder, name string, content []byte, synced bool) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(f.Path(), name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if synced {
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		syncDir(t, f)
	}
}

func syncDir(t *testing.T, f *Folder) {
	t.Helper()
	dir, err := os.Open(f.Path())
	if err == nil {
		err = dir.Sync()
		dir.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// state returns what the folder has, as one text.
func state(t *testing.T, f *Folder) string {
	t.Helper()
	var text bytes.Buffer
	names, err := os.ReadDir(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(f.Path(), name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s=%d:%.3q ", name.Name(), len(content), content)
	}
	return text.String()
}

// TestPowerCuts: of each thing that was not synced there are seeds that lose it and seeds that
// keep it, and nothing else comes out; what was synced stays.
func TestPowerCuts(t *testing.T) {
	d := New(t)
	path := func(f *Folder, name string) string { return filepath.Join(f.Path(), name) }
	for name, row := range map[string]struct {
		do   func(f *Folder) error
		want []string
	}{
		"nothing": {func(*Folder) error { return nil }, []string{`a=3:"old" b=3:"bbb" `}},
		"write":   {func(f *Folder) error { put(t, f, "a", []byte("new"), false); return nil }, []string{`a=3:"old" b=3:"bbb" `, `a=3:"new" b=3:"bbb" `}},
		"synced":  {func(f *Folder) error { put(t, f, "a", []byte("new"), true); return nil }, []string{`a=3:"new" b=3:"bbb" `}},
		"create and write": {
			func(f *Folder) error { put(t, f, "c", []byte("ccc"), false); return nil },
			[]string{`a=3:"old" b=3:"bbb" `, `a=3:"old" b=3:"bbb" c=0:"" `, `a=3:"old" b=3:"bbb" c=3:"\x00\x00\x00" `, `a=3:"old" b=3:"bbb" c=3:"ccc" `},
		},
		"rename": {func(f *Folder) error { return os.Rename(path(f, "a"), path(f, "b")) }, []string{`a=3:"old" b=3:"bbb" `, `b=3:"old" `}},
		"rename, synced": {func(f *Folder) error {
			defer syncDir(t, f)
			return os.Rename(path(f, "a"), path(f, "b"))
		}, []string{`b=3:"old" `}},
		"remove":   {func(f *Folder) error { return os.Remove(path(f, "a")) }, []string{`a=3:"old" b=3:"bbb" `, `b=3:"bbb" `}},
		"truncate": {func(f *Folder) error { return os.Truncate(path(f, "a"), 1) }, []string{`a=3:"old" b=3:"bbb" `, `a=1:"o" b=3:"bbb" `}},
		"grow":     {func(f *Folder) error { return os.Truncate(path(f, "a"), 9) }, []string{`a=3:"old" b=3:"bbb" `, `a=9:"old" b=3:"bbb" `}},
		"two renames": {func(f *Folder) error { // the second is not kept without the first
			return errors.Join(os.Rename(path(f, "a"), path(f, "c")), os.Rename(path(f, "b"), path(f, "d")))
		}, []string{`a=3:"old" b=3:"bbb" `, `b=3:"bbb" c=3:"old" `, `c=3:"old" d=3:"bbb" `}},
		"rename, and a new file that is synced": {func(f *Folder) error { // which keeps what was before it
			err := os.Rename(path(f, "a"), path(f, "c"))
			file, _ := os.Create(path(f, "d"))
			defer file.Close()
			_, wrong := file.WriteString("ddd")
			return errors.Join(err, wrong, file.Sync())
		}, []string{`b=3:"bbb" c=3:"old" d=3:"ddd" `}},
		"rename, and a sync of another file": {func(f *Folder) error {
			err := os.Rename(path(f, "a"), path(f, "c"))
			put(t, f, "b", []byte("BBB"), false)
			file, _ := os.OpenFile(path(f, "b"), os.O_RDWR, 0)
			defer file.Close()
			return errors.Join(err, file.Sync())
		}, []string{`a=3:"old" b=3:"BBB" `, `b=3:"BBB" c=3:"old" `}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(map[string]bool)
			for seed := range uint64(40) {
				f := d.Folder("m")
				put(t, f, "a", []byte("old"), true)
				put(t, f, "b", []byte("bbb"), true)
				if err := row.do(f); err != nil {
					t.Fatal(err)
				}
				if err := f.PowerCut(seed); err != nil {
					t.Fatal(err)
				}
				seen[state(t, f)] = true
			}
			for _, want := range row.want {
				if !seen[want] {
					t.Errorf("no power cut leaves %s", want)
				}
				delete(seen, want)
			}
			for state := range seen {
				t.Errorf("a power cut leaves %s", state)
			}
		})
	}
}

// TestTorn: sectors are whole, and writes may be torn between them, and lost in any order.
func TestTorn(t *testing.T) {
	d := New(t)
	torn, reordered := false, false
	for seed := range uint64(40) {
		f := d.Folder("m")
		put(t, f, "a", make([]byte, 4*sector), true)
		for i := range 4 {
			file, err := os.OpenFile(filepath.Join(f.Path(), "a"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = file.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, 2*sector), int64(i%2)*2*sector)
			if file.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.PowerCut(seed); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(f.Path(), "a"))
		if err != nil || len(content) != 4*sector {
			t.Fatalf("%d bytes, %v", len(content), err)
		}
		var sectors []byte
		for s := range 4 {
			part := content[s*sector : (s+1)*sector]
			if !bytes.Equal(part, bytes.Repeat(part[:1], sector)) {
				t.Fatalf("seed %d: sector %d is torn", seed, s)
			}
			sectors = append(sectors, part[0])
		}
		torn = torn || sectors[0] != sectors[1]
		reordered = reordered || sectors[0] < 3 && sectors[2] == 4
	}
	if !torn || !reordered {
		t.Errorf("torn %v, reordered %v in 40 seeds", torn, reordered)
	}
}

// TestFaults: failing, counting, room, flips and healing, each of one folder only.
func TestFaults(t *testing.T) {
	d := New(t)
	f, other := d.Folder("m"), d.Folder("other")
	write := func(f *Folder, name string, n int) error {
		return os.WriteFile(filepath.Join(f.Path(), name), bytes.Repeat([]byte{1}, n), 0o600)
	}
	ops := f.Ops()
	if err := write(f, "a", 1); err != nil || f.Ops() != ops+2 { // create, write
		t.Errorf("%v, %d operations", err, f.Ops()-ops)
	}
	f.FailAfter(1)
	if err := write(f, "b", 1); !errors.Is(err, syscall.EIO) || state(t, f) != `a=1:"\x01" b=0:"" ` {
		t.Errorf("%v, %s", err, state(t, f))
	}
	if err := write(other, "b", 1); err != nil {
		t.Errorf("another folder: %v", err)
	}
	f.Fail(0, "remove", syscall.EROFS)
	if err := os.Remove(filepath.Join(f.Path(), "a")); !errors.Is(err, syscall.EROFS) {
		t.Error(err)
	}
	f.Heal()
	f.Room(64 << 10)
	var stat syscall.Statfs_t
	if err := syscall.Statfs(f.Path(), &stat); err != nil || stat.Bavail*uint64(stat.Bsize) != 64<<10 {
		t.Errorf("%v, %d bytes are free", err, stat.Bavail*uint64(stat.Bsize))
	}
	if err := write(f, "c", 60<<10); err != nil {
		t.Errorf("there is room: %v", err)
	}
	if err := write(f, "d", 60<<10); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("there is no room: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(f.Path(), "c")), write(f, "d", 60<<10)); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	f.Heal()
	before, _ := os.ReadFile(filepath.Join(f.Path(), "d"))
	if err := errors.Join(os.Remove(filepath.Join(f.Path(), "a")), os.Remove(filepath.Join(f.Path(), "b")), f.Flip(1, 3)); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(filepath.Join(f.Path(), "d"))
	changed := 0
	for i := range after {
		if after[i] != before[i] {
			changed++
		}
	}
	if len(after) != len(before) || changed != 3 {
		t.Errorf("%d bytes of %d changed, want 3", changed, len(after))
	}
	if f = d.Folder("m"); state(t, f) != "" {
		t.Errorf("an empty folder has %s", state(t, f))
	}
}

// TestEnd: the child takes everything with it when the test's process ends, however it ends.
func TestEnd(t *testing.T) {
	d := New(t)
	put(t, d.Folder("m"), "a", []byte("x"), false)
	if err := d.in.Close(); err != nil { // as of a process that is killed
		t.Fatal(err)
	}
	for d.answers.Scan() { // until the child ends
	}
	if _, err := os.Stat(d.memory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files: %v", err)
	}
}

// TestClear: what a process left is removed, also if it is still mounted.
func TestClear(t *testing.T) {
	folder, err := Memory("left")
	if err != nil {
		t.Skip("no memory for files here")
	}
	inner := filepath.Join(folder, "mounted")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", inner, "tmpfs", 0, ""); err != nil {
		t.Skipf("needs to mount file systems, as root: %v", err)
	}
	if err := os.WriteFile(filepath.Join(inner, "a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clear(folder); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
}

// TestMemoryOfTheKilled: what a process left that was killed is removed by the next one.
func TestMemoryOfTheKilled(t *testing.T) {
	ours, err := Memory("killed")
	if err != nil {
		t.Skip("no memory for files here")
	}
	theirs := filepath.Join(filepath.Dir(ours), fmt.Sprintf("rutter-killed-%d-1", 1<<22+1)) // beyond the kernel's PID_MAX_LIMIT
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	again, err := Memory("killed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(theirs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left: %v", err)
	}
	if _, err := os.Stat(ours); err != nil {
		t.Errorf("what is in use: %v", err)
	}
	if err := errors.Join(Clear(ours), Clear(again)); err != nil {
		t.Error(err)
	}
}

// TestBubble: the file system takes no simulated time, and can be used in many bubbles.
func TestBubble(t *testing.T) {
	d := New(t)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			f := d.Folder("m")
			put(t, f, "a", []byte("x"), true)
			put(t, f, "a", []byte("y"), false)
			if err := f.PowerCut(0); err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkSync: a write and a sync, as of a transaction.
func BenchmarkSync(b *testing.B) {
	file, err := os.Create(filepath.Join(New(b).Folder("m").Path(), "a"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	page := make([]byte, 4096)
	for b.Loop() {
		if _, err := file.WriteAt(page, 0); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCrash: the folder of a machine that crashes has everything, or with the power what a cut
// leaves; what the old program still does is not in it, and fails.
func TestCrash(t *testing.T) {
	d := New(t)
	seen := make(map[string]bool)
	for seed := range uint64(60) {
		f := d.Folder("m")
		put(t, f, "a", []byte("old"), true)
		put(t, f, "b", []byte("bbb"), true)
		open, err := os.OpenFile(filepath.Join(f.Path(), "a"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open.WriteAt([]byte("new"), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(f.Path(), "a"), filepath.Join(f.Path(), "b")); err != nil {
			t.Fatal(err)
		}
		killed, err := f.Crash("killed", false, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := state(t, killed); got != `b=3:"new" ` {
			t.Errorf("killed: %s", got)
		}
		cut, err := f.Crash("cut", true, seed)
		if err != nil {
			t.Fatal(err)
		}
		seen[state(t, cut)] = true
		if _, err := open.WriteAt([]byte("bad"), 0); !errors.Is(err, syscall.EIO) {
			t.Errorf("after the crash: %v", err)
		}
		put(t, killed, "c", nil, true)
		open.Close()
		if got := state(t, f); got != `b=3:"new" ` {
			t.Errorf("the old folder: %s", got)
		}
	}
	for _, want := range []string{`a=3:"old" b=3:"bbb" `, `a=3:"new" b=3:"bbb" `, `b=3:"old" `, `b=3:"new" `} {
		if !seen[want] {
			t.Errorf("no power cut leaves %s", want)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("power cuts leave %v", seen)
	}
}
