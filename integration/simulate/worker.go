package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
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
	Limit   time.Duration   `json:"limit"` // of real time, in nanoseconds
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

// work runs one history. The time limit ends the process, because a history that hangs cannot be
// ended in any other way.
func work(t *testing.T, run Run, j job) (result Result) {
	begun := time.Now()
	limit := time.AfterFunc(j.Limit, func() {
		fmt.Fprintf(os.Stderr, "panic: the history needs more than %v of real time; all goroutines:\n", j.Limit)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(limitExit)
	})
	defer limit.Stop()
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
