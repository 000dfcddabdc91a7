package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rutter/cmd/rutter/netlab"
)

// programEnv tells the test inside the namespaces where the binary under test is.
const programEnv = "RUTTER_FAULTS_PROGRAM"

// program is the binary under test, built once for the whole run.
var program string

// The tests run inside namespaces of their own: see netlab.Enter.
func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(storeEnv)); len(args) > 0 {
		fmt.Fprintln(os.Stderr, storeChild(args))
		os.Exit(1)
	}
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		program = os.Getenv(programEnv)
		os.Exit(m.Run())
	}
	os.Exit(outside(m))
}

func outside(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rutter-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "rutter")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "rutter/cmd/rutter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	cmd := netlab.Enter(os.Args[1:]...)
	cmd.Env = append(cmd.Env, programEnv+"="+path)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case netlab.Forbidden(err):
		return m.Run() // each test skips, and says why
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// needNetwork skips where the tests could not be moved into namespaces.
func needNetwork(t *testing.T) {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
}
