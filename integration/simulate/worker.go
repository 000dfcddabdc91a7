package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"rutter/integration/simulate/history"
)

// workerEnv makes a test program a worker: it is the name of the world that runs histories.
const workerEnv = "RUTTER_SIMULATE_WORLD"

// limitExit is the code with which a worker ends that needed too long for a history.
const limitExit = 3

// job is what a worker is asked to do: one line of JSON on its standard input.
type job struct {
	History history.History `json:"history"`
	Limit   time.Duration   `json:"limit"` // of processor time, in nanoseconds
	Log     string          `json:"log,omitempty"`
}

// Working reports whether this process is a worker, of which world.
func Working() (world string, ok bool) { return os.LookupEnv(workerEnv) }

// Work runs the histories that a Pool sends, and ends when that does. Results go to file 3.
func Work(t *testing.T, run Run) {
	to := json.NewEncoder(os.NewFile(3, "results"))
	for j := range jobs(t, os.Stdin) {
		if err := to.Encode(work(t, run, j)); err != nil {
			t.Fatalf("nobody takes the result: %v", err)
		}
	}
}

// jobs reads them beside the histories, so that the process ends as soon as its parent has: a
// history whose result would not be read is not finished.
func jobs(t *testing.T, from io.Reader) <-chan job {
	out := make(chan job, 1)
	go func() {
		lines := bufio.NewScanner(from)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var j job
			if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
				fmt.Fprintf(os.Stderr, "a job that is none: %v\n", err)
				os.Exit(1)
			}
			out <- j
		}
		os.Exit(0)
	}()
	return out
}

// slack is how many times its limit a history may take on a machine that has much else to do.
const slack = 4

// work runs one history. The time limit ends the process, because a history that hangs cannot be
// ended in any other way: the limit is one of this process's processor time, and slack times as
// much of real time. (That simulated time stands still is noticed earlier, by package world.)
func work(t *testing.T, run Run, j job) (result Result) {
	begun, used, ended := time.Now(), processorTime(), make(chan struct{})
	defer close(ended)
	go func() {
		tick := time.NewTicker(j.Limit / 20)
		defer tick.Stop()
		for time.Since(begun) < slack*j.Limit && processorTime()-used < j.Limit {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
		fmt.Fprintf(os.Stderr, "panic: the history needs more than %v of processor time, or %v of real time; all goroutines:\n", j.Limit, slack*j.Limit)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(limitExit)
	}()
	ok := t.Run(fmt.Sprint("seed ", j.History.Seed), func(t *testing.T) {
		result = run(t, j.History, j.Log)
	})
	if !ok && !result.Failed() {
		result.Failures = []string{"the test of this history failed without an oracle: run it alone with LOG=FILE"}
	}
	result.Real = time.Since(begun)
	runtime.GC() // what one history left is not the next one's burden
	return result
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
