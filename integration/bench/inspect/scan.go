package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/query"
	"rutter/raftstore/history"
)

// scanFilters are the filters that the scan is measured with: one that the head
// of an event answers, one that needs its scopes, and one that needs the object
// and the old values.
func scanFilters() map[string]map[string][]string {
	return map[string]map[string][]string{
		"kind":  {"kind": {"vmm"}},
		"vnet":  {"vnet": {"16777215"}},
		"owner": {"owner": {"ffffffff-ffff-4fff-8fff-ffffffffffff"}},
	}
}

// measureScan returns how many entries of the folder a filter looks at in a
// second on one core, with the slowest of the filters. Each entry is read with
// its checksum, as a server and `rutter log --data` do.
func measureScan(ctx context.Context, dir string) (perSecond float64, err error) {
	if err := readOnce(dir); err != nil {
		return 0, err
	}
	f, err := history.OpenFolder(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, values := range scanFilters() {
		filter, err := query.Parse(values)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		n, hits, err := scan(ctx, f, filter.Matcher())
		if err != nil {
			return 0, err
		}
		rate := float64(n) / time.Since(begun).Seconds()
		fmt.Printf("scan of %d entries by %s: %.0f entries/s, %d selected\n", n, name, rate, hits)
		if perSecond == 0 || rate < perSecond {
			perSecond = rate
		}
	}
	return perSecond, nil
}

func scan(ctx context.Context, f *history.Folder, m *query.Matcher) (n, hits int, err error) {
	var bad error
	err = f.Each(ctx, f.Floor(), func(e log.Entry) bool {
		var verdict query.Verdict
		if verdict, bad = m.Match(e.Seq, e.Bytes); verdict == query.Hit {
			hits++
		}
		n++
		return bad == nil
	})
	return n, hits, errors.Join(err, bad)
}

// tailRuns is how many times the first line of a tail is waited for.
const tailRuns = 20

// measureTail returns the median time from starting the program to the first
// byte of `log tail -n 50`, of the server at url, in milliseconds.
func measureTail(ctx context.Context, program, url string) (median float64, err error) {
	var times []time.Duration
	for range tailRuns {
		cmd := exec.CommandContext(ctx, program, "log", "tail", "-n", "50", "-s", url)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		var rest bytes.Buffer
		first := make([]byte, 1)
		_, readErr := out.Read(first)
		times = append(times, time.Since(begun))
		_, copyErr := rest.ReadFrom(out)
		if err := errors.Join(readErr, copyErr, cmd.Wait()); err != nil {
			return 0, err
		}
		if lines := bytes.Count(rest.Bytes(), []byte("\n")); lines < 50 {
			return 0, fmt.Errorf("log tail -n 50 printed %d lines", lines)
		}
	}
	slices.Sort(times)
	fmt.Printf("first line of log tail -n 50: median %v, worst %v of %d\n", times[len(times)/2], times[len(times)-1], len(times))
	return float64(times[len(times)/2].Microseconds()) / 1e3, nil
}
