package devrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/subprocess"
)

// Process is a `rutter dev` that runs: three servers and two simulated nodes.
type Process struct {
	subprocess.Process
	URL      string // of the first server
	Operator string // the folder of the operator's certificate, unless it is --plain
}

// Of `rutter dev`.
const (
	devReady = "Ctrl-C ends them all"
	devPorts = 23 // from that of --port on: three servers, 10 ports apart, with three each
	devTries = 5  // another program may take a port that was free just now
)

// Start runs `rutter dev` with these flags more, its data and its output in
// dir, and waits until it says that it is ready.
func Start(ctx context.Context, program, dir string, flags ...string) (*Process, error) {
	var failed error
	for try := range devTries {
		port, err := devPort()
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, fmt.Sprintf("dev%d", try))
		d := &Process{URL: "https://127.0.0.1:" + strconv.Itoa(port), Operator: filepath.Join(data, "tls", "operator")}
		if slices.Contains(flags, "--plain") {
			d.URL = "http" + strings.TrimPrefix(d.URL, "https")
		}
		d.Process = subprocess.Process{
			Name: "rutter dev", Program: program, LogFile: filepath.Join(dir, "dev.log"),
			Args: append([]string{"dev", "--port", strconv.Itoa(port), "--data", data}, flags...),
		}
		if err := d.Start(); err != nil {
			return nil, err
		}
		if err = d.awaitReady(ctx); err == nil {
			return d, nil
		}
		failed = errors.Join(err, d.Stop(syscall.SIGTERM))
		if ctx.Err() != nil || !strings.Contains(d.Tail(), "address already in use") {
			break
		}
	}
	return nil, failed
}

func (d *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bench.ReadyWithin)
	defer cancel()
	for !strings.Contains(d.Tail(), devReady) {
		select {
		case <-d.Ended():
			return fmt.Errorf("rutter dev ended; it said last:\n%s", d.Tail())
		case <-ctx.Done():
			return fmt.Errorf("rutter dev is not ready (%w); it said last:\n%s", ctx.Err(), d.Tail())
		case <-time.After(bench.LookAgain):
		}
	}
	return nil
}

// devPort returns the first of as many ports in a row, on which no program listens.
// They are below those that the kernel chooses, and those of bench.FreePorts.
func devPort() (int, error) {
	for range 100 {
		port, free := 10000+rand.IntN(9900), true
		for i := 0; i < devPorts && free; i++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+i))
			if free = err == nil; free {
				free = l.Close() == nil
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row", devPorts)
}
