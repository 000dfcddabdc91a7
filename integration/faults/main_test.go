package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"rutter/cmd/rutter/netlab"
	"rutter/integration/rig"
)

// program is the binary under test, built once for the whole run.
var program string

// The tests run inside namespaces of their own: see netlab.Enter.
func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(storeEnv)); len(args) > 0 {
		fmt.Fprintln(os.Stderr, storeChild(args))
		os.Exit(1)
	}
	if netlab.Inside() {
		program = os.Getenv(rig.Env)
		os.Exit(netlab.Run(m))
	}
	os.Exit(rig.Run(outside{m}, &program))
}

// outside runs the tests in namespaces, with the program that was built for them.
type outside struct{ m *testing.M }

// Run implements rig.Tests.
func (o outside) Run() int { return netlab.Run(o.m) }

// needNetwork skips where the tests could not be moved into namespaces.
func needNetwork(t *testing.T) {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
}
