package confine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	make := func(name string, mode os.FileMode, files ...string) {
		t.Helper()
		if err := os.Mkdir(path(name), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(path(name), file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path(name), mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	make("tight", 0o700, "letters")
	make("empty", 0o755)
	make("mount", 0o755, "lost+found")
	make("ours", 0o755, "changes.db", "letters")
	make("home", 0o755, "letters")
	for name, c := range map[string]struct {
		closed bool
		err    error
		mode   os.FileMode
	}{
		"new":   {false, nil, 0o700},
		"tight": {false, nil, 0o700},
		"empty": {true, nil, 0o700},
		"mount": {true, nil, 0o700},
		"ours":  {true, nil, 0o700},
		"home":  {false, ErrFolder, 0o755},
	} {
		closed, err := Folder(path(name), "changes.db")
		if closed != c.closed || !errors.Is(err, c.err) {
			t.Errorf("%s: closed %v, %v; want %v, %v", name, closed, err, c.closed, c.err)
		}
		if info, err := os.Stat(path(name)); err != nil || info.Mode().Perm() != c.mode {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode().Perm(), err, c.mode)
		}
	}
}

func TestSetNames(t *testing.T) {
	for s, want := range map[Set]string{0: "none", NetAdmin | SysAdmin: "CAP_NET_ADMIN CAP_SYS_ADMIN", 1<<22 | DACOverride: "CAP_DAC_OVERRIDE 0x400000"} {
		if got := s.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint64(s), got, want)
		}
	}
}

func TestForeign(t *testing.T) {
	dir := t.TempDir()
	if got := FirstForeign(dir, filepath.Join(dir, "none")); got != "" {
		t.Errorf("%s is said to be another user's", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a folder away")
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if got := FirstForeign(dir); got != dir {
		t.Errorf("Foreign says %q, want %q", got, dir)
	}
}
