package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	abi "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// restrictedVariable makes this program the process that TestFiles restricts: it
// has the folder of what is to be tried.
const restrictedVariable = "CONFINE_TEST_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(restrictedVariable); dir != "" {
		restricted(dir)
		return
	}
	os.Exit(m.Run())
}

// restricted restricts this process to dir/own to write and dir/near to read, and
// says of each try whether it was allowed.
func restricted(dir string) {
	own, near, far := filepath.Join(dir, "own"), filepath.Join(dir, "near"), filepath.Join(dir, "far")
	if _, err := Files([]string{own}, []string{near}); err != nil {
		fmt.Println("failed:", err)
		return
	}
	write := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	read := func(path string) error {
		_, err := os.ReadFile(path)
		return err
	}
	for _, try := range []struct {
		name string
		err  error
	}{
		{"write own", write(filepath.Join(own, "new"))},
		{"move own", errors.Join(os.Mkdir(filepath.Join(own, "below"), 0o700), os.Rename(filepath.Join(own, "new"), filepath.Join(own, "below", "new")))},
		{"read near", read(filepath.Join(near, "file"))},
		{"write near", write(filepath.Join(near, "file"))},
		{"read far", read(filepath.Join(far, "file"))},
		{"write far", write(filepath.Join(far, "new"))},
		{"read the system", read("/proc/self/status")},
		{"write nothing", write("/dev/null")},
	} {
		allowed := "yes"
		if errors.Is(try.err, fs.ErrPermission) {
			allowed = "no"
		} else if try.err != nil {
			allowed = try.err.Error()
		}
		fmt.Printf("%s: %s\n", try.name, allowed)
	}
}

func TestFiles(t *testing.T) {
	if _, err := abi.LandlockGetABIVersion(); err != nil {
		t.Skip("needs Landlock, which this kernel has not, or has switched off")
	}
	dir := t.TempDir()
	for _, name := range []string{"own", "near", "far"} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o700), os.WriteFile(filepath.Join(dir, name, "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), restrictedVariable+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{
		"write own: yes", "move own: yes", "read near: yes", "write near: no", "read far: no", "write far: no",
		"read the system: yes", "write nothing: yes",
	}
	if got := strings.TrimSpace(string(out)); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// A folder of certificates, or the target of a link, may be replaced.
func TestAround(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "store", "tls"), filepath.Join(dir, "tls")
	if err := errors.Join(os.MkdirAll(real, 0o700), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(FoldersOf(link), " ")
	for _, want := range []string{dir, filepath.Dir(real)} {
		if !strings.Contains(got, want) {
			t.Errorf("Around(%s) is %s, without %s", link, got, want)
		}
	}
}
