package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rutter/agent"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

const (
	pacedRate = 1000 // events/s
	pacedFor  = 8 * time.Second
	pacedRuns = 3
	pacedKey  = "event_to_kernel_p99_ms"
	// benchOut names the file that make bench-kernel reads.
	benchOut = "RUTTER_BENCH_OUT"
)

// BenchmarkPacedWay measures, at 1,000 events/s through three server processes,
// how long an agent process takes from an applied event to the kernel's
// acknowledgement of its entries: the 99th percentile over the rounds of its
// reconcile loop, each counted with its oldest event. The median of pacedRuns
// counts; each has servers and an agent of its own.
func BenchmarkPacedWay(b *testing.B) {
	if !netlab.Inside() {
		pacedOutside(b)
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		b.Fatal(err)
	}
	w := newWholeWay(b)
	for b.Loop() {
		p99 := w.paced(b)
		b.ReportMetric(p99, "event_to_kernel_p99_ms")
		tellBench(b, pacedKey, p99)
	}
}

// pacedOutside makes the runs in namespaces of their own.
func pacedOutside(b *testing.B) {
	var p99s []float64
	for run := range pacedRuns {
		out := filepath.Join(b.TempDir(), strconv.Itoa(run))
		cmd := netlab.Enter("-test.run=^$", "-test.bench=^BenchmarkPacedWay$", "-test.benchtime=1x")
		cmd.Env = append(cmd.Env, benchOut+"="+out)
		err := cmd.Run()
		if netlab.Forbidden(err) {
			b.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			b.Fatal(err)
		}
		told, err := os.ReadFile(out)
		if err != nil {
			b.Fatal(err)
		}
		var p99 float64
		if _, err := fmt.Sscanf(string(told), pacedKey+"=%f", &p99); err != nil {
			b.Fatalf("a run told %q: %v", told, err)
		}
		p99s = append(p99s, p99)
	}
	slices.Sort(p99s)
	p99 := p99s[len(p99s)/2]
	b.ReportMetric(p99, "event_to_kernel_p99_ms")
	b.Logf("p99 of %d runs: %v ms, the median counts", pacedRuns, p99s)
	tellBench(b, pacedKey, p99)
}

// paced writes for pacedFor, and returns the percentile in ms, over all rounds of
// the agent: there are fewer than the 4,096 that it remembers.
func (w *wholeWay) paced(b *testing.B) float64 {
	var last, sent atomic.Uint64
	var writers sync.WaitGroup
	began := time.Now()
	for n := range wholeWayWriters {
		writers.Go(func() {
			every := time.NewTicker(wholeWayWriters * time.Second / pacedRate)
			defer every.Stop()
			time.Sleep(time.Duration(n) * time.Second / pacedRate) // the writers do not write at once
			for time.Since(began) < pacedFor {
				<-every.C
				result, err := w.c.Client.Submit(b.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{w.nic(w.remote, w.vm)}})
				if err != nil {
					b.Error(err)
					return
				}
				sent.Add(1)
				for old := last.Load(); uint64(result.Last) > old && !last.CompareAndSwap(old, uint64(result.Last)); old = last.Load() {
				}
			}
		})
	}
	writers.Wait()
	took := time.Since(began)
	for end := time.Now().Add(time.Minute); w.programmed() < log.Seq(last.Load()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("the kernel does not match seq %d", last.Load())
		}
	}
	response, err := http.Get("http://" + w.status + "/status")
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	var s agent.Status
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		b.Fatal(err)
	}
	p99 := float64(s.Kernel.Delay99.Microseconds()) / 1000
	b.ReportMetric(float64(sent.Load())/took.Seconds(), "events/s")
	b.Logf("%d rounds, p50 %v, p99 %v, %d passes", s.Kernel.Applied, s.Kernel.Delay50, s.Kernel.Delay99, s.Kernel.Passes)
	return p99
}

// tellBench appends key=value to the file that make bench-kernel reads.
func tellBench(b *testing.B, key string, value float64) {
	path := os.Getenv(benchOut)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%s=%.2f\n", key, value)
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}
