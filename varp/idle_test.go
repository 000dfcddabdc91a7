package varp

import (
	"syscall"
	"testing"
	"time"
)

// TestIdleAfterPipelining: a connection that pipelined, and then sends nothing, takes almost no processor time.
func TestIdleAfterPipelining(t *testing.T) {
	const pipelined, rounds = 16, 32
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	var batch []byte
	for i := range pipelined {
		batch = appendLookup(batch, i)
	}
	for range rounds {
		write(t, nc, batch)
		for range pipelined {
			readMessage(t, nc)
		}
	}
	const idle = 300 * time.Millisecond
	used := func() time.Duration {
		before := processorTime(t)
		time.Sleep(idle) // what is measured
		return processorTime(t) - before
	}
	// What the runtime still has to do ends by itself.
	eventually(t, "next to no processor time without a request", func() bool { return used() <= idle/3 })
}

// processorTime is what this process used so far. Parallel tests wait meanwhile.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
