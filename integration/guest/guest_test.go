package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInsideGuest boots a guest and runs this package's TestInside tests there.
func TestInsideGuest(t *testing.T) {
	SkipUnlessAvailable(t)
	RunTests(t, BuildTest(t, "rutter/integration/guest"), "^TestInside_", Config{})
}

// busyboxConfig runs a shell script in the guest: busybox is a static program
// that is always at hand.
func busyboxConfig(t *testing.T, script string, args ...string) Config {
	t.Helper()
	SkipUnlessAvailable(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	return Config{Binary: busybox, Args: append([]string{"sh", "-c", script, "sh"}, args...), Timeout: time.Minute}
}

func TestRunPassesEverythingThrough(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := busyboxConfig(t, `echo "$1"; echo "$KEY"; cat /etc/file; echo "$RUTTER_GUEST"; echo err >&2; exit 7`, `it's "one" $word`)
	var out bytes.Buffer
	cfg.Env = []string{"KEY=a 'b' $c"}
	cfg.Files = map[string]string{"/etc/file": file}
	cfg.Output = &out
	code, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if code != 7 {
		t.Errorf("exit code: got %d, want 7", code)
	}
	want := "it's \"one\" $word\na 'b' $c\nfrom a file\n1\nerr\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("output: got %q, want it to begin with %q", out.String(), want)
	}
}

func TestTimeoutEndsAllProcesses(t *testing.T) {
	// The guest's folder is made below TMPDIR, whose unique name then finds
	// its processes.
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stopped := errors.New("stopped by the test")
	cfg := busyboxConfig(t, `sleep 1000 & echo started; wait`)
	cfg.Output = onWrite(func(p []byte) {
		if !bytes.Contains(p, []byte("started")) {
			return
		}
		if len(processesNaming(t, tmp)) == 0 {
			t.Error("found no process of the running guest; the search is broken")
		}
		cancel(stopped)
	})
	code, err := Run(ctx, cfg)
	if !errors.Is(err, stopped) || code != -1 {
		t.Errorf("got code %d and error %v, want -1 and %v", code, err, stopped)
	}
	if err != nil && !strings.Contains(err.Error(), "started") {
		t.Errorf("the error does not show the end of the output: %v", err)
	}
	if left := processesNaming(t, tmp); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

func TestTimeoutIsNamed(t *testing.T) {
	cfg := busyboxConfig(t, `sleep 1000`)
	cfg.Timeout = time.Second
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no end after 1s") {
		t.Errorf("got %v, want an error that names the timeout", err)
	}
}

func TestHaltWithoutExitCode(t *testing.T) {
	cfg := busyboxConfig(t, `echo going; poweroff -f`)
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "halted before the program ended") || !strings.Contains(err.Error(), "going") {
		t.Errorf("got %v, want an error that says so with the output", err)
	}
}

// onWrite is a writer that only calls.
type onWrite func(p []byte)

func (f onWrite) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// processesNaming returns the ids of the processes with text in their command
// line that are not zombies.
func processesNaming(t *testing.T, text string) (ids []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err) // not Fatal: also called from the guest's output
	}
	for _, name := range names {
		// A process that has just ended has no file; a zombie an empty one.
		if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(text)) {
			ids = append(ids, filepath.Base(filepath.Dir(name)))
		}
	}
	return ids
}
