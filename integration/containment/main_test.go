package containment

import (
	"context"
	"os"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// program is the binary under test, built once for the whole run.
var program string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

// within bounds what a test waits for: many times what a quiet machine needs.
const within = 2 * time.Minute

// patience returns a context for what has to happen within.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

// cluster is rig.Cluster of the program under test.
func cluster(t *testing.T, o bench.Options) *bench.Cluster {
	t.Helper()
	o.Program = program
	return rig.Cluster(t, o)
}
