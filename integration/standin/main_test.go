package standin

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"rutter/cmd/rutter/netlab"
)

// The tests run again inside namespaces of their own.
func TestMain(m *testing.M) {
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	err := netlab.Enter(os.Args[1:]...).Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil && !netlab.Forbidden(err):
		panic(err)
	case err != nil:
		os.Exit(m.Run())
	}
}
