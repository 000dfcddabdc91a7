package serviceaddr

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"rutter/cmd/rutter/netlab"
	"rutter/integration/rig"
)

// program is the binary under test, built once for the whole run.
var program string

// The tests run inside namespaces of their own: see netlab.Enter.
func TestMain(m *testing.M) {
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		program = os.Getenv(rig.Env)
		// The tests wait for elections and lifetimes: more of them at once than there are
		// cores. A -parallel on the command line counts instead.
		if err := flag.Set("test.parallel", "5"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	os.Exit(rig.Run(outside{m}, &program))
}

// outside runs the tests in namespaces, with the program that was built for them.
type outside struct{ m *testing.M }

// Run implements rig.Tests.
func (o outside) Run() int {
	cmd := netlab.Enter(os.Args[1:]...)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case netlab.Forbidden(err):
		return o.m.Run() // each test skips, and says why
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
