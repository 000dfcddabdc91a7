package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConfigRefusals(t *testing.T) {
	SkipUnlessAvailable(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	dynamic, err := exec.LookPath("linux.uml")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no binary", Config{}, "no Binary"},
		{"missing binary", Config{Binary: "/nowhere"}, "no such file"},
		{"not an executable", Config{Binary: "/etc/passwd"}, "bad magic"},
		{"dynamic binary", Config{Binary: dynamic}, "CGO_ENABLED=0"},
		{"env without value", Config{Binary: busybox, Env: []string{"KEY"}}, "want KEY=value"},
		{"env with a bad name", Config{Binary: busybox, Env: []string{"a b=c"}}, "want KEY=value"},
		{"relative path", Config{Binary: busybox, Files: map[string]string{"etc/x": busybox}}, "absolute"},
		{"path with dots", Config{Binary: busybox, Files: map[string]string{"/etc/../x": busybox}}, "clean"},
		{"hidden path", Config{Binary: busybox, Files: map[string]string{"/tmp/x": busybox}}, "would hide it"},
		{"path of the guest", Config{Binary: busybox, Files: map[string]string{"/init": busybox}}, "guest's own"},
		{"path of busybox", Config{Binary: busybox, Files: map[string]string{"/bin/busybox": busybox}}, "guest's own"},
		{"folder as file", Config{Binary: busybox, Files: map[string]string{"/x": "/etc"}}, "not a regular file"},
		{"too much memory", Config{Binary: busybox, MemoryMiB: 1 << 40}, "no folder for"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Run(t.Context(), test.cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestFindModules(t *testing.T) {
	dir := t.TempDir()
	_, err := findModules(dir)
	if err == nil || !strings.Contains(err.Error(), "crc-ccitt.ko") {
		t.Errorf("empty folder: got %v, want an error that names the first module", err)
	}
	var want []string
	for _, name := range moduleNames {
		file := filepath.Join(dir, name+".ko")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, file)
	}
	got, err := findModules(dir)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v in this order", got, err, want)
	}
}

func TestConsoleKeepsTail(t *testing.T) {
	var passed strings.Builder
	c := &console{to: &passed}
	for range 3 * tailBytes / 4 {
		if _, err := c.Write([]byte("ab\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.tail) > tailBytes || !strings.HasSuffix(string(c.tail), "ab\nab\n") {
		t.Errorf("tail has %d bytes and ends with %q", len(c.tail), c.tail[max(0, len(c.tail)-6):])
	}
	if strings.Contains(passed.String(), "\r") || len(passed.String()) != 3*(3*tailBytes/4) {
		t.Errorf("passed on %d bytes, want all without carriage returns", passed.Len())
	}
}

func TestLines(t *testing.T) {
	var got []string
	l := &lines{log: func(line string) { got = append(got, line) }}
	for _, part := range []string{"on", "e\ntwo\n\nla", "st"} {
		if _, err := l.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	l.flush()
	l.flush()
	if want := []string{"one", "two", "", "last"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
