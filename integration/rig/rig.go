package rig

import (
	"context"
	"syscall"
	"testing"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/bench/devrun"
)

// shown is how many lines of a process's output a failed test shows.
const shown = 40

// Cluster starts servers on loopback and waits until they are ready. Where o names none,
// there are three servers, in a folder of the test.
func Cluster(t testing.TB, o bench.Options) *bench.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Servers == 0 {
		o.Servers = 3
	}
	c, err := bench.StartCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range c.Servers {
			show(t, &s.Process)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start starts a program.
func Start(t testing.TB, p *subprocess.Process) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ends(t, p)
}

// Dev runs `rutter dev` with these flags more, until it is ready.
func Dev(t testing.TB, ctx context.Context, program string, flags ...string) *devrun.Process {
	t.Helper()
	p, err := devrun.Start(ctx, program, t.TempDir(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	ends(t, &p.Process)
	return p
}

func ends(t testing.TB, p *subprocess.Process) {
	t.Cleanup(func() {
		if err := p.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		show(t, p)
	})
}

func show(t testing.TB, p *subprocess.Process) {
	if t.Failed() {
		t.Logf("%s said last:\n%s", p.Name, p.LastLines(shown))
	}
}
