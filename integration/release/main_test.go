package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"rutter/integration/rig"
)

// program is the rutter that was built for the tests.
var program string

// shared is the folder of the artefacts that all tests read.
var shared string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rutter-artefacts-")
	if err != nil {
		panic(err)
	}
	shared = dir
	code := rig.Run(m, &program)
	os.RemoveAll(dir)
	os.Exit(code)
}

// artefacts are those of this machine's architecture.
type artefacts struct {
	dir     string
	version string
}

// common makes the artefacts once for all tests.
var common = sync.OnceValues(func() (artefacts, error) {
	return release(filepath.Join("..", ".."), shared, "")
})

func made(t *testing.T) artefacts {
	t.Helper()
	a, err := common()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// epoch is the time of every file in the artefacts.
const epoch = "1790000000"

// release runs the script of make release in the source folder root. The program is the one
// that was built for the tests, if its version is that of a release.
func release(root, out, arch string, env ...string) (artefacts, error) {
	a := artefacts{dir: out, version: "0.0~test"}
	cmd := exec.Command("sh", "scripts/release/release.sh")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "REVISION=0123456789abcdef", "OUT="+out, "GOFLAGS=", "ARCH="+runtime.GOARCH)
	if says, err := exec.Command(program, "--version").Output(); err != nil {
		return a, err
	} else if version := strings.Fields(string(says))[1]; version != "development" {
		a.version = version
		cmd.Env = append(cmd.Env, "PROGRAM="+program)
	}
	cmd.Env = append(cmd.Env, "VERSION="+a.version)
	if arch != "" {
		cmd.Env = append(cmd.Env, "ARCH="+arch)
	}
	cmd.Env = append(cmd.Env, env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return a, errors.Join(err, errors.New(string(text)))
	}
	return a, nil
}

// printed runs a command and returns what it printed; a failure ends the test.
func printed(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, errs.Bytes())
	}
	return string(out)
}

// need skips a test without a program of this machine.
func need(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s here", name)
	}
}

// inTar is one entry of a tar archive.
type inTar struct {
	header tar.Header
	data   []byte
}

// entriesOf reads a tar archive, which may be compressed.
func entriesOf(t *testing.T, data []byte) (entries []inTar) {
	t.Helper()
	var from io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		from = bytes.NewReader(unzipped(t, data))
	}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, inTar{*header, content})
	}
}

func unzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
