package guest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// BuildTest compiles the test binary of the package with import path pkg,
// static, into a temporary folder of t, and returns its path. There is no file
// at the path if the package has no tests.
func BuildTest(t testing.TB, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), path.Base(pkg)+".test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile the tests of %s: %v\n%s", pkg, err, out)
	}
	return binary
}

// Tests lists the tests of a test binary whose names match pattern, in the
// manner of go test -list. A binary that is not there has none.
func Tests(t testing.TB, binary, pattern string) []string {
	t.Helper()
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.list", pattern).Output()
	if err != nil {
		t.Fatalf("list the tests of %s: %v", binary, err)
	}
	return strings.Fields(string(out))
}

// RunTests runs the tests of a test binary that match pattern in a guest, with
// its output in t's log, and fails t unless all pass. It skips t where there is
// no guest kernel. A pattern that matches nothing fails t, and so does a test
// that skips in the guest: it was sent there to run. cfg's Binary, Args and
// Output are set here.
func RunTests(t testing.TB, binary, pattern string, cfg Config) {
	t.Helper()
	SkipUnlessAvailable(t)
	names := Tests(t, binary, pattern)
	if len(names) == 0 {
		t.Fatalf("%s has no test that matches %q", filepath.Base(binary), pattern)
	}
	var skipped []string
	output := &lines{log: func(line string) {
		t.Log(line)
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- SKIP: "); ok {
			skipped = append(skipped, name)
		}
	}}
	cfg.Binary, cfg.Output = binary, output
	cfg.Args = []string{"-test.run", pattern, "-test.v", "-test.count=1"}
	code, err := Run(t.Context(), cfg)
	output.flush()
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Fatalf("the tests %v failed in the guest with exit code %d; its output is above", names, code)
	}
	if len(skipped) > 0 {
		t.Fatalf("skipped in the guest, where nothing may be missing: %v", skipped)
	}
}

// SkipUnlessAvailable skips t with the reason of Available.
func SkipUnlessAvailable(t testing.TB) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skipf("needs the guest kernel: %v", err)
	}
}

// lines cuts what is written to it into lines.
type lines struct {
	log  func(line string)
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.log(string(line))
		l.rest = rest
	}
}

// flush passes on a last line without an end.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.log(string(l.rest))
		l.rest = nil
	}
}
