package containment

import (
	"context"
	"os"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	builder "rutter/integration/program"
)

// program is the binary under test, built once for the whole run.
var program string

func TestMain(m *testing.M) { os.Exit(builder.Run(m, &program)) }

// within bounds what a test waits for: many times what a quiet machine needs.
const within = 2 * time.Minute

// patience returns a context for what has to happen within.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

// cluster starts servers on loopback, which end with the test; Program and Dir of
// o are filled in, and three servers are started if it names no number. What they
// said last is shown if the test fails.
func cluster(t *testing.T, o bench.Options) *bench.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	o.Program, o.Dir = program, t.TempDir()
	if o.Servers == 0 {
		o.Servers = 3
	}
	c, err := bench.StartCluster(patience(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range c.Servers {
				t.Logf("%s said last:\n%s", s.ID, s.Tail())
			}
		}
		_ = c.Stop() // one that the test ended already is no fault
	})
	return c
}
